"""Compares a drill's times with the ledger: two clocks, and two observers.

The drill takes its times from the records, by MongoDB's clock. Each attempt of a canary has written to the ledger when
it began, by this machine's clock, and in which process. The same times follow from these lines alone, except for a
moment: an attempt begins slightly after it is claimed, and after it is queued. The comparison finds a drill that
reports too short times, or a kill that did not happen.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from recovery.demo.ledger import Flight
from recovery.drill.canary_actor import DELAY, HOLD, WORKER_TIMEOUT, CanaryKind
from recovery.drill.drill_report import DrillReport
from recovery.drill.sightings import Canary, Probe, ProbeOutcome, Step
from recovery.records.ids import START_TASK, child_task_id, started_at, worker_of
from recovery.wording import count

AGREE = 2.0
"""Seconds that an attempt may begin after it was queued, and that a write may take, on a busy machine."""
BEFORE = 0.1
"""Seconds by which the ledger's time may be shorter. An attempt kills or drops its claim slightly later than is assumed
here, and MongoDB's times are in whole milliseconds."""

Flights = Mapping[tuple[str, str, int], Flight]
"""{(canary, task, attempt): its line}."""


@dataclass(frozen=True, slots=True)
class Compared:
    """A drill, and its disagreements with the ledger."""

    report: DrillReport
    compared: int = 0
    """Number of times that were compared."""
    disagreements: Sequence[str] = field(default_factory=tuple)

    @property
    def problems(self) -> list[str]:
        """Disagreements, and steps that did not come about."""
        failed = [measured.step.value for measured in self.report.steps if measured.outcome is ProbeOutcome.FAILED]
        return [*self.disagreements, *(f"drill: {step} did not come about" for step in failed)]

    @property
    def notes(self) -> list[str]:
        """Steps that were late, because the machine may be too busy for a promise, and the drill's notes."""
        late = [step.as_dict() for step in self.report.steps if step.outcome is ProbeOutcome.LATE]
        texts = [
            f"drill: {step['step']} took {step['longest']:.1f} s, promised are {step['promised']:g} s" for step in late
        ]
        return [*texts, *(f"drill: {note}" for note in self.report.notes)]

    def as_dict(self) -> dict[str, Any]:
        """Return this as JSON values."""
        return {
            **self.report.as_dict(),
            "compared": self.compared,
            "disagreements": list(self.disagreements),
        }


def compare(report: DrillReport, lines: Iterable[Flight]) -> Compared:
    """Compare a drill's times with its canaries' lines."""
    flights = {(flight.canary, flight.id, flight.attempt): flight for flight in lines}
    canaries = {canary.id: canary for canary in report.canaries}
    compared, disagreements = 0, list(_missing(report.canaries, flights))
    for probe in (probe for measured in report.steps for probe in measured.probes if probe.seconds is not None):
        compared += 1
        if disagreement := _disagrees(probe, canaries[probe.process], flights):
            disagreements.append(f"drill: {probe.step.value} of canary {probe.process}/{probe.task}: {disagreement}")
    return Compared(report, compared, disagreements)


def _missing(canaries: Iterable[Canary], flights: Flights) -> Iterator[str]:
    """Yield attempts that have a record but no line, and attempts that have a line but no record."""
    for canary in canaries:
        for task, seen in canary.tasks.items():
            attempts = {attempt for process, task_id, attempt in flights if (process, task_id) == (canary.id, task)}
            if seen.finished is not None and attempts != set(range(1, seen.attempts + 1)):
                numbers = ", ".join(map(str, sorted(attempts))) or "none"
                yield (
                    f"drill: canary {canary.id}/{task} had {count(seen.attempts, 'attempt')}; the ledger has {numbers}"
                )


def _disagrees(probe: Probe, canary: Canary, flights: Flights) -> str | None:
    """Return how the ledger disagrees, or None if it agrees."""
    assert probe.seconds is not None
    ledger_seconds = _seconds(probe, flights)
    if ledger_seconds is None:
        return "the ledger does not have its attempts"
    if not -BEFORE <= ledger_seconds - probe.seconds <= AGREE:
        return f"{probe.seconds:.3f} s by the records, {ledger_seconds:.3f} s by the ledger"
    return _not_killed(canary, flights) if canary.kind is CanaryKind.KILL and probe.step is not Step.START else None


def _seconds(probe: Probe, flights: Flights) -> float | None:
    """Return the same time from the ledger alone."""

    def at(task: str, attempt: int = 1) -> float | None:
        line = flights.get((probe.process, task, attempt))
        return line.at if line is not None else None

    begin: float | None
    match probe.step:
        case Step.START:
            begin, end = started_at(probe.process).timestamp(), at(probe.task)
        case Step.STEP:
            begin, end = at(_parent(probe.task)), at(probe.task)
        case Step.DELAY:
            begin, end = _later(at(START_TASK), DELAY), at(probe.task)
        case Step.LOST_CLAIM:
            begin, end = _later(at(probe.task), WORKER_TIMEOUT), at(probe.task, 2)
        case Step.KILLED_SLOT | Step.KILLED_WORKER:
            begin, end = _later(at(probe.task), HOLD), at(probe.task, 2)
    return None if begin is None or end is None else end - begin


def _parent(task: str) -> str:
    """Return the task that scheduled a step: the start task, or the step before."""
    first = child_task_id(START_TASK, 0, 0)
    return first if task == child_task_id(first, 0, 0) else START_TASK


def _not_killed(canary: Canary, flights: Flights) -> str | None:
    """Return how the ledger shows that nothing was killed, or None."""
    first, second = (flights[canary.id, START_TASK, attempt] for attempt in (1, 2))
    if first.pid == second.pid:
        return f"both attempts ran in process {first.pid}, which was to be killed"
    same = worker_of(first.worker) == worker_of(second.worker)
    return "the second attempt ran on the worker that was to be killed" if same and canary.kills_worker else None


def _later(moment: float | None, seconds: float) -> float | None:
    return None if moment is None else moment + seconds
