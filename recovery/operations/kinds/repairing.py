"""Repair: repair the findings of a check in the same way as the scanners.

When a repair is applied, each process is read and judged again, and repaired according to the new findings. Its result
shows what was repaired.

A process whose findings are all on single tasks is first judged from the decisions alone, as the Decision scanner does,
because reading a process whole is much slower. If these findings differ from the plan or could not all be repaired, the
process is read whole.
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
"""Repairs that hand the task over to a worker. No further repair of the task is needed."""
ROUNDS = 10
"""Maximum rounds of judging and repairing a process. A repair can reveal the next finding, for example when a graph is
rebuilt. A few rounds are normally enough."""
TOLD = 500
"""Maximum length of a result's text, in characters."""


class RepairAll(CheckAll):
    """Records what is wrong with processes, and repairs them when it is applied.

    It may run beside every other operation, because scanners make the same repairs at any time, and each process is
    judged again before its repair.
    """

    name = OperationKind.REPAIR
    page = step = 1000
    begins = False

    def failed(self, operation: Operation, result: OperationResult, error: str) -> OperationResult:  # noqa: ARG002
        return result.evolve(state=ResultState.ERROR, error=error)

    def together(self, operation: Operation, results: Sequence[OperationResult]) -> list[OperationResult]:
        repairer = Repairer(self.resources, self.outbox, f"operation {operation.id}")
        return _RepairRun(self.resources, repairer, results).run()


class _RepairRun:
    """One attempt to repair a batch of processes."""

    def __init__(self, resources: Resources, repairer: Repairer, results: Sequence[OperationResult]) -> None:
        self._resources, self._repairer, self._results = resources, repairer, results
        # Processes planned as damaged are read thoroughly. Otherwise the damage may be missed, and a rule that does not
        # know of it may draw a wrong conclusion.
        self._thorough = {result.process for result in results if Rule.RECORD_DAMAGED.value in result.rules}
        self._processes = dict[str, Process | None]()
        self._findings = dict[str, list[Finding]]()
        self._repaired = defaultdict[str, Counter[str]](Counter)
        self._postponed = defaultdict[str, dict[str, Later]](dict)
        """{process id: {record id of a task: when it may be requeued}}, for tasks that a requeue rate postponed."""

    def run(self) -> list[OperationResult]:
        """Repair the processes, and return each result in its final state."""
        process_ids = self._without_single_tasks()
        for round_number in range(ROUNDS):
            if not process_ids:
                break
            self._judge(process_ids)
            # No repair in the first round may mean that another worker has repaired the process, so a second round
            # follows.
            process_ids = [
                process_id
                for process_id in process_ids
                if _may_continue(self._open_findings(process_id)) and (self._repaired[process_id] or not round_number)
            ]
        return [self._ended(result) for result in self._results]

    def _without_single_tasks(self) -> list[str]:
        """Repair findings on single tasks, and return the ids of processes that must be read whole."""
        self._processes.update(self._resources.store.processes.briefs([result.process for result in self._results]))
        single_task_results = [
            result for result in self._results if of_single_tasks(result, self._processes.get(result.process))
        ]
        if not single_task_results:
            return [result.process for result in self._results]
        diagnosis = diagnose_tasks(self._resources, single_task_results)
        findings_by_process = by_process(diagnosis.findings)
        self._repair(diagnosis.findings, diagnosis.around)
        repairs = {
            process_id: [finding.repair for finding in process_findings]
            for process_id, process_findings in findings_by_process.items()
        }
        handled = {
            result.process: self._repaired[result.process].total() + len(self._postponed[result.process])
            for result in single_task_results
        }
        settled = {
            result.process for result in single_task_results if is_settled(result, repairs, handled[result.process])
        }
        self._findings.update((process_id, findings_by_process[process_id]) for process_id in settled)
        return [result.process for result in self._results if result.process not in settled]

    def _judge(self, process_ids: Sequence[str]) -> None:
        """Read these processes whole, judge and repair them."""
        for reading in readings(self._resources.store, process_ids, thorough=self._thorough):
            self._processes.update((snapshot.process_id, snapshot.process) for snapshot in reading.snapshots)
            diagnosis = diagnose(self._resources, reading)
            findings_by_process = by_process(diagnosis.findings)
            self._findings.update(
                (snapshot.process_id, findings_by_process.get(snapshot.process_id, []))
                for snapshot in reading.snapshots
            )
            self._repair(diagnosis.findings, diagnosis.around)

    def _repair(self, findings: Sequence[Finding], around: Surroundings) -> None:
        findings = [finding for finding in findings if finding.record not in self._postponed[finding.process_id]]
        if not findings:
            return
        repaired = self._repairer.repair(findings, around)
        for rule, changed in repaired.changed.items():
            for process_id, count in changed.items():
                self._repaired[process_id][rule.value] += count
        for later in repaired.postponed:
            for record in later.ids:
                self._postponed[split_record_id(record)[0]][record] = later

    def _open_findings(self, process_id: str) -> list[Finding]:
        """Return the last findings on a process, without tasks that are postponed."""
        return [
            finding
            for finding in self._findings.get(process_id, ())
            if finding.record not in self._postponed[process_id]
        ]

    def _ended(self, result: OperationResult) -> OperationResult:
        process, repaired = self._processes.get(result.process), self._repaired[result.process]
        notes = self._postponement_notes(result.process)
        if not repaired and (remaining := self._open_findings(result.process)):
            first_by_rule = {finding.rule: finding for finding in reversed(remaining)}
            notes.append(
                "left: " + "; ".join(f"{rule.value} ({finding.evidence})" for rule, finding in first_by_rule.items())
            )
        return result.evolve(
            state=ResultState.DONE if repaired else ResultState.NOTHING,
            error="; ".join(notes)[:TOLD] or None,
            repaired=dict(repaired),
            after=described(process) if process is not None else None,
        )

    def _postponement_notes(self, process_id: str) -> list[str]:
        """Describe how many tasks of which actors scanners will requeue later."""
        postponed = self._postponed[process_id].values()
        seconds = {later.actor: later.most for later in postponed}
        return [
            f"{count_of(count, 'task')} of {actor} postponed by its requeue_rate: scanners requeue them within "
            f"{seconds[actor]:.0f} s"
            for actor, count in Counter(later.actor for later in postponed).items()
        ]


