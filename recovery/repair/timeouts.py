"""Repairs of time-outs: tasks and processes whose time as a whole is over.

Metrics: recovery_process_timeouts by type, recovery_processes_ended.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from recovery import metrics
from recovery.engine import Resources, batch_or_each, list_again
from recovery.engine.end.breaking import list_interruption, remove_superseded
from recovery.engine.end.marking import mark, order_markers
from recovery.metrics import counting
from recovery.records import ErrorInfo, Process, ProcessState
from recovery.records.ids import new_pass, record_id
from recovery.repair.changed import Changed, of_count, of_records
from recovery.repair.ended_tasks import Applying
from recovery.retry.codes import PROCESS_TIMEOUT, TASK_TIMEOUT
from recovery.retry.reasons import UNKNOWN
from recovery.rules import Finding, Repair, Rule, Surroundings, is_late


class TimeoutRepairs:
    """What can be done about what takes too long."""

    def __init__(self, resources: Resources, applying: Applying) -> None:
        self._resources, self._store = resources, resources.store
        self._applying = applying
        self.actions = {
            Repair.END_OVERDUE: self._end_overdue,
            Repair.COUNT_OVERDUE: self._count,
            Repair.BREAK_OVERDUE: self._break,
        }

    def _end_overdue(self, _rule: Rule, findings: Sequence[Finding], around: Surroundings) -> Changed:
        by_actor: dict[str, list[str]] = defaultdict(list)
        for finding in findings:
            assert finding.decision is not None
            by_actor[finding.decision.actor].append(finding.record)
        failed: list[str] = []
        for actor, ids in by_actor.items():
            limit = around.actor(actor).task_limit
            if limit is None:
                continue
            message = f"{actor} was not done within its task_timeout of {limit.seconds:g} s"
            error = ErrorInfo(
                kind="TaskTimeout", message=message, code=TASK_TIMEOUT.number, reason=UNKNOWN.name, actor=actor
            )
            failed += self._store.requeues.out_of_time(ids, actor, limit, error, new_pass())
        self._applying.apply(failed)
        return of_records(failed)

    def _count(self, _rule: Rule, findings: Sequence[Finding], around: Surroundings) -> Changed:
        counted = Changed()
        for process_type, ids in self._by_type(findings).items():
            seconds = around.process_type(process_type).process_timeout
            late = self._store.processes.note_timeouts(ids, process_type, seconds)
            metrics.PROCESS_TIMEOUTS.labels(process_type).inc(late)
            counted += of_count(ids, late)
        return counted

    def _break(self, _rule: Rule, findings: Sequence[Finding], around: Surroundings) -> Changed:
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
        counting.ended(ProcessState.BROKEN, processes[:late])  # where somebody was first at some, which is hardly ever
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
