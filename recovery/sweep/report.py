"""What a sweep found and did: per range, and in all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from recovery.rules import Finding, Rule

SHOWN = 20
"""Suspects that a report names. The others are counted; an operator's check of one process tells about it."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """A process with something wrong, and what shows it."""

    process_id: str
    record: str
    rule: Rule
    evidence: str


@dataclass(frozen=True, slots=True)
class RangeResult:
    """What one range held. Sent from executor to driver."""

    processes: int = 0
    decisions: int = 0
    suspects: int = 0
    findings: Counter[Rule] = field(default_factory=Counter)
    repaired: Counter[Rule] = field(default_factory=Counter)
    sample: tuple[Suspect, ...] = ()


@dataclass(frozen=True, slots=True)
class SweepReport:
    """What a sweep found, and repaired if that was asked for."""

    processes: int
    decisions: int
    suspects: int
    """Processes with at least one finding."""
    findings: dict[Rule, int]
    repaired: dict[Rule, int]
    """Repairs that changed something, by rule. Fewer than findings where a process had moved on, or may wait."""
    sample: tuple[Suspect, ...]
    """The first suspects, at most 20, in order of process id."""
    ranges: int
    seconds: float
    repair: bool
    process_type: str | None

    def summary(self) -> dict[str, Any]:
        """Everything as JSON takes it."""
        return {
            "processes": self.processes,
            "decisions": self.decisions,
            "suspects": self.suspects,
            "findings": {rule.value: count for rule, count in self.findings.items()},
            "repaired": {rule.value: count for rule, count in self.repaired.items()},
            "sample": [
                {"process": s.process_id, "record": s.record, "rule": s.rule.value, "evidence": s.evidence}
                for s in self.sample
            ],
            "ranges": self.ranges,
            "seconds": round(self.seconds, 3),
            "repair": self.repair,
            "process_type": self.process_type,
        }


def suspects(findings: Iterable[Finding]) -> tuple[Suspect, ...]:
    """The first findings as a report shows them, one per process."""
    shown: dict[str, Suspect] = {}
    for finding in findings:
        if len(shown) == SHOWN:
            break
        one = Suspect(finding.process_id, finding.record, finding.rule, finding.evidence)
        shown.setdefault(finding.process_id, one)
    return tuple(shown.values())


def total(results: Sequence[RangeResult], *, seconds: float, repair: bool, process_type: str | None) -> SweepReport:
    """The report of a whole sweep, from its ranges in order."""
    findings = sum((result.findings for result in results), Counter[Rule]())
    repaired = sum((result.repaired for result in results), Counter[Rule]())
    return SweepReport(
        processes=sum(result.processes for result in results),
        decisions=sum(result.decisions for result in results),
        suspects=sum(result.suspects for result in results),
        findings=dict(findings.most_common()),
        repaired=dict(repaired.most_common()),
        sample=tuple(suspect for result in results for suspect in result.sample)[:SHOWN],
        ranges=len(results),
        seconds=seconds,
        repair=repair,
        process_type=process_type,
    )
