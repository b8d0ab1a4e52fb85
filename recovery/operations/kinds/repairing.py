"""Repair: what a check finds is repaired as the scanners do it.

Each process is read and judged once more, what it needs now is done, and its result says what was done. What was found
on single tasks alone is judged again as the Decision scanner does it, of the decisions alone: to read a process whole
takes ten times as long, and what a lost message or a time-out needs is in the decision. Whatever else is wrong with
such a process, or was not repaired so, is for a look at the whole.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from recovery.engine import Resources
from recovery.operations.kinds.base import described
from recovery.operations.kinds.checking import CheckAll, by_process
from recovery.records import (
    DecisionState,
    Operation,
    OperationKind,
    OperationResult,
    Process,
    ProcessState,
    ResultState,
)
from recovery.records.ids import SEPARATOR, split_record_id
from recovery.repair import Diagnosis, Later, Repairer, diagnose, look_around, readings
from recovery.rules import OF_SINGLE_TASKS, Finding, Repair, Rule, Surroundings, judge_decision
from recovery.wording import count as count_of

HANDED_OVER = {Repair.REQUEUE, Repair.REQUEUE_MESSAGE, Repair.ENQUEUE_DUE}
"""Repairs after which a worker has the task: nothing more is to be seen of them."""
ROUNDS = 10
"""A repair may show what is to be repaired next, as a graph that is made anew does. Each process takes a few steps."""
TOLD = 500
"""Characters that are told of one process."""


class RepairAll(CheckAll):
    """Finds the same, and repairs it when it is applied. Whatever became of a process since it was planned: it is read
    and judged once more, and what it needs now is done. Scanners do so at any time, so it runs beside everything."""

    name = OperationKind.REPAIR
    page = step = 1000
    begins = False

    def failed(self, operation: Operation, result: OperationResult, error: str) -> OperationResult:  # noqa: ARG002
        return result.evolve(state=ResultState.ERROR, error=error)

    def together(self, operation: Operation, results: Sequence[OperationResult]) -> list[OperationResult]:
        repairer = Repairer(self.resources, self.outbox, f"operation {operation.id}")
        return _RepairRun(self.resources, repairer, results).run()


class _RepairRun:
    """Some processes while they are repaired."""

    def __init__(self, resources: Resources, repairer: Repairer, results: Sequence[OperationResult]) -> None:
        self._resources, self._repairer, self._results = resources, repairer, results
        # What was found damaged may be so where only a thorough look finds it, and where a rule that does not know of
        # that would conclude something else.
        self._thorough = {one.process for one in results if Rule.RECORD_DAMAGED.value in one.rules}
        self._processes = dict[str, Process | None]()
        self._found = dict[str, list[Finding]]()
        self._repaired = defaultdict[str, Counter[str]](Counter)
        self._postponed = defaultdict[str, dict[str, Later]](dict)
        """{process: {record of a task: what its pace said}}."""

    def run(self) -> list[OperationResult]:
        """Repair them; each as it ended."""
        wanted = self._without_single_tasks()
        for turn in range(ROUNDS):
            if not wanted:
                break
            self._judge(wanted)
            # Where nothing was changed at first, somebody else may have been before us.
            wanted = [key for key in wanted if _goes_on(self._left(key)) and (self._repaired[key] or not turn)]
        return [self._ended(result) for result in self._results]

    def _without_single_tasks(self) -> list[str]:
        """Repair what is of single tasks; the processes that are to be looked at whole."""
        self._processes.update(self._resources.store.processes.briefs([one.process for one in self._results]))
        light = [one for one in self._results if of_single_tasks(one, self._processes.get(one.process))]
        if not light:
            return [one.process for one in self._results]
        diagnosis = diagnose_tasks(self._resources, light)
        found = by_process(diagnosis.findings)
        self._repair(diagnosis.findings, diagnosis.around)
        repairs = {key: [one.repair for one in some] for key, some in found.items()}
        done = {one.process: self._repaired[one.process].total() + len(self._postponed[one.process]) for one in light}
        settled = {one.process for one in light if is_settled(one, repairs, done[one.process])}
        self._found.update((key, found[key]) for key in settled)
        return [one.process for one in self._results if one.process not in settled]

    def _judge(self, process_ids: Sequence[str]) -> None:
        """Look at what is wrong with these now, and repair it."""
        for reading in readings(self._resources.store, process_ids, thorough=self._thorough):
            self._processes.update((snapshot.process_id, snapshot.process) for snapshot in reading.snapshots)
            diagnosis = diagnose(self._resources, reading)
            found = by_process(diagnosis.findings)
            self._found.update((one.process_id, found.get(one.process_id, [])) for one in reading.snapshots)
            self._repair(diagnosis.findings, diagnosis.around)

    def _repair(self, findings: Sequence[Finding], around: Surroundings) -> None:
        findings = [one for one in findings if one.record not in self._postponed[one.process_id]]
        if not findings:
            return
        repaired = self._repairer.repair(findings, around)
        for rule, changed in repaired.changed.items():
            for process_id, count in changed.items():
                self._repaired[process_id][rule.value] += count
        for later in repaired.postponed:
            for record in later.ids:
                self._postponed[split_record_id(record)[0]][record] = later

    def _left(self, process_id: str) -> list[Finding]:
        """What was found last, but for tasks that have their turn later."""
        return [one for one in self._found.get(process_id, ()) if one.record not in self._postponed[process_id]]

    def _ended(self, result: OperationResult) -> OperationResult:
        process, repaired = self._processes.get(result.process), self._repaired[result.process]
        told = self._paced(result.process)
        if not repaired and (left := self._left(result.process)):
            first = {one.rule: one for one in reversed(left)}
            told.append("left: " + "; ".join(f"{rule.value} ({one.evidence})" for rule, one in first.items()))
        return result.evolve(
            state=ResultState.DONE if repaired else ResultState.NOTHING,
            error="; ".join(told)[:TOLD] or None,
            repaired=dict(repaired),
            after=described(process) if process is not None else None,
        )

    def _paced(self, process_id: str) -> list[str]:
        """In words, of which actors tasks are to be requeued later, by scanners."""
        of_it = self._postponed[process_id].values()
        seconds = {later.actor: later.most for later in of_it}
        return [
            f"{count_of(count, 'task')} of {actor} postponed by its requeue_rate: scanners requeue them within "
            f"{seconds[actor]:.0f} s"
            for actor, count in Counter(later.actor for later in of_it).items()
        ]


def _goes_on(findings: Iterable[Finding]) -> bool:
    """Whether another look may show what is to be repaired next."""
    return any(finding.repair not in (Repair.REPORT, Repair.WAIT, *HANDED_OVER) for finding in findings)


def of_single_tasks(result: OperationResult, process: Process | None) -> bool:
    """Whether a result has nothing but findings on single tasks, all of which it tells, of a process that goes on."""
    found = result.findings
    return (
        process is not None
        and process.state is ProcessState.RUNNING
        and 0 < sum(result.counts.values()) == len(found)
        and all(one.rule in OF_SINGLE_TASKS and SEPARATOR in one.record for one in found)
    )


def diagnose_tasks(resources: Resources, results: Sequence[OperationResult]) -> Diagnosis:
    """What is wrong now with the tasks that these results name."""
    read = resources.store.ranges.decisions([one.record for result in results for one in result.findings])
    queues = {one.actor for one in read.records if one.state is DecisionState.QUEUED}
    around = look_around(resources, queues=queues)
    return Diagnosis([found for one in read.records if (found := judge_decision(one, around))], around)


def is_settled(result: OperationResult, diagnosed: Mapping[str, Sequence[Repair]], dealt_with: int) -> bool:
    """Whether all that a result names was found again, and handed over to a worker, now or by its pace later."""
    again = diagnosed.get(result.process, ())
    return len(again) == dealt_with == len(result.findings) and all(one in HANDED_OVER for one in again)
