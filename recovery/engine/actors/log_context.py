"""What runs, in each line that is logged by it: `LogContext`, a filter for handlers.

It belongs on a handler and not on a logger: a logger's own filters don't see what the loggers below it hand up.
"""

from __future__ import annotations

import logging

from recovery import tracing
from recovery.engine.actors.context import attempted, running

_FIELDS = ("recovery_process", "recovery_task", "recovery_actor", "recovery_attempt", "recovery")
_OF_TRACES = ("recovery_trace", "recovery_span")


class LogContext(logging.Filter):
    """Adds to each log record what the attempt that logged it runs; lets all records pass.

        handler.addFilter(LogContext())
        handler.setFormatter(logging.Formatter("%(levelname)s %(recovery)s%(message)s"))

    `recovery_process`, `recovery_task`, `recovery_actor`: the ids and the name. `recovery_attempt`: 1 for a task's
    first one. `recovery`: all of it with a colon, `pack 01a2…/2d6kojyo… attempt 2: `, in a line that the actor's
    function logged. `recovery_trace`, `recovery_span`: ids of the OpenTelemetry trace that this is in, hexadecimal.
    Each is empty where nothing is known.

    Lines of threads that an actor starts have it if they run in a copy of its `contextvars`.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        if hasattr(record, "recovery"):
            return True  # it went through a queue: whoever put it there knew
        attempt = running()
        one = attempt.decision if attempt is not None else attempted()
        if one is None:
            fields: tuple[object, ...] = ("", "", "", "", "")
        else:
            prefix = f"{one.actor} {one.id} attempt {one.attempts}: " if attempt is not None else ""
            fields = (one.process_id, one.task_id, one.actor, one.attempts, prefix)
        trace = tracing.ids() or ((one.trace.trace_id, "") if one is not None and one.trace is not None else ("", ""))
        for name, value in zip((*_FIELDS, *_OF_TRACES), (*fields, *trace), strict=True):
            record.__dict__.setdefault(name, value)  # who logged it may have said so by `extra`
        return True
