"""The report of a sweep: what it found and repaired, read from its operation."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from recovery import operations
from recovery.engine import Resources
from recovery.records import Operation, OperationKind
from recovery.rules import Rule

SHOWN = 20
"""Maximum suspects that a report names. The operation's report has all of them."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """A process with a finding, and its evidence."""

    process_id: str
    record: str
    rule: Rule
    evidence: str


@dataclass(frozen=True, slots=True)
class SweepReport:
    """The findings of a sweep, and its repairs if it made any."""

    operation: int
    state: str
    """The operation's state: `finished`, unless somebody paused or cancelled it."""
    processes: int
    decisions: int
    suspects: int
    """Processes with at least one finding."""
    findings: dict[Rule, int]
    repaired: dict[Rule, int]
    """Repairs that changed something, by rule. There may be fewer repairs than findings, because a process may have
    continued or may wait."""
    sample: tuple[Suspect, ...]
    """The first suspects by process id, at most SHOWN."""
    ranges: int
    seconds: float
    repair: bool
    selection: str

    def summary(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return {
            "operation": self.operation,
            "state": self.state,
            "processes": self.processes,
            "decisions": self.decisions,
            "suspects": self.suspects,
            "findings": {rule.value: count for rule, count in self.findings.items()},
            "repaired": {rule.value: count for rule, count in self.repaired.items()},
            "sample": [
                {
                    "process": suspect.process_id,
                    "record": suspect.record,
                    "rule": suspect.rule.value,
                    "evidence": suspect.evidence,
                }
                for suspect in self.sample
            ],
            "ranges": self.ranges,
            "seconds": round(self.seconds, 3),
            "repair": self.repair,
            "selection": self.selection,
        }


def report_of(resources: Resources, number: int, seconds: float | None = None) -> SweepReport:
    """Return the report of a check or repair that is over. `seconds`: its duration, if it differs from the
    operation's."""
    operation = operations.find(resources, number)
    progress = operations.progress(resources, operation)
    planned = operation.planned or progress.totals
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
        seconds=progress.seconds if seconds is None else seconds,
        repair=operation.kind is OperationKind.REPAIR,
        selection=operation.selection or "all",
    )


def _by_rule(counts: dict[str, int]) -> dict[Rule, int]:
    return {Rule(name): count for name, count in Counter(counts).most_common()}


def _sample(resources: Resources, operation: Operation) -> tuple[Suspect, ...]:
    page = next(resources.store.operation_results.pages(operation.id, size=SHOWN), [])
    firsts = [(result.process, result.findings[0]) for result in page if result.findings]
    return tuple(Suspect(process, finding.record, Rule(finding.rule), finding.evidence) for process, finding in firsts)
