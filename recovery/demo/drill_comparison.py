"""A drill's figures against the ledger's: two clocks, and two who looked.

The drill has its times from the records, by MongoDB's clock. Each attempt of a canary has written into the ledger when
it began, by this machine's, and in which process. From these lines alone the same times follow again, but for a moment:
an attempt begins a little after it is claimed, and after it is queued. A drill that told less than was so, or of a kill
that was none, would be found by that.
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
"""Seconds that an attempt may begin later than it was queued, and that a write takes, on a machine that is busy."""
BEFORE = 0.1
"""Seconds that the ledger's time may be shorter: an attempt that kills or drops its claim does so a little later than
is reckoned here, and MongoDB's times are in whole milliseconds."""

Flights = Mapping[tuple[str, str, int], Flight]
"""{(canary, task, attempt): its line}."""


@dataclass(frozen=True, slots=True)
class Compared:
    """A drill, and what did not agree."""

    report: DrillReport
    compared: int = 0
    """Times that were held against the ledger."""
    disagreements: Sequence[str] = field(default_factory=tuple)

    @property
    def problems(self) -> list[str]:
        """What is wrong: figures that don't agree, and what never came."""
        failed = [one.step.value for one in self.report.steps if one.outcome is ProbeOutcome.FAILED]
        return [*self.disagreements, *(f"drill: {step} did not come about" for step in failed)]

    @property
    def notes(self) -> list[str]:
        """What is to be told beside: this machine may be too busy for a promise."""
        late = [one.as_dict() for one in self.report.steps if one.outcome is ProbeOutcome.LATE]
        told = [f"drill: {one['step']} took {one['longest']:.1f} s, promised are {one['promised']:g} s" for one in late]
        return [*told, *(f"drill: {note}" for note in self.report.notes)]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            **self.report.as_dict(),
            "compared": self.compared,
            "disagreements": list(self.disagreements),
        }


def compare(report: DrillReport, lines: Iterable[Flight]) -> Compared:
    """Hold a drill's times against what its canaries wrote down."""
    flights = {(one.canary, one.id, one.attempt): one for one in lines}
    canaries = {one.id: one for one in report.canaries}
    compared, wrong = 0, list(_missing(report.canaries, flights))
    for probe in (probe for one in report.steps for probe in one.probes if probe.seconds is not None):
        compared += 1
        if said := _disagrees(probe, canaries[probe.process], flights):
            wrong.append(f"drill: {probe.step.value} of canary {probe.process}/{probe.task}: {said}")
    return Compared(report, compared, wrong)


def _missing(canaries: Iterable[Canary], flights: Flights) -> Iterator[str]:
    """Attempts by the records of which nobody wrote down that they began, and the other way round."""
    for canary in canaries:
        for task, seen in canary.tasks.items():
            written = {attempt for process, key, attempt in flights if (process, key) == (canary.id, task)}
            if seen.finished is not None and written != set(range(1, seen.attempts + 1)):
                told = ", ".join(map(str, sorted(written))) or "none"
                yield f"drill: canary {canary.id}/{task} had {count(seen.attempts, 'attempt')}; the ledger has {told}"


def _disagrees(probe: Probe, canary: Canary, flights: Flights) -> str | None:
    """How the ledger has it otherwise; None if it agrees."""
    assert probe.seconds is not None
    ledgers = _seconds(probe, flights)
    if ledgers is None:
        return "the ledger does not have its attempts"
    if not -BEFORE <= ledgers - probe.seconds <= AGREE:
        return f"{probe.seconds:.3f} s by the records, {ledgers:.3f} s by the ledger"
    return _not_killed(canary, flights) if canary.kind is CanaryKind.KILL and probe.step is not Step.START else None


def _seconds(probe: Probe, flights: Flights) -> float | None:
    """The same time from the ledger alone."""

    def at(task: str, attempt: int = 1) -> float | None:
        line = flights.get((probe.process, task, attempt))
        return line.at if line is not None else None

    since: float | None
    match probe.step:
        case Step.START:
            since, until = started_at(probe.process).timestamp(), at(probe.task)
        case Step.STEP:
            since, until = at(_parent(probe.task)), at(probe.task)
        case Step.DELAY:
            since, until = _later(at(START_TASK), DELAY), at(probe.task)
        case Step.LOST_CLAIM:
            since, until = _later(at(probe.task), WORKER_TIMEOUT), at(probe.task, 2)
        case Step.KILLED_SLOT | Step.KILLED_WORKER:
            since, until = _later(at(probe.task), HOLD), at(probe.task, 2)
    return None if since is None or until is None else until - since


def _parent(task: str) -> str:
    """Who scheduled a step: the start task, or the step before it."""
    first = child_task_id(START_TASK, 0, 0)
    return first if task == child_task_id(first, 0, 0) else START_TASK


def _not_killed(canary: Canary, flights: Flights) -> str | None:
    """Whether the ledger shows that nobody died."""
    first, second = (flights[canary.id, START_TASK, attempt] for attempt in (1, 2))
    if first.pid == second.pid:
        return f"both attempts ran in process {first.pid}, which was to be killed"
    same = worker_of(first.worker) == worker_of(second.worker)
    return "the second attempt ran on the worker that was to be killed" if same and canary.kills_worker else None


def _later(moment: float | None, seconds: float) -> float | None:
    return None if moment is None else moment + seconds
