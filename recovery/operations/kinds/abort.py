"""Abort: processes that run or are broken end without a result."""

from __future__ import annotations

from collections.abc import Sequence

from recovery.engine.lifecycle.abort import abort
from recovery.operations.kinds.base import Kind, Planned, described, ended, plan_each
from recovery.records import Operation, OperationResult, Process, ProcessState, ResultState

GOES_ON = (ProcessState.RUNNING, ProcessState.BROKEN)


class Abort(Kind):
    """Aborts what runs or is broken; what has ended is not in the plan."""

    def plan(self, operation: Operation, process_ids: Sequence[str]) -> Planned:
        return plan_each(
            self.resources, operation, process_ids, lambda process: "abort" if process.state in GOES_ON else None
        )

    def apply(self, operation: Operation, results: Sequence[OperationResult]) -> list[OperationResult]:
        """As a batch: each of those that are as they were planned."""
        seen = self.resources.store.processes.briefs([result.process for result in results])
        ours = [r.process for r in results if r.process in seen and described(seen[r.process]) == r.before]
        if ours:
            abort(self.resources, ours, self.told(operation))
        now = self.resources.store.processes.briefs(ours)
        return [
            ended(result, ResultState.DONE, now[result.process])
            if result.process in now and now[result.process].state is ProcessState.ABORTED
            else self._guarded(operation, result, seen.get(result.process))
            for result in results
        ]

    def do(self, operation: Operation, result: OperationResult, process: Process) -> OperationResult:  # noqa: ARG002
        now = self.resources.store.processes.briefs([process.id]).get(process.id)
        return ended(result, ResultState.CHANGED, now, "it ended just then")

    def is_done(self, operation: Operation, result: OperationResult, process: Process) -> bool:  # noqa: ARG002
        said = process.error.message if process.error is not None else ""
        return process.state is ProcessState.ABORTED and said == self.told(operation)[: len(said)]
