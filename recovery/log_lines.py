"""Log lines: a JSON format, records with only printable characters, and a rate limit for repeated lines.

    {"time": "2026-11-23T04:02:11.204Z", "level": "INFO", "logger": "shop.orders", "message": "weighed: 3 kg",
     "actor": "pack", "process": "01a2…", "task": "2d6k…", "attempt": 1, "trace": "4bf9…", "span": "00f0…", "pid": 812}

Unknown fields are left out of the JSON. `recovery.LogContext` puts the attempt and its trace on the record. `exception`
has the error with its stack and line breaks, and `extra` what was logged with `extra=`. Unlike the text format, JSON
has the texts unchanged, because JSON has escapes of its own.

The formatter is our own, because the formatters of libraries drop a record if a value of `extra` can't be encoded. They
also write NaN, which is not JSON, and use the message in its printable form.

`Seldom` limits how often a line is logged that others can cause at will, because a log must not fill a disk.
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
"""Fields that `LogContext` puts on a record, each with the prefix `recovery_`."""

# Attributes of every record, and attributes that formatters and Celery add to every record.
_NOT_EXTRA = {*logging.makeLogRecord({}).__dict__, "message", "asctime", "taskName", "task_name", "task_id"}
EVERY = 1.0
"""Minimum seconds between two lines of one kind, unless a `Seldom` has its own interval."""
KINDS = 1000
"""Maximum number of kinds for which a `Seldom` remembers when it last logged a line."""
LINES = {"recovery_lines": True}
"""`extra` of a log call whose message has several lines, such as a stack."""


class JsonFormatter(logging.Formatter):
    """A formatter that writes a log record as one line of JSON. It does not raise."""

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
    """A text that is already JSON."""

    __slots__ = ()


def _object(fields: Iterable[tuple[str, Any]]) -> str:
    return f"{{{', '.join(f'{_json(name)}: {_json(value)}' for name, value in fields)}}}"


def _json(value: Any) -> str:
    """Return a value as JSON. A value that has no JSON form becomes its `repr` as a text."""
    if isinstance(value, _Written):
        return value
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except Exception:  # not JSON, contains itself, is nested too deeply, or its own code raises
        return json.dumps(_text(value), ensure_ascii=False)


def _message(record: logging.LogRecord) -> str:
    try:
        return logging.LogRecord.getMessage(record).rstrip("\n")  # PrintableRecord's own method would escape it
    except Exception:  # arguments don't match the text; logging would drop the record and print a stack
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
    """Log WARNING and above, and Python's own warnings, as JSON to stderr.

    This holds until logging is configured in another way, as Celery does.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.captureWarnings(True)


class Seldom:
    """A logger that logs at most one line of a kind per interval. The next line counts those that were left out.

    The kind of a line is its text before its arguments are inserted, together with `about`. Safe for threads.
    """

    def __init__(self, log: logging.Logger, every: float | None = None) -> None:
        self._log, self._every = log, every
        self._lock = threading.Lock()
        self._logged_at: dict[tuple[str, str], float] = {}
        self._skipped: dict[tuple[str, str], int] = {}

    def warning(self, message: str, *args: object, about: str = "") -> None:
        """Log a line, or count it as left out if a line of its kind was logged within the interval."""
        kind = (message, about)
        with self._lock:
            now = time.monotonic()
            if now - self._logged_at.get(kind, float("-inf")) < (EVERY if self._every is None else self._every):
                self._skipped[kind] = self._skipped.get(kind, 0) + 1
                return
            self._logged_at.pop(kind, None)  # the dictionary is ordered by the last time of each kind
            self._logged_at[kind] = now
            skipped = self._skipped.pop(kind, 0)
            if len(self._logged_at) > KINDS:
                oldest = next(iter(self._logged_at))
                del self._logged_at[oldest]
                self._skipped.pop(oldest, None)
        suffix = f", and {skipped:,} more since the last line" if skipped else ""
        self._log.warning(f"{message}%s", *args, suffix, stacklevel=2)


class PrintableRecord(logging.LogRecord):
    """A log record whose message is one line of printable characters.

    A stack keeps its lines, and so does a message that was logged with `extra=LINES`. All lines but the first are
    indented, so that none of them looks like another record.
    """

    recovery_lines = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.exc_info and self.exc_info[0] is not None:
            stack = "".join(traceback.format_exception(*self.exc_info)).rstrip("\n")
            self.exc_text = _indented(stack)

    def getMessage(self) -> str:
        message = super().getMessage().rstrip("\n")  # some of Celery's messages end with a line break
        return _indented(message) if self.recovery_lines else printable(message)


def _indented(text: str) -> str:
    return printable_lines(text).replace("\n", "\n  ")


def log_printable() -> None:
    """Make all records of this process printable from now on, for all handlers."""
    logging.setLogRecordFactory(PrintableRecord)
