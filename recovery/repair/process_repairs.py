"""Repairs of processes: their starts, missing records and ends, and what operators see of broken processes.

Each repair reads the records again, and its update repeats the condition that it was decided by; see
`store.lifecycle.graph_recovery`.

Metrics: recovery_process_timeouts by type, recovery_processes_ended.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Sequence
from itertools import islice

from recovery import metrics
from recovery.engine import Resources, batch_or_each, break_off, enqueue, finish_process, list_again, register
from recovery.engine.end.abort import finish_abort
from recovery.engine.end.breaking import list_interruption, mark, order_markers, remove_superseded
from recovery.engine.end.fencing import finish_removal, take_off_marks
from recovery.engine.end.redo import carry_out
from recovery.engine.rejections import note_graph_changed
from recovery.metrics.registry import count_ended
from recovery.records import Decision, DecisionState, ErrorInfo, Process, ProcessState, Task
from recovery.records.ids import record_id, split_record_id
from recovery.repair.changed import Action, Changed, of_count, of_each, of_records, on_all, on_batch, on_each
from recovery.repair.ended_tasks import Applying
from recovery.retry.codes import PROCESS_TIMEOUT
from recovery.retry.reasons import UNKNOWN
from recovery.rules import Finding, Repair, Rule, Snapshot, Surroundings, is_late, judge_process

log = logging.getLogger(__name__)


class ProcessRepairs:
    """Repairs of processes as a whole."""

    def __init__(self, resources: Resources, applying: Applying) -> None:
        self._resources, self._store = resources, resources.store
        self._applying = applying
        self.actions: dict[Repair, Action] = {
            Repair.STAMP: self._stamp,
            Repair.ENQUEUE_READY: on_all(lambda ids: enqueue(resources, ids)),
            Repair.REGISTER_START: self._register_start,
            Repair.FINISH_PROCESS: self._finish_process,
            Repair.RESTORE: self._restore,
            Repair.BREAK: self._break,
            Repair.FINISH_ABORT: on_all(lambda ids: finish_abort(resources, ids)),
            Repair.FINISH_REDO: on_each(lambda process_id: carry_out(resources, process_id)),
            Repair.FINISH_REMOVAL: on_all(lambda ids: finish_removal(resources, ids)),
            Repair.TAKE_OFF_MARK: self._take_off_mark,
            Repair.COUNT_OVERDUE: self._count_overdue,
            Repair.BREAK_OVERDUE: self._break_overdue,
            Repair.LIST_AGAIN: on_each(lambda record: list_again(resources, record)),
            Repair.WRITE_MARKER: on_batch(lambda ids: mark(resources, ids)),
            Repair.REPORT: self._report,
        }

    def _stamp(self, _rule: Rule, findings: Sequence[Finding], _: Surroundings) -> Changed:
        ids, store = [finding.record for finding in findings], self._store
        lacking = store.task_deadlines.stamp(ids) + store.processes.stamp(ids) + store.graphs.stamp(ids)
        return of_count(ids, lacking + store.unreachable_deadlines.stamp(ids))

    def _register_start(self, _rule: Rule, findings: Sequence[Finding], surroundings: Surroundings) -> Changed:
        return of_each(
            [finding.record for finding in findings], lambda process_id: self._register(process_id, surroundings)
        )

    def _register(self, process_id: str, surroundings: Surroundings) -> bool:
        # Processes are read one at a time because of their arguments. A start must be acknowledged by a majority before
        # its task runs.
        process = self._store.processes.get_committed(process_id)
        return process is not None and register(self._resources, {process_id: surroundings.now}, [process]) > 0

    def _finish_process(self, _rule: Rule, findings: Sequence[Finding], _: Surroundings) -> Changed:
        processes = self._store.processes.briefs(finding.record for finding in findings)
        finished_ids: list[str] = []

        def finish(process: Process) -> bool:
            ended = finish_process(self._resources, process.id, process.epoch)
            if ended is not None:
                finished_ids.append(process.id)
            return bool(ended)

        changed = of_each(processes.values(), finish, lambda process: process.id)
        self._store.clear_graph_deadlines(finished_ids)
        return changed

    def _restore(self, rule: Rule, findings: Sequence[Finding], surroundings: Surroundings) -> Changed:
        """Restore missing records by applying the parents' decisions again.

        Records of the start task are restored from the process. A process is broken if its records stay missing because
        the parent's records are lost too.
        """
        present_before, restorable = self._present(findings), self._restorable(findings)
        self._applying.apply(
            list(dict.fromkeys(finding.decision.id for finding in findings if finding.decision is not None))
        )
        starts = dict.fromkeys(finding.process_id for finding in findings if finding.decision is None)
        of_each(starts, lambda process_id: self._register(process_id, surroundings))
        present_after = self._present(findings)
        unrestored = [
            finding
            for finding in restorable
            if not {(Task, finding.record), (Decision, finding.record)} <= present_after
        ]
        return of_records(key for _, key in present_after - present_before) + self._break(
            rule, unrestored, surroundings
        )

    def _restorable(self, findings: Sequence[Finding]) -> list[Finding]:
        """Return the findings whose records could be restored, because a majority has what they are restored from.

        The other records can't be restored yet, so they do not count as lost.
        """
        decisions = self._store.decisions.briefs(
            finding.decision.id for finding in findings if finding.decision is not None
        )
        parents = {
            decision_id for decision_id, decision in decisions.items() if decision.state is DecisionState.FINISHED
        }
        starts = self._store.processes.committed_epochs(
            {finding.process_id for finding in findings if finding.decision is None}
        )
        return [
            finding
            for finding in findings
            if (finding.process_id in starts if finding.decision is None else finding.decision.id in parents)
        ]

    def _present(self, findings: Sequence[Finding]) -> set[tuple[type, str]]:
        ids = [finding.record for finding in findings]
        tasks, decisions = self._store.tasks.present(ids), self._store.decisions.present(ids)
        return {*((Task, key) for key in tasks), *((Decision, key) for key in decisions)}

    def _break(self, rule: Rule, findings: Sequence[Finding], surroundings: Surroundings) -> Changed:
        """Judge the processes again, and break those that still have the finding.

        A process is skipped if its graph's version changed while its records were read or before the failure was
        written. Because a task's records are written before the graph names the task, a record that is missing from an
        unchanged graph is lost.
        """
        expected, ids = (
            {(finding.record, finding.repair) for finding in findings},
            list(dict.fromkeys(finding.process_id for finding in findings)),
        )
        versions = self._store.graphs.versions(ids)
        changed = Changed()
        for page in self._store.snapshot_pages(ids):
            confirmed: list[tuple[Snapshot, Finding]] = []
            for snapshot in page:
                if snapshot.graph is not None and snapshot.graph.version == versions.get(snapshot.process_id):
                    findings_now = judge_process(snapshot, surroundings)
                    repeated = (
                        finding_now
                        for finding_now in findings_now
                        if finding_now.rule is rule and (finding_now.record, finding_now.repair) in expected
                    )
                    confirmed += [(snapshot, finding) for finding in islice(repeated, 1)]  # one is enough
            changed += of_each(confirmed, lambda item: self._break_off(*item), lambda item: item[1].record)
        return changed

    def _break_off(self, snapshot: Snapshot, finding: Finding) -> bool:
        process, graph, rule, task = snapshot.process, snapshot.graph, finding.rule, split_record_id(finding.record)[1]
        if process is None or graph is None:
            return False
        if not self._store.graphs.fail_seen(graph, task):
            note_graph_changed(self._resources, graph)
            return False
        decision = snapshot.decisions.get(task)
        restarts = max(process.times_reopened, (decision.restarts if decision is not None else None) or 0)
        error = ErrorInfo(kind=_KINDS.get(rule, rule.value), message=f"{rule}: {finding.evidence}", task=task)
        # List this failure even if another task has just broken the process: once that task is restarted, the process
        # is broken because of this one.
        return break_off(self._resources, process, error, restarts=restarts)

    def _take_off_mark(self, _rule: Rule, findings: Sequence[Finding], _: Surroundings) -> Changed:
        ids = [finding.record for finding in findings]
        return of_count(ids, take_off_marks(self._resources, ids))

    def _report(self, rule: Rule, findings: Sequence[Finding], _: Surroundings) -> Changed:
        for finding in findings:
            log.warning("%s: %s: %s; nothing was changed", rule, finding.record, finding.evidence)
        return Changed()

    def _count_overdue(self, _rule: Rule, findings: Sequence[Finding], surroundings: Surroundings) -> Changed:
        counted = Changed()
        for process_type, ids in self._by_type(findings).items():
            seconds = surroundings.process_type(process_type).process_timeout
            count = self._store.processes.note_timeouts(ids, process_type, seconds)
            metrics.PROCESS_TIMEOUTS.labels(process_type).inc(count)
            counted += of_count(ids, count)
        return counted

    def _break_overdue(self, _rule: Rule, findings: Sequence[Finding], surroundings: Surroundings) -> Changed:
        """Break running processes that are later than their process_timeout.

        A process without a graph is skipped, because other rules first have to complete its start; the next scan breaks
        it. A process that was reopened or redone since it was judged is not late any more and is skipped.
        """
        by_life: dict[tuple[str, int | None], list[Process]] = defaultdict(list)
        running = [
            process
            for process in self._store.processes.briefs(finding.record for finding in findings).values()
            if process.state is ProcessState.RUNNING and is_late(process, surroundings)
        ]
        without_graph = self._store.graphs.absent(process.id for process in running)
        for process in running:
            if process.id not in without_graph:
                by_life[process.type, process.reopened].append(process)
        changed = Changed()
        for key, alike in by_life.items():
            changed += self._break_alike(key, alike, surroundings)
        return changed

    def _break_alike(
        self, type_and_reopened: tuple[str, int | None], processes: Sequence[Process], surroundings: Surroundings
    ) -> Changed:
        """Break processes of one type with the same `reopened`.

        They are listed first, so that no broken process is unlisted.
        """
        process_type, reopened = type_and_reopened
        ids = [process.id for process in processes]
        seconds = surroundings.process_type(process_type).process_timeout
        message = f"the process was not done within its process_timeout of {seconds:g} s"
        error = ErrorInfo(kind="ProcessTimeout", message=message, code=PROCESS_TIMEOUT.number, reason=UNKNOWN.name)
        for process in processes:
            list_interruption(self._resources, process, error, restarts=reopened or 0)
        marker = order_markers(self._resources, processes, error)
        broken_count = self._store.processes.break_late(ids, process_type, seconds, error, reopened, marker)
        if broken_count and marker is not None:
            batch_or_each(ids, lambda process_ids: len(mark(self._resources, process_ids)))
        if broken_count < len(ids):
            remove_superseded(self._resources, ids, error)
            self._unlist_counted(ids, error)
        metrics.PROCESS_TIMEOUTS.labels(process_type).inc(broken_count)
        # `break_late` returns only a count, so the first ones are credited.
        count_ended(ProcessState.BROKEN, processes[:broken_count])
        return of_count(ids, broken_count)

    def _unlist_counted(self, process_ids: Sequence[str], error: ErrorInfo) -> None:
        """Remove processes from the list that another scanner has counted as late.

        Such processes are not broken for their lateness in this life.
        """
        counted = {
            record_id(process.id, process.start_task): process.times_reopened
            for process in self._store.processes.committed_briefs(process_ids).values()
            if process.state is ProcessState.RUNNING and process.timed_out_at is not None
        }
        self._store.interruptions.remove_kind(counted.items(), error.kind)
        for record in counted:  # its start task may just have failed, without being listed for that
            list_again(self._resources, record)

    def _by_type(self, findings: Sequence[Finding]) -> dict[str, list[str]]:
        by_type: dict[str, list[str]] = defaultdict(list)
        for process in self._store.processes.briefs(finding.record for finding in findings).values():
            by_type[process.type].append(process.id)
        return by_type


_KINDS = {Rule.CYCLE: "Cycle", Rule.TASK_MISSING: "RecordsLost", Rule.DECISION_MISSING: "RecordsLost"}
