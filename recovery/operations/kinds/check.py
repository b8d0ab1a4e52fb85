"""Check and repair: the rules of the scanners on whole processes, and the scanners' repair of what they find."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime

from recovery.engine.isolation import in_a_line, is_of_servers
from recovery.operations.kinds.base import Kind, Planned, described, totals_of
from recovery.operations.kinds.single_tasks import HANDED_OVER, diagnose_tasks, is_settled, of_single_tasks
from recovery.records import Operation, OperationFinding, OperationResult, Process, ResultState, Tally
from recovery.records.operation import result_id
from recovery.repair import Repairer, diagnose, look_at_all, readings
from recovery.rules import Finding, Repair, Rule, Snapshot
from recovery.store.views.ranges import Range
from recovery.survey import Look, RangeCounts, without_process, wrong_in

SHOWN = 20
"""Findings that a result holds; the others are counted. One process may have thousands, all alike."""
SAVED_TOGETHER = 1000
"""Results of a range that is gone through as a whole: what is found is not held in memory till its end."""
ROUNDS = 10
"""A repair may show what is to be repaired next, as a graph that is made anew does. Each process takes a few steps."""


class Check(Kind):
    """Finds what is wrong, and writes it down."""

    surveys = True

    def plan(self, operation: Operation, process_ids: Sequence[str]) -> Planned:
        """Processes read whole, one by one: what a rate allows."""
        results, processes, decisions = list[OperationResult](), 0, 0
        for reading in readings(self.resources.store, process_ids, committed=True, thorough=process_ids):
            processes += sum(snapshot.process is not None for snapshot in reading.snapshots)
            decisions += sum(len(snapshot.decisions) for snapshot in reading.snapshots)
            findings = diagnose(self.resources, reading).findings
            results += _results(operation, reading.snapshots, findings, reading.begun_at)
        return Planned(results, totals_of(results, processes, decisions))

    def besides(self, part: Range) -> Sequence[str]:
        """What has lost its Process record."""
        return sorted(without_process(self.resources.store.ranges, part))

    def survey(
        self, operation: Operation, part: Range, chosen: Sequence[str] | None, hold: Callable[[], bool]
    ) -> Iterator[Planned]:
        """A range gone through in key order: ten times as fast, and it meets what has lost its Process record."""
        store, seen, results = self.resources.store, RangeCounts(), list[OperationResult]()
        look = Look(look_at_all(self.resources), chosen, bool(operation.thorough))
        for snapshots, findings in wrong_in(store, look, part, seen):
            results += _results(operation, snapshots, findings, look.around.now)
            if not hold():
                return
            if len(results) >= SAVED_TOGETHER:
                yield Planned(results, totals_of(results))
                results = []
        yield Planned(results, totals_of(results, seen.processes, seen.decisions))


class RepairAll(Check):
    """Finds the same, and repairs it when it is applied. Whatever became of a process since it was planned: it is read
    and judged once more, and what it needs now is done."""

    page = step = 1000

    def apply(self, operation: Operation, results: Sequence[OperationResult]) -> list[OperationResult]:
        try:
            return self._together(operation, results)
        except Exception as error:
            if is_of_servers(error):
                raise
            if len(results) == 1:
                return [results[0].evolve(state=ResultState.ERROR, error=in_a_line(error))]
        return [ended for result in results for ended in self.apply(operation, [result])]

    def _together(self, operation: Operation, results: Sequence[OperationResult]) -> list[OperationResult]:
        repairer = Repairer(self.resources, self.applier, f"operation {operation.id}")
        left = {result.process: result for result in results}
        seen, repaired = dict[str, list[Finding]](), defaultdict[str, Counter[str]](Counter)
        processes = dict[str, Process | None]()
        wanted = self._without_single_tasks(results, processes, repairer, seen, repaired)
        for _ in range(ROUNDS):
            if not wanted:
                break
            now = self._judge(wanted, processes, repairer, repaired)
            seen.update(now)
            wanted = [key for key in wanted if _goes_on(now[key]) and repaired[key]]
        return [_ended(result, seen[key], repaired[key], processes.get(key)) for key, result in left.items()]

    def _without_single_tasks(
        self,
        results: Sequence[OperationResult],
        processes: dict[str, Process | None],
        repairer: Repairer,
        seen: dict[str, list[Finding]],
        repaired: Mapping[str, Counter[str]],
    ) -> list[str]:
        """Repair what is of single tasks; the processes that are to be looked at whole."""
        processes.update(self.resources.store.processes.briefs([result.process for result in results]))
        light = [one for one in results if of_single_tasks(one, processes.get(one.process))]
        if not light:
            return [result.process for result in results]
        diagnosis = diagnose_tasks(self.resources, light)
        found = _by_process(diagnosis.findings)
        if diagnosis.findings:
            _attribute(diagnosis.findings, repairer.repair(diagnosis.findings, diagnosis.around), repaired)
        repairs = {key: [one.repair for one in some] for key, some in found.items()}
        settled = {one.process for one in light if is_settled(one, repairs, repaired[one.process].total())}
        seen.update((key, found[key]) for key in settled)
        return [result.process for result in results if result.process not in settled]

    def _judge(
        self,
        process_ids: Sequence[str],
        processes: dict[str, Process | None],
        repairer: Repairer,
        repaired: Mapping[str, Counter[str]],
    ) -> dict[str, list[Finding]]:
        """What is found on these processes now. It is repaired before this returns, and `repaired` has what changed
        something by process."""
        found: dict[str, list[Finding]] = {key: [] for key in process_ids}
        for reading in readings(self.resources.store, process_ids):
            processes.update((snapshot.process_id, snapshot.process) for snapshot in reading.snapshots)
            diagnosis = diagnose(self.resources, reading)
            for key, some in _by_process(diagnosis.findings).items():
                found[key] += some
            if diagnosis.findings:
                done = repairer.repair(diagnosis.findings, diagnosis.around)
                _attribute(diagnosis.findings, done, repaired)
        return found


def _results(
    operation: Operation, snapshots: Sequence[Snapshot], findings: Iterable[Finding], at: datetime
) -> list[OperationResult]:
    of = {snapshot.process_id: snapshot for snapshot in snapshots}
    return [result_of(operation, of[key], some).evolve(at=at) for key, some in _by_process(findings).items()]


def result_of(operation: Operation, snapshot: Snapshot, findings: Sequence[Finding]) -> OperationResult:
    """What was found on one process."""
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
        findings=tuple(_told(snapshot, finding) for finding in findings[:SHOWN]),
        before=described(process) if process is not None else "no Process record",
        plan=", ".join(dict.fromkeys(finding.repair.value for finding in findings)),
    )


def _told(snapshot: Snapshot, finding: Finding) -> OperationFinding:
    return OperationFinding(
        rule=finding.rule.value,
        record=finding.record,
        evidence=finding.evidence[:300],
        actor=_actor(snapshot, finding),
    )


def _actor(snapshot: Snapshot, finding: Finding) -> str | None:
    decision = snapshot.decisions.get(finding.record.rpartition("/")[2])
    return decision.actor if decision is not None else None


def _by_process(findings: Iterable[Finding]) -> dict[str, list[Finding]]:
    found: dict[str, list[Finding]] = defaultdict(list)
    for finding in findings:
        found[finding.process_id].append(finding)
    return found


def _goes_on(findings: Iterable[Finding]) -> bool:
    """Whether another look may show what is to be repaired next."""
    return any(finding.repair not in (Repair.REPORT, Repair.WAIT, *HANDED_OVER) for finding in findings)


def _attribute(findings: Iterable[Finding], done: Mapping[Rule, int], repaired: Mapping[str, Counter[str]]) -> None:
    """Say by process what was repaired. A repair tells how many of a rule it changed and not which: where it is fewer
    than were found, the first ones have it."""
    left = Counter({rule.value: count for rule, count in done.items()})
    for finding in findings:
        rule = finding.rule.value
        if left[rule] > 0:
            left[rule] -= 1
            repaired[finding.process_id][rule] += 1


def _ended(
    result: OperationResult, findings: Sequence[Finding], repaired: Counter[str], process: Process | None
) -> OperationResult:
    if repaired:
        state, error = ResultState.DONE, None
    elif not findings:
        state, error = ResultState.NOTHING, None
    else:
        state, error = ResultState.NOTHING, f"left: {', '.join(dict.fromkeys(f.rule.value for f in findings))}"
    after = described(process) if process is not None else None
    return result.evolve(state=state, error=error, repaired=dict(repaired), after=after)
