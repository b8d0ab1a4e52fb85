"""What came of a drill: its times against what was promised, which workers took part, and what is to be told beside."""

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
    """All times of one step."""

    step: Step
    promise: PromisedTime
    probes: Sequence[Probe]

    @property
    def seconds(self) -> list[float]:
        """Those that came about, the shortest first."""
        return sorted(probe.seconds for probe in self.probes if probe.seconds is not None)

    @property
    def outcomes(self) -> dict[ProbeOutcome, int]:
        """How many were of each outcome."""
        found = dict.fromkeys(ProbeOutcome, 0)
        for probe in self.probes:
            found[probe.outcome(self.promise)] += 1
        return found

    @property
    def outcome(self) -> ProbeOutcome:
        """The worst."""
        return next(one for one in _WORST if self.outcomes[one] or one is ProbeOutcome.OK)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
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
    """A worker that lived when the drill began, and how many canaries it was at."""

    name: str
    serves: bool
    canaries: int
    killed: bool = False

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"name": self.name, "serves": self.serves, "canaries": self.canaries, "killed": self.killed}


@dataclass(frozen=True, slots=True)
class DrillReport:
    """The figures of a drill."""

    drill: str
    processes: int
    """Canaries that were started."""
    seconds: float
    """How long it took."""
    steps: Sequence[Measured]
    workers: Sequence[Taker]
    canaries: Sequence[Canary] = ()
    """What was seen of each."""
    left: int = 0
    """Canaries whose records could not be removed."""
    notes: Sequence[str] = ()

    @property
    def good(self) -> bool:
        """Whether every promise was kept that was tried, and any was."""
        return bool(self.steps) and all(one.outcome is ProbeOutcome.OK for one in self.steps)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "drill": self.drill,
            "good": self.good,
            "processes": self.processes,
            "seconds": round(self.seconds, 3),
            "steps": [one.as_dict() for one in self.steps],
            "workers": [one.as_dict() for one in self.workers],
            "left": self.left,
            "notes": list(self.notes),
        }

    def count(self) -> None:
        """Count it in this process's metrics."""
        for measured in self.steps:
            for probe in measured.probes:
                if probe.seconds is not None:
                    metrics.DRILL_SECONDS.labels(measured.step.value).observe(max(0.0, probe.seconds))
                metrics.DRILL_PROBES.labels(measured.step.value, probe.outcome(measured.promise).value).inc()


def measured(probes: Iterable[Probe], promises: Mapping[Step, PromisedTime]) -> list[Measured]:
    """Times by step, in order; of steps of which there are any."""
    by_step: dict[Step, list[Probe]] = {step: [] for step in Step}
    for probe in probes:
        by_step[probe.step].append(probe)
    return [Measured(step, promises[step], found) for step, found in by_step.items() if found]
