"""Restart of what failed: the interrupted tasks of broken processes are queued again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from recovery.engine.operators.restart_many import restart_many
from recovery.operations.kinds.base import Kind, Planned, plan_each
from recovery.records import Operation, OperationResult, Process, ProcessState


class Restart(Kind):
    """Restarts the failed tasks of broken processes."""

    none = "none of them is broken"
    undone = "nothing of it can be restarted: its records are lost; abort it, and start another"

    def plan(self, operation: Operation, process_ids: Sequence[str]) -> Planned:
        def judge(process: Process) -> str | None:
            if process.state is not ProcessState.BROKEN:
                return None
            task = process.error.task if process.error is not None else None
            return f"restart what failed{f', {task} among it' if task else ''}"

        return plan_each(self.resources, operation, process_ids, judge)

    def do(self, operation: Operation, seen: Sequence[Process]) -> Mapping[str, str]:  # noqa: ARG002
        restart_many(self.resources, seen)
        return {}

    def is_done(self, operation: Operation, result: OperationResult, process: Process) -> bool:  # noqa: ARG002
        return process.times_reopened > int(result.before.rpartition("/")[2])
