"""What runs, in each line that is logged by it: `LogContext`, a filter for handlers.

It belongs on a handler and not on a logger: a logger's own filters don't see what the loggers below it hand up.
"""

from __future__ import annotations

import logging

from recovery.engine.actors.context import running


class LogContext(logging.Filter):
    """Adds to each log record what the attempt that logged it runs; lets all records pass.

        handler.addFilter(LogContext())
        handler.setFormatter(logging.Formatter("%(levelname)s %(recovery)s%(message)s"))

    `recovery_process`, `recovery_task`, `recovery_actor`: the ids and the name. `recovery_attempt`: 1 for a task's
    first one. `recovery`: all of it with a colon, `pack 01a2…/2d6kojyo… attempt 2: `. Each is empty where no attempt
    runs.

    Lines of threads that an actor starts have it if they run in a copy of its `contextvars`.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        if hasattr(record, "recovery"):
            return True  # it went through a queue: whoever put it there knew
        attempt = running()
        if attempt is None:
            fields: tuple[object, ...] = ("", "", "", "", "")
        else:
            one = attempt.decision
            prefix = f"{one.actor} {one.id} attempt {one.attempts}: "
            fields = (one.process_id, one.task_id, one.actor, one.attempts, prefix)
        names = ("recovery_process", "recovery_task", "recovery_actor", "recovery_attempt", "recovery")
        record.__dict__.update(zip(names, fields, strict=True))
        return True
