"""Check: apply the scanners' rules to whole processes and record the findings. Changes nothing."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime

from recovery.engine import Resources
from recovery.errors import InputError
from recovery.operations.kinds.base import Kind, Option, Options, Planned, described, totals_of
from recovery.records import Operation, OperationFinding, OperationKind, OperationResult, Tally
from recovery.records.operation_parts import result_id
from recovery.repair import diagnose, look_at_all, readings
from recovery.rules import Finding, Snapshot
from recovery.store.views.ranges import Range
from recovery.survey import Look, RangeCounts, without_process, wrong_in

SHOWN = 20
"""Findings that a result lists. Further findings are only counted, because one process may have thousands of the same
kind."""
SAVED_TOGETHER = 1000
"""Results of a scanned range that are saved at once. This bounds how many results are in memory."""


def _read_parquet(_: Resources, options: Options) -> str:
    folder = str(options["parquet"])
    if not options["spark"]:
        raise InputError(f"--parquet {folder}: {_IN_SPARK}")
    if not (folder.startswith("/") or "://" in folder):
        raise InputError(f"--parquet {folder}: give the whole path of a folder that all executors see")
    return folder


_IN_SPARK = "is for a check or repair in Spark: give --spark"
THOROUGH = Option(
    "thorough",
    "--thorough",
    "is for check and repair; {kind} looks for no damage",
    lambda _, options: options["thorough"],
    shown=lambda _: "",
)
PARQUET = Option("parquet", "--parquet", _IN_SPARK, _read_parquet)


class CheckAll(Kind):
    """Records what is wrong with processes."""

    name = OperationKind.CHECK
    options = (THOROUGH, PARQUET)
    is_exclusive = False  # because it changes nothing
    none = "no rule has found anything wrong with them"
    surveys = True

    def plan(self, operation: Operation, process_ids: Sequence[str]) -> Planned:
        """Read each process whole and judge it. Slower than `survey`, but its pages can follow a rate."""
        results, processes, decisions = list[OperationResult](), 0, 0
        for reading in readings(self.resources.store, process_ids, committed=True, thorough=process_ids):
            processes += sum(snapshot.process is not None for snapshot in reading.snapshots)
            decisions += sum(len(snapshot.decisions) for snapshot in reading.snapshots)
            findings = diagnose(self.resources, reading).findings
            results += _results(operation, reading.snapshots, findings, reading.begun_at)
        return Planned(results, totals_of(results, processes, decisions))

    def besides(self, part: Range) -> Sequence[str]:
        """Return the ids that have records, but no Process record."""
        return sorted(without_process(self.resources.store.ranges, part))

    def survey(
        self, operation: Operation, part: Range, chosen: Sequence[str] | None, hold: Callable[[], bool]
    ) -> Iterator[Planned]:
        """Scan a range in key order. Faster than `plan`, and finds records whose Process record is missing."""
        store, counts, results = self.resources.store, RangeCounts(), list[OperationResult]()
        look = Look(look_at_all(self.resources), chosen, bool(operation.thorough))
        for snapshots, findings in wrong_in(store, look, part, counts):
            results += _results(operation, snapshots, findings, look.around.now)
            if not hold():
                return
            if len(results) >= SAVED_TOGETHER:
                yield Planned(results, totals_of(results))
                results = []
        yield Planned(results, totals_of(results, counts.processes, counts.decisions))


def _results(
    operation: Operation, snapshots: Sequence[Snapshot], findings: Iterable[Finding], at: datetime
) -> list[OperationResult]:
    snapshots_by_id = {snapshot.process_id: snapshot for snapshot in snapshots}
    return [
        result_of(operation, snapshots_by_id[process_id], process_findings).evolve(at=at)
        for process_id, process_findings in by_process(findings).items()
    ]


def result_of(operation: Operation, snapshot: Snapshot, findings: Sequence[Finding]) -> OperationResult:
    """Return the result for the findings on one process."""
    process, counts = snapshot.process, Counter(finding.rule.value for finding in findings)
    by_actor = Counter((finding.rule.value, _actor(snapshot, finding)) for finding in findings)
    return OperationResult(
        id=result_id(operation.id, snapshot.process_id),
        operation=operation.id,
        process=snapshot.process_id,
        type=process.type if process is not None else "",
        rules=tuple(counts),
        counts=dict(counts),
        tally=tuple(Tally(rule=rule, actor=actor, count=count) for (rule, actor), count in by_actor.items()),
        findings=tuple(_operation_finding(snapshot, finding) for finding in findings[:SHOWN]),
        before=described(process) if process is not None else "no Process record",
        plan=", ".join(dict.fromkeys(finding.repair.value for finding in findings)),
    )


def _operation_finding(snapshot: Snapshot, finding: Finding) -> OperationFinding:
    return OperationFinding(
        rule=finding.rule.value,
        record=finding.record,
        evidence=finding.evidence[:300],
        actor=_actor(snapshot, finding),
    )


def _actor(snapshot: Snapshot, finding: Finding) -> str | None:
    decision = snapshot.decisions.get(finding.record.rpartition("/")[2])
    return decision.actor if decision is not None else None


def by_process(findings: Iterable[Finding]) -> dict[str, list[Finding]]:
    """Return findings by process id."""
    grouped: dict[str, list[Finding]] = defaultdict(list)
    for finding in findings:
        grouped[finding.process_id].append(finding)
    return grouped
