"""Restart of what failed: the interrupted tasks of broken processes are queued again."""

from __future__ import annotations

from collections.abc import Sequence

from recovery.engine.operations.restart import restart
from recovery.operations.kinds.base import Kind, Planned, ended, plan_each
from recovery.records import Operation, OperationResult, Process, ProcessState, ResultState


class Restart(Kind):
    """Restarts the failed tasks of broken processes."""

    def plan(self, operation: Operation, process_ids: Sequence[str]) -> Planned:
        def judge(process: Process) -> str | None:
            if process.state is not ProcessState.BROKEN:
                return None
            task = process.error.task if process.error is not None else None
            return f"restart what failed{f', {task} among it' if task else ''}"

        return plan_each(self.resources, operation, process_ids, judge)

    def do(self, operation: Operation, result: OperationResult, process: Process) -> OperationResult:  # noqa: ARG002
        restart(self.resources, process.id)
        now = self.resources.store.processes.briefs([process.id]).get(process.id)
        return ended(result, ResultState.DONE, now)

    def is_done(self, operation: Operation, result: OperationResult, process: Process) -> bool:  # noqa: ARG002
        return (process.reopened or 0) > int(result.before.rpartition("/")[2])
