"""The log of workers, in Celery's form or as JSON. Each line of an actor names the task that runs.

Lines about single tasks have the level DEBUG. Celery logs that a message's task succeeded even if the actor failed, and
it knows nothing of tasks that a slot ran without a message. So Celery's line is dropped for actors, and each attempt
logs a line of its own (`recovery.engine.run.slot`).

An outage of a server is logged once for each process, and not by each step that fails because of it (`outage_logs`).

Text written to `sys.stdout` and `sys.stderr` is logged. Celery's own stream has neither `fileno` nor `buffer` nor
`encoding`, without which `subprocess.run(stdout=sys.stdout)`, `faulthandler` and others fail. So `LoggedStream`
provides these. Bytes written to the descriptor `fileno()` bypass the log, and go where the worker itself writes.
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
"""Celery's own format, plus what runs."""

_RECEIVED = "Task %(name)s[%(id)s] received"
_PER_TASK = (_RECEIVED, trace.LOG_IGNORED.strip(), trace.LOG_REJECTED.strip())
_CONNECTED = "Connected to %s"


class _SingleTasks(logging.Filter):
    """A filter that lowers Celery's lines about single messages to DEBUG, and drops the stack of errors that only
    report a blocked actor."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.msg not in _PER_TASK:
            return True
        record.exc_info = record.exc_text = None
        return is_logged_as_debug(record)


class _AlsoOfOutage(logging.Filter):
    """A filter that lowers other lines of a worker's parent process about an outage of Redis to DEBUG, if the consumer
    logs that outage."""

    def filter(self, record: logging.LogRecord) -> bool:
        match record.msg, record.args:
            case text, _ if text in (_CONNECTED, NOT_PUSHED):
                away_for = 0.0
            # Sending also fails while Redis is slow. The consumer, which only waits, then sees no outage.
            case text, (float(away_for),) if text == SENT_AGAIN:
                pass
            case _:
                return True
        is_logged_by_other = record.processName == "MainProcess" and Outage.was_within(away_for)
        return not is_logged_by_other or is_logged_as_debug(record)


class _NotOfActors(logging.Filter):
    """A filter that drops Celery's line that a message of an actor succeeded."""

    def __init__(self, actors: Container[str]) -> None:
        super().__init__()
        self._actors = actors

    def filter(self, record: logging.LogRecord) -> bool:
        fields: Any = record.args
        return record.msg != trace.LOG_SUCCESS or fields.get("name") not in self._actors


def install(actors: Container[str], log_format: LogFormat, broker_url: str) -> None:
    """Set up the log of the workers of this process. Handlers that an application sets up itself keep their formatters;
    filters are added to those that Celery's signals report."""
    if log_format is LogFormat.JSON:
        log_json()  # for lines before Celery sets logging up
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
    """A receiver of the signals by which Celery reports a logger that it has set up."""

    def __init__(self, log_format: LogFormat) -> None:
        self._log_format = log_format
        self._once = OncePerOutage()

    def __call__(self, logger: logging.Logger, format: str, colorize: bool, **_: Any) -> None:
        # The pool logs about its processes to handlers of its own, which no signal reports.
        for handler in (*logger.handlers, *get_multiprocessing_logger().handlers):
            handler.addFilter(LogContext())
            handler.addFilter(self._once)
            if getattr(handler.formatter, "_fmt", None) != format:
                continue  # it is a handler of the application
            as_json = self._log_format is LogFormat.JSON
            handler.setFormatter(JsonFormatter() if as_json else ColorFormatter(FORMAT, use_color=colorize))


class LoggedStream(LoggingProxy):  # type: ignore[misc]
    """A text stream that logs what is written to it, in place of the stream `original`."""

    encoding, errors, newlines, line_buffering = "utf-8", "replace", None, True

    def __init__(self, logger: logging.Logger, loglevel: int | str | None, original: TextIO | None) -> None:
        super().__init__(logger, loglevel)
        self._original = original
        self.name = getattr(original, "name", None)
        self.buffer = _Bytes(self)
        self.logger = _WithLines(logger, LINES)

    def fileno(self) -> int:
        """Return the file descriptor of the original stream. Raises io.UnsupportedOperation if there is none."""
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
    """A logger that keeps the line breaks of a text that was written at once, such as part of a printed stack."""


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
    """Celery's logging, with LoggedStream as standard output and standard error."""

    def redirect_stdouts_to_logger(
        self, logger: logging.Logger, loglevel: Any = None, stdout: bool = True, stderr: bool = True
    ) -> None:
        if stdout:
            sys.stdout = LoggedStream(logger, loglevel, sys.__stdout__)
        if stderr:
            sys.stderr = LoggedStream(logger, loglevel, sys.__stderr__)
