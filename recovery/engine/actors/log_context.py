"""`LogContext`, a logging filter that adds the attempt that runs to each log record.

Add it to a handler, not to a logger: the filters of a logger do not see the records of its child loggers.
"""

from __future__ import annotations

import logging

from recovery import tracing
from recovery.engine.actors.context import attempted, running

_FIELDS = ("recovery_process", "recovery_task", "recovery_actor", "recovery_attempt", "recovery")
_OF_TRACES = ("recovery_trace", "recovery_span")


class LogContext(logging.Filter):
    """Adds the running attempt to each log record: its process, task, actor and trace. It lets all records pass.

    It sets these attributes of the record. An attribute is an empty text if its value is not known.

        recovery_process    id of the process
        recovery_task       id of the task within its process
        recovery_actor      name of the actor
        recovery_attempt    number of the attempt, 1 for the first attempt of a task
        recovery            prefix for lines that the actor's function logs: `pack 01a2…/2d6k… attempt 2: `
        recovery_trace      id of the OpenTelemetry trace, hexadecimal
        recovery_span       id of the OpenTelemetry span, hexadecimal

    Records of threads that an actor starts have them if the threads run in a copy of the actor's `contextvars`.

    Example:
        handler.addFilter(LogContext())
        handler.setFormatter(logging.Formatter("%(levelname)s %(recovery)s%(message)s"))
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Set the attributes, and return True. Attributes that are set already stay as they are."""
        if hasattr(record, "recovery"):
            return True  # it was set before the record went through a queue
        attempt = running()
        decision = attempt.decision if attempt is not None else attempted()
        if decision is None:
            fields: tuple[object, ...] = ("", "", "", "", "")
        else:
            prefix = f"{decision.actor} {decision.id} attempt {decision.attempts}: " if attempt is not None else ""
            fields = (decision.process_id, decision.task_id, decision.actor, decision.attempts, prefix)
        trace = tracing.ids() or (
            (decision.trace.trace_id, "") if decision is not None and decision.trace is not None else ("", "")
        )
        for name, value in zip((*_FIELDS, *_OF_TRACES), (*fields, *trace), strict=True):
            record.__dict__.setdefault(name, value)  # the caller may have set it with `extra`
        return True
