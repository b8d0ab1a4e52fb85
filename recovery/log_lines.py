"""Lines of a log: as JSON, of characters that are seen, and not more of one kind than a log should hold.

    {"time": "2026-11-23T04:02:11.204Z", "level": "INFO", "logger": "shop.orders", "message": "weighed: 3 kg",
     "actor": "pack", "process": "01a2…", "task": "2d6k…", "attempt": 1, "trace": "4bf9…", "span": "00f0…", "pid": 812}

In JSON a field of which nothing is known is left out. What an attempt runs and its trace are those that
`recovery.LogContext` has put on the record. An error is in `exception`, its stack with its line breaks; what was
logged with `extra=` is in `extra`. The texts are as they were logged, not made printable as in the text format: JSON
has escapes of its own.

The formatter is our own, because those of libraries do the short part only: they lose the record if a value of `extra`
can't be written (`json.dumps` raises), write NaN, which is not JSON, and would take the message in the printable form
that our records have.

`Seldom` logs a line now and then, for what others can bring about as often as they like: a log must not fill a disk.
"""

from __future__ import annotations

import json
import logging
import threading
import time
import traceback
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

from recovery.wording import printable, printable_json, printable_lines

_OF_ATTEMPTS = ("actor", "process", "task", "attempt", "trace", "span")
"""Fields that `LogContext` puts on a record, each as `recovery_` and this name."""

# Beside those of every record, what others put on each: formatters and Celery.
_NOT_EXTRA = {*logging.makeLogRecord({}).__dict__, "message", "asctime", "taskName", "task_name", "task_id"}
EVERY = 1.0
"""Seconds between two lines of a kind, unless it is said otherwise."""
KINDS = 1000
"""Of so many it is known when they were said last."""
LINES = {"recovery_lines": True}
"""Give this as `extra` to a log call whose message has lines, such as a stack."""


class JsonFormatter(logging.Formatter):
    """Writes a log record as one line of JSON. Does not raise."""

    def format(self, record: logging.LogRecord) -> str:
        return printable_json(_object(_fields(record)))


def _fields(record: logging.LogRecord) -> Iterator[tuple[str, Any]]:
    yield "time", datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    yield "level", record.levelname
    yield "logger", record.name
    yield "message", _message(record)
    for name in _OF_ATTEMPTS:
        value = getattr(record, f"recovery_{name}", "")
        if value != "":
            yield name, value
    if error := _exception(record):
        yield "exception", error
    if record.stack_info:
        yield "stack", record.stack_info
    if extra := [(str(name), value) for name, value in record.__dict__.items() if _is_extra(name)]:
        yield "extra", _Written(_object(extra))
    yield "pid", record.process


def _is_extra(name: Any) -> bool:
    return name not in _NOT_EXTRA and name != "recovery" and not str(name).startswith("recovery_")


class _Written(str):
    """A text that is JSON already."""

    __slots__ = ()


def _object(fields: Iterable[tuple[str, Any]]) -> str:
    return f"{{{', '.join(f'{_json(name)}: {_json(value)}' for name, value in fields)}}}"


def _json(value: Any) -> str:
    """Return a value as JSON; one that has no JSON form as the text that it is shown as."""
    if isinstance(value, _Written):
        return value
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except Exception:  # no JSON, in itself, too deep, or somebody else's code
        return json.dumps(_text(value), ensure_ascii=False)


def _message(record: logging.LogRecord) -> str:
    try:
        return logging.LogRecord.getMessage(record).rstrip("\n")  # not that of a PrintableRecord
    except Exception:  # arguments that don't fit; logging would drop the record, and print a stack
        return f"{_text(record.msg)} % {_text(record.args)}"


def _exception(record: logging.LogRecord) -> str | None:
    if not record.exc_info or record.exc_info[0] is None:
        return record.exc_text or None
    try:
        return "".join(traceback.format_exception(*record.exc_info)).rstrip("\n")
    except Exception:
        return record.exc_text or _text(record.exc_info[1])


def _text(value: Any) -> str:
    try:
        return str.__str__(value) if isinstance(value, str) else str.__str__(repr(value))
    except Exception:
        return f"<{type(value).__name__}>"


def log_json() -> None:
    """Write what this process logs, from WARNING on, and Python's own warnings, as JSON to stderr, until logging is set
    up in another way, as Celery does."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.captureWarnings(True)


class Seldom:
    """Logs one line of a kind, and then none of that kind for a while; the next line counts those that were left out. A
    line's kind is its text before its arguments are put in, and what it is `about`. Any thread."""

    def __init__(self, log: logging.Logger, every: float | None = None) -> None:
        self._log, self._every = log, every
        self._lock = threading.Lock()
        self._said_at: dict[tuple[str, str], float] = {}
        self._unsaid: dict[tuple[str, str], int] = {}

    def warning(self, message: str, *args: object, about: str = "") -> None:
        """Log a line, or count it."""
        kind = (message, about)
        with self._lock:
            now = time.monotonic()
            if now - self._said_at.get(kind, float("-inf")) < (EVERY if self._every is None else self._every):
                self._unsaid[kind] = self._unsaid.get(kind, 0) + 1
                return
            self._said_at.pop(kind, None)  # the last said stands last
            self._said_at[kind] = now
            unsaid = self._unsaid.pop(kind, 0)
            if len(self._said_at) > KINDS:
                oldest = next(iter(self._said_at))
                del self._said_at[oldest]
                self._unsaid.pop(oldest, None)
        more = f", and {unsaid:,} more since the last line" if unsaid else ""
        self._log.warning(f"{message}%s", *args, more, stacklevel=2)


class PrintableRecord(logging.LogRecord):
    """A log record whose message is one line of characters that are seen. Its stack keeps its lines, as does a message
    that was logged with `extra=LINES`. All lines but the first are indented, so none can pass for another record."""

    recovery_lines = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.exc_info and self.exc_info[0] is not None:
            stack = "".join(traceback.format_exception(*self.exc_info)).rstrip("\n")
            self.exc_text = _indented(stack)

    def getMessage(self) -> str:
        message = super().getMessage().rstrip("\n")  # Celery ends some of its own with one
        return _indented(message) if self.recovery_lines else printable(message)


def _indented(text: str) -> str:
    return printable_lines(text).replace("\n", "\n  ")


def log_printable() -> None:
    """Make all records of this process printable from now on, whichever handler writes them."""
    logging.setLogRecordFactory(PrintableRecord)
