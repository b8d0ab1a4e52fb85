"""Collect: processes that are over, and that nobody would look at any more, are removed with all of their records.

Nothing that is alive goes, nothing that is broken, nothing whose end somebody may still ask for, and nothing that a
schedule has not accounted for.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from recovery.engine.isolation import in_a_line, is_of_servers
from recovery.engine.lifecycle.removal import remove
from recovery.operations.export import append
from recovery.operations.kinds.base import Kind, Planned, described, ended, plan_each
from recovery.records import Operation, OperationResult, Process, ProcessState, ResultState

OVER = (ProcessState.FINISHED, ProcessState.ABORTED)
LATELY = timedelta(hours=1)
"""Whoever started a process asks for its result within this time, or has to keep it from being collected."""


class Collect(Kind):
    """Removes what is over."""

    def plan(self, operation: Operation, process_ids: Sequence[str]) -> Planned:
        store = self.resources.store
        now, awaited = store.now(), store.schedules.awaited()

        def judge(process: Process) -> str | None:
            return "remove" if _is_old(process, now) and process.id not in awaited else None

        return plan_each(self.resources, operation, process_ids, judge)

    def apply(self, operation: Operation, results: Sequence[OperationResult]) -> list[OperationResult]:
        """As a batch: written to the export first, if there is to be one, then removed."""
        seen = self.resources.store.processes.briefs([result.process for result in results])
        awaited = self.resources.store.schedules.awaited()
        ours = [
            seen[one.process]
            for one in results
            if one.process in seen and described(seen[one.process]) == one.before and one.process not in awaited
        ]
        try:
            # What is being removed already was written before that, and is not whole any more.
            whole = [process.id for process in ours if not process.removing]
            if operation.export is not None and whole:
                append(self.resources, operation, whole)
            gone = remove(self.resources, ours)
        except Exception as error:
            if is_of_servers(error):
                raise
            return [ended(one, ResultState.ERROR, seen.get(one.process), in_a_line(error)) for one in results]
        return [_ended(one, seen.get(one.process), gone) for one in results]


def _is_old(process: Process, now: datetime) -> bool:
    at_rest = process.recovery_time is None and not process.redo and not process.marker_due
    return process.state in OVER and at_rest and process.ended_at is not None and process.ended_at < now - LATELY


def _ended(result: OperationResult, process: Process | None, gone: set[str]) -> OperationResult:
    if result.process in gone or (process is None and result.begun):
        return ended(result, ResultState.DONE, None)
    if process is None:
        return ended(result, ResultState.CHANGED, None, "somebody else removed it")
    return ended(result, ResultState.CHANGED, process, "it is no longer as it was planned, or something of it is live")
