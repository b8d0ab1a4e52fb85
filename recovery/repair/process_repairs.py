"""Repairs of processes: their starts, records and ends, and what operators are to see of those that broke.

Each is decided from what is read anew, and its write repeats that condition; see `store.lifecycle.graph_recovery`.

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
    """What can be done about a process as a whole."""

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
            Repair.FINISH_REDO: on_each(lambda key: carry_out(resources, key)),
            Repair.FINISH_REMOVAL: on_all(lambda ids: finish_removal(resources, ids)),
            Repair.TAKE_OFF_MARK: self._take_off_mark,
            Repair.COUNT_OVERDUE: self._count_overdue,
            Repair.BREAK_OVERDUE: self._break_overdue,
            Repair.LIST_AGAIN: on_each(lambda record: list_again(resources, record)),
            Repair.WRITE_MARKER: on_batch(lambda ids: mark(resources, ids)),
            Repair.REPORT: self._report,
        }

    def _stamp(self, _rule: Rule, findings: Sequence[Finding], _: Surroundings) -> Changed:
        ids, store = [f.record for f in findings], self._store
        lacking = store.task_deadlines.stamp(ids) + store.processes.stamp(ids) + store.graphs.stamp(ids)
        return of_count(ids, lacking + store.unreachable_deadlines.stamp(ids))

    def _register_start(self, _rule: Rule, findings: Sequence[Finding], around: Surroundings) -> Changed:
        return of_each([f.record for f in findings], lambda key: self._register(key, around))

    def _register(self, process_id: str, around: Surroundings) -> bool:
        # One at a time: with their arguments. Of a start that is not acknowledged nothing is run.
        process = self._store.processes.get_committed(process_id)
        return process is not None and register(self._resources, {process_id: around.now}, [process]) > 0

    def _finish_process(self, _rule: Rule, findings: Sequence[Finding], _: Surroundings) -> Changed:
        processes = self._store.processes.briefs(f.record for f in findings)
        over: list[str] = []

        def finish(process: Process) -> bool:
            ended = finish_process(self._resources, process.id, process.epoch)
            if ended is not None:
                over.append(process.id)
            return bool(ended)

        changed = of_each(processes.values(), finish, lambda process: process.id)
        self._store.clear_graph_deadlines(over)
        return changed

    def _restore(self, rule: Rule, findings: Sequence[Finding], around: Surroundings) -> Changed:
        """The parents' decisions applied again make what is missing; the start's is made from the process. What that
        does not bring back, since the parent's own records are lost, nobody can."""
        before, told = self._there(findings), self._told(findings)
        self._applying.apply(list(dict.fromkeys(f.decision.id for f in findings if f.decision is not None)))
        starts = dict.fromkeys(f.process_id for f in findings if f.decision is None)
        of_each(starts, lambda key: self._register(key, around))
        there = self._there(findings)
        lost = [f for f in told if not {(Task, f.record), (Decision, f.record)} <= there]
        return of_records(key for _, key in there - before) + self._break(rule, lost, around)

    def _told(self, findings: Sequence[Finding]) -> list[Finding]:
        """Those that a majority has all it takes for. The others could not be restored yet, and are not lost for
        that."""
        decisions = self._store.decisions.briefs(f.decision.id for f in findings if f.decision is not None)
        parents = {key for key, decision in decisions.items() if decision.state is DecisionState.FINISHED}
        starts = self._store.processes.committed_epochs({f.process_id for f in findings if f.decision is None})
        return [f for f in findings if (f.process_id in starts if f.decision is None else f.decision.id in parents)]

    def _there(self, findings: Sequence[Finding]) -> set[tuple[type, str]]:
        ids = [f.record for f in findings]
        tasks, decisions = self._store.tasks.present(ids), self._store.decisions.present(ids)
        return {*((Task, key) for key in tasks), *((Decision, key) for key in decisions)}

    def _break(self, rule: Rule, findings: Sequence[Finding], around: Surroundings) -> Changed:
        """Judged once more by records that were read while the graph stayed as it was, and noted in that version of
        the graph: what a task needs is written before the graph names it, so what is absent then is lost."""
        wanted, ids = {(f.record, f.repair) for f in findings}, list(dict.fromkeys(f.process_id for f in findings))
        versions = self._store.graphs.versions(ids)
        broken = Changed()
        for page in self._store.snapshot_pages(ids):
            still: list[tuple[Snapshot, Finding]] = []
            for snapshot in page:
                if snapshot.graph is not None and snapshot.graph.version == versions.get(snapshot.process_id):
                    found = judge_process(snapshot, around)
                    again = (one for one in found if one.rule is rule and (one.record, one.repair) in wanted)
                    still += [(snapshot, finding) for finding in islice(again, 1)]  # one is enough
            broken += of_each(still, lambda one: self._break_off(*one), lambda one: one[1].record)
        return broken

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
        # Listed even if another task has just broken it: with that one restarted it would be broken for this one.
        return break_off(self._resources, process, error, restarts=restarts)

    def _take_off_mark(self, _rule: Rule, findings: Sequence[Finding], _: Surroundings) -> Changed:
        ids = [f.record for f in findings]
        return of_count(ids, take_off_marks(self._resources, ids))

    def _report(self, rule: Rule, findings: Sequence[Finding], _: Surroundings) -> Changed:
        for finding in findings:
            log.warning("%s: %s: %s; nothing was changed", rule, finding.record, finding.evidence)
        return Changed()

    def _count_overdue(self, _rule: Rule, findings: Sequence[Finding], around: Surroundings) -> Changed:
        counted = Changed()
        for process_type, ids in self._by_type(findings).items():
            seconds = around.process_type(process_type).process_timeout
            late = self._store.processes.note_timeouts(ids, process_type, seconds)
            metrics.PROCESS_TIMEOUTS.labels(process_type).inc(late)
            counted += of_count(ids, late)
        return counted

    def _break_overdue(self, _rule: Rule, findings: Sequence[Finding], around: Surroundings) -> Changed:
        """Those that have a graph: of a broken process without one nobody would finish the start, or go on from what
        was decided. The rules on that come first; where they were not carried out, the next look breaks it. And none
        that is not late any more: it was set running again, or was done again, since it was judged."""
        by_life: dict[tuple[str, int | None], list[Process]] = defaultdict(list)
        running = [
            process
            for process in self._store.processes.briefs(f.record for f in findings).values()
            if process.state is ProcessState.RUNNING and is_late(process, around)
        ]
        lacking = self._store.graphs.absent(process.id for process in running)
        for process in running:
            if process.id not in lacking:
                by_life[process.type, process.reopened].append(process)
        broken = Changed()
        for key, some in by_life.items():
            broken += self._break_alike(key, some, around)
        return broken

    def _break_alike(
        self, alike: tuple[str, int | None], processes: Sequence[Process], around: Surroundings
    ) -> Changed:
        """List processes of a type that were set running as often, then break them: none is broken and not listed."""
        process_type, reopened = alike
        ids = [process.id for process in processes]
        seconds = around.process_type(process_type).process_timeout
        message = f"the process was not done within its process_timeout of {seconds:g} s"
        error = ErrorInfo(kind="ProcessTimeout", message=message, code=PROCESS_TIMEOUT.number, reason=UNKNOWN.name)
        for process in processes:
            list_interruption(self._resources, process, error, restarts=reopened or 0)
        marker = order_markers(self._resources, processes, error)
        late = self._store.processes.break_late(ids, process_type, seconds, error, reopened, marker)
        if late and marker is not None:
            batch_or_each(ids, lambda some: len(mark(self._resources, some)))
        if late < len(ids):
            remove_superseded(self._resources, ids, error)
            self._unlist_counted(ids, error)
        metrics.PROCESS_TIMEOUTS.labels(process_type).inc(late)
        count_ended(ProcessState.BROKEN, processes[:late])  # where somebody was first at some, which is hardly ever
        return of_count(ids, late)

    def _unlist_counted(self, process_ids: Sequence[str], error: ErrorInfo) -> None:
        """Forget that those are late whose time another scanner has counted: nobody breaks them for it in this life."""
        counted = {
            record_id(process.id, process.start_task): process.times_reopened
            for process in self._store.processes.committed_briefs(process_ids).values()
            if process.state is ProcessState.RUNNING and process.timed_out_at is not None
        }
        self._store.interruptions.remove_kind(counted.items(), error.kind)
        for record in counted:  # one that broke for its start task just then was not listed for that beside this
            list_again(self._resources, record)

    def _by_type(self, findings: Sequence[Finding]) -> dict[str, list[str]]:
        by_type: dict[str, list[str]] = defaultdict(list)
        for process in self._store.processes.briefs(f.record for f in findings).values():
            by_type[process.type].append(process.id)
        return by_type


_KINDS = {Rule.CYCLE: "Cycle", Rule.TASK_MISSING: "RecordsLost", Rule.DECISION_MISSING: "RecordsLost"}
