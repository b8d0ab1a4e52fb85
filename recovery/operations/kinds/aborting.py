"""Abort: end running and broken processes without a result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from recovery.engine.end.abort import abort_as_seen
from recovery.limits import REASON_LENGTH
from recovery.operations.kinds.base import Kind, Planned, plan_each
from recovery.records import UNENDED_PROCESSES, Operation, OperationKind, OperationResult, Process, ProcessState


class Abort(Kind):
    """Aborts running and broken processes. The plan leaves out processes that have ended."""

    name = OperationKind.ABORT
    none = "each has finished or is aborted already"

    def plan(self, operation: Operation, process_ids: Sequence[str]) -> Planned:
        return plan_each(
            self.resources,
            operation,
            process_ids,
            lambda process: "abort" if process.state in UNENDED_PROCESSES else None,
        )

    def do(self, operation: Operation, seen: Sequence[Process]) -> Mapping[str, str]:
        abort_as_seen(self.resources, seen, self.told(operation))
        return {}

    def is_done(self, operation: Operation, result: OperationResult, process: Process) -> bool:  # noqa: ARG002
        reason = process.error.message if process.error is not None else ""
        return process.state is ProcessState.ABORTED and reason == self.told(operation)[:REASON_LENGTH]
