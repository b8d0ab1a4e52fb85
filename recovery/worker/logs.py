"""What workers log, in Celery's form or as JSON: each line of an actor with what runs.

Lines of single tasks are DEBUG. Celery says of a message that its task succeeded, also where the actor failed, and
nothing of tasks that were run on the spot. That line is left out for actors; the attempt has one of its own
(`recovery.engine.run.slot`).

A server that is away is logged once for each process and outage, and not by each step that fails for it
(`outage_logs`).

What is written to `sys.stdout` and `sys.stderr` is logged, and they are files to those who ask. Celery's own stream has
neither `fileno` nor `buffer` nor `encoding`, without which `subprocess.run(stdout=sys.stdout)`, `faulthandler` and much
else fail. What goes to `fileno()` goes past the log, to where the worker itself writes.
"""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Container
from typing import Any, TextIO

from celery import signals
from celery.app import trace
from celery.app.log import Logging
from celery.utils.log import ColorFormatter, LoggingProxy, get_multiprocessing_logger

from recovery.engine import LogContext
from recovery.log_lines import LINES, JsonFormatter, log_json
from recovery.queue.broker import NOT_PUSHED, SENT_AGAIN
from recovery.setting_forms import LogFormat
from recovery.worker.outage_logs import (
    BREAKERS,
    OfPoolProcesses,
    OncePerOutage,
    Outage,
    OutageStart,
    is_logged_as_debug,
)

FORMAT = "[%(asctime)s: %(levelname)s/%(processName)s] %(recovery)s%(message)s"
"""Celery's own, with what runs."""

_RECEIVED = "Task %(name)s[%(id)s] received"
_PER_TASK = (_RECEIVED, trace.LOG_IGNORED.strip(), trace.LOG_REJECTED.strip())
_CONNECTED = "Connected to %s"


class _SingleTasks(logging.Filter):
    """Makes what Celery logs of single messages DEBUG, without the stack of what only says that an actor is blocked."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.msg not in _PER_TASK:
            return True
        record.exc_info = record.exc_text = None
        return is_logged_as_debug(record)


class _AlsoOfOutage(logging.Filter):
    """Makes what else a worker's parent process logs of an outage of Redis DEBUG, if its consumer logs the outage."""

    def filter(self, record: logging.LogRecord) -> bool:
        match record.msg, record.args:
            case text, _ if text in (_CONNECTED, NOT_PUSHED):
                away_for = 0.0
            # Messages can't be sent, either, while Redis is slow; the consumer, which only waits, sees no outage then.
            case text, (float(away_for),) if text == SENT_AGAIN:
                pass
            case _:
                return True
        is_logged_by_other = record.processName == "MainProcess" and Outage.was_within(away_for)
        return not is_logged_by_other or is_logged_as_debug(record)


class _NotOfActors(logging.Filter):
    """Drops Celery's word on the end of a message of an actor."""

    def __init__(self, actors: Container[str]) -> None:
        super().__init__()
        self._actors = actors

    def filter(self, record: logging.LogRecord) -> bool:
        fields: Any = record.args
        return record.msg != trace.LOG_SUCCESS or fields.get("name") not in self._actors


def install(actors: Container[str], log_format: LogFormat, broker_url: str) -> None:
    """Have the workers of this process log so. Handlers that an application sets up by itself are left as they are, but
    for the filters where Celery tells of them."""
    if log_format is LogFormat.JSON:
        log_json()  # what is said before Celery sets logging up
    add_context = _AddContext(log_format)
    signals.after_setup_logger.connect(add_context, weak=False)
    signals.after_setup_task_logger.connect(add_context, weak=False)
    trace.logger.addFilter(_NotOfActors(actors))
    for name in ("celery.worker.strategy", trace.logger.name):
        logging.getLogger(name).addFilter(_SingleTasks())
    for name in ("celery.worker.consumer.connection", "recovery.queue.broker"):
        logging.getLogger(name).addFilter(_AlsoOfOutage())
    logging.getLogger(BREAKERS).addFilter(OfPoolProcesses())
    OutageStart(broker_url).install()
    if (driver := logging.getLogger("pymongo")).level == logging.NOTSET:
        driver.setLevel(logging.INFO)  # at DEBUG it logs each command, with its documents


class _AddContext:
    """For the signals by which Celery tells of a logger that it has set up."""

    def __init__(self, log_format: LogFormat) -> None:
        self._log_format = log_format
        self._once = OncePerOutage()

    def __call__(self, logger: logging.Logger, format: str, colorize: bool, **_: Any) -> None:
        # What the pool says of its processes goes to handlers of its own, of which no signal tells.
        for handler in (*logger.handlers, *get_multiprocessing_logger().handlers):
            handler.addFilter(LogContext())
            handler.addFilter(self._once)
            if getattr(handler.formatter, "_fmt", None) != format:
                continue  # it is the application's
            as_json = self._log_format is LogFormat.JSON
            handler.setFormatter(JsonFormatter() if as_json else ColorFormatter(FORMAT, use_color=colorize))


class LoggedStream(LoggingProxy):  # type: ignore[misc]
    """A text stream that logs what is written to it, in the place of an `original`."""

    encoding, errors, newlines, line_buffering = "utf-8", "replace", None, True

    def __init__(self, logger: logging.Logger, loglevel: int | str | None, original: TextIO | None) -> None:
        super().__init__(logger, loglevel)
        self._original = original
        self.name = getattr(original, "name", None)
        self.buffer = _Bytes(self)
        self.logger = _WithLines(logger, LINES)

    def fileno(self) -> int:
        """Return the descriptor of the original. Raises io.UnsupportedOperation if there is none."""
        if self._original is None:
            raise io.UnsupportedOperation("fileno: this worker has no such stream")
        return self._original.fileno()

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False


class _WithLines(logging.LoggerAdapter[logging.Logger]):
    """Logs a text that was written at once, such as a part of a printed stack, with its line breaks."""


class _Bytes(io.RawIOBase):
    """The same stream for bytes."""

    def __init__(self, text: LoggedStream) -> None:
        self._text = text

    def write(self, data: Any, /) -> int:
        written = bytes(data)
        self._text.write(written.decode(LoggedStream.encoding, LoggedStream.errors))
        return len(written)

    def fileno(self) -> int:
        return self._text.fileno()

    def writable(self) -> bool:
        return True


class StreamLogging(Logging):  # type: ignore[misc]
    """Celery's logging, with these streams."""

    def redirect_stdouts_to_logger(
        self, logger: logging.Logger, loglevel: Any = None, stdout: bool = True, stderr: bool = True
    ) -> None:
        if stdout:
            sys.stdout = LoggedStream(logger, loglevel, sys.__stdout__)
        if stderr:
            sys.stderr = LoggedStream(logger, loglevel, sys.__stderr__)
