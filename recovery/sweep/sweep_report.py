"""What a sweep found and did, from the operation that it was."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from recovery import operations
from recovery.engine import Resources
from recovery.records import Operation, OperationKind
from recovery.rules import Rule

SHOWN = 20
"""Suspects that a report names. The others are counted; the operation's report has them all."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """A process with something wrong, and what shows it."""

    process_id: str
    record: str
    rule: Rule
    evidence: str


@dataclass(frozen=True, slots=True)
class SweepReport:
    """What a sweep found, and repaired if that was asked for."""

    operation: int
    state: str
    """Of the operation: `finished`, unless somebody paused or cancelled it."""
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
    selection: str

    def summary(self) -> dict[str, Any]:
        """Everything as JSON takes it."""
        return {
            "operation": self.operation,
            "state": self.state,
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
            "selection": self.selection,
        }


def report_of(resources: Resources, number: int, seconds: float | None = None) -> SweepReport:
    """The report of a check or repair that is over. `seconds`: how long it took, if not as the operation has it."""
    operation = operations.find(resources, number)
    found = operations.progress(resources, operation)
    planned = operation.planned or found.totals
    return SweepReport(
        operation=number,
        state=operation.state.value,
        processes=planned.processes,
        decisions=planned.decisions,
        suspects=planned.found,
        findings=_by_rule(planned.rules),
        repaired=_by_rule(operation.applied.repaired if operation.applied is not None else {}),
        sample=_sample(resources, operation),
        ranges=len(operation.cuts or ()) + 1,
        seconds=found.seconds if seconds is None else seconds,
        repair=operation.kind is OperationKind.REPAIR,
        selection=operation.selection or "all",
    )


def _by_rule(counts: dict[str, int]) -> dict[Rule, int]:
    return {Rule(name): count for name, count in Counter(counts).most_common()}


def _sample(resources: Resources, operation: Operation) -> tuple[Suspect, ...]:
    page = next(resources.store.operation_results.pages(operation.id, size=SHOWN), [])
    firsts = [(result.process, result.findings[0]) for result in page if result.findings]
    return tuple(Suspect(process, one.record, Rule(one.rule), one.evidence) for process, one in firsts)
