"""The report of a drill: its times compared with the promised times, the workers that took part, and notes."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recovery import metrics
from recovery.drill.sightings import Canary, Probe, ProbeOutcome, PromisedTime, Step

_WORST = (ProbeOutcome.FAILED, ProbeOutcome.LATE, ProbeOutcome.OK)


@dataclass(frozen=True, slots=True)
class Measured:
    """All measured times of one step."""

    step: Step
    promise: PromisedTime
    probes: Sequence[Probe]

    @property
    def seconds(self) -> list[float]:
        """Measured times in seconds, ascending. Probes that failed have none."""
        return sorted(probe.seconds for probe in self.probes if probe.seconds is not None)

    @property
    def outcomes(self) -> dict[ProbeOutcome, int]:
        """Number of probes by outcome."""
        counts = dict.fromkeys(ProbeOutcome, 0)
        for probe in self.probes:
            counts[probe.outcome(self.promise)] += 1
        return counts

    @property
    def outcome(self) -> ProbeOutcome:
        """The worst outcome of a probe."""
        return next(outcome for outcome in _WORST if self.outcomes[outcome] or outcome is ProbeOutcome.OK)

    def as_dict(self) -> dict[str, Any]:
        """Return this as JSON values."""
        seconds, outcomes = self.seconds, self.outcomes
        return {
            "step": self.step.value,
            "outcome": self.outcome.value,
            "probes": len(self.probes),
            "late": outcomes[ProbeOutcome.LATE],
            "failed": outcomes[ProbeOutcome.FAILED],
            "median": round(statistics.median(seconds), 3) if seconds else None,
            "longest": round(seconds[-1], 3) if seconds else None,
            "promised": self.promise.seconds,
            "why": self.promise.why,
        }


@dataclass(frozen=True, slots=True)
class Taker:
    """A worker that was alive when the drill began, and how many canaries it ran."""

    name: str
    serves: bool
    canaries: int
    killed: bool = False

    def as_dict(self) -> dict[str, Any]:
        """Return this as JSON values."""
        return {"name": self.name, "serves": self.serves, "canaries": self.canaries, "killed": self.killed}


@dataclass(frozen=True, slots=True)
class DrillReport:
    """The result of a drill."""

    drill: str
    processes: int
    """Canaries that were started."""
    seconds: float
    """Duration of the drill."""
    steps: Sequence[Measured]
    workers: Sequence[Taker]
    canaries: Sequence[Canary] = ()
    """All canaries with what was seen of them."""
    left: int = 0
    """Canaries whose records could not be removed."""
    notes: Sequence[str] = ()

    @property
    def good(self) -> bool:
        """Whether every tried promise was kept, and at least one was tried."""
        return bool(self.steps) and all(measured_step.outcome is ProbeOutcome.OK for measured_step in self.steps)

    def as_dict(self) -> dict[str, Any]:
        """Return this as JSON values."""
        return {
            "drill": self.drill,
            "good": self.good,
            "processes": self.processes,
            "seconds": round(self.seconds, 3),
            "steps": [part.as_dict() for part in self.steps],
            "workers": [part.as_dict() for part in self.workers],
            "left": self.left,
            "notes": list(self.notes),
        }

    def count(self) -> None:
        """Count the drill in this process's metrics."""
        for measured in self.steps:
            for probe in measured.probes:
                if probe.seconds is not None:
                    metrics.DRILL_SECONDS.labels(measured.step.value).observe(max(0.0, probe.seconds))
                metrics.DRILL_PROBES.labels(measured.step.value, probe.outcome(measured.promise).value).inc()


def measured(probes: Iterable[Probe], promises: Mapping[Step, PromisedTime]) -> list[Measured]:
    """Return the probes by step, in the order of Step, without steps that have no probes."""
    by_step: dict[Step, list[Probe]] = {step: [] for step in Step}
    for probe in probes:
        by_step[probe.step].append(probe)
    return [Measured(step, promises[step], step_probes) for step, step_probes in by_step.items() if step_probes]