def _may_continue(findings: Iterable[Finding]) -> bool:
    """Return whether another round may show what to repair next."""
    return any(finding.repair not in (Repair.REPORT, Repair.WAIT, *HANDED_OVER) for finding in findings)


def of_single_tasks(result: OperationResult, process: Process | None) -> bool:
    """Return whether all findings of a result are listed, all are on single tasks, and the process is running."""
    findings = result.findings
    return (
        process is not None
        and process.state is ProcessState.RUNNING
        and 0 < sum(result.counts.values()) == len(findings)
        and all(finding.rule in OF_SINGLE_TASKS and SEPARATOR in finding.record for finding in findings)
    )


def diagnose_tasks(resources: Resources, results: Sequence[OperationResult]) -> Diagnosis:
    """Diagnose the tasks that these results name."""
    stored = resources.store.ranges.decisions([finding.record for result in results for finding in result.findings])
    queues = {decision.actor for decision in stored.records if decision.state is DecisionState.QUEUED}
    state = look_around(resources, queues=queues)
    return Diagnosis([finding for decision in stored.records if (finding := judge_decision(decision, state))], state)


def is_settled(result: OperationResult, diagnosed: Mapping[str, Sequence[Repair]], dealt_with: int) -> bool:
    """Return whether all findings of a result were found again and are handled: a worker has the task, or it is
    postponed."""
    repairs = diagnosed.get(result.process, ())
    return len(repairs) == dealt_with == len(result.findings) and all(repair in HANDED_OVER for repair in repairs)
