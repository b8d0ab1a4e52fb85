"""Logs as JSON: one line for each record, whatever is in it, for whoever collects them.

    {"time": "2026-11-23T04:02:11.204Z", "level": "INFO", "logger": "shop.orders", "message": "weighed: 3 kg",
     "actor": "pack", "process": "01a2…", "task": "2d6k…", "attempt": 1, "trace": "4bf9…", "span": "00f0…", "pid": 812}

A field of which nothing is known is left out. What an attempt runs and its trace are those that `recovery.LogContext`
has put on the record. An error is in `exception`, its stack with its line breaks; what was logged with `extra=` is in
`extra`. The texts are as they were logged, not made printable as in the text format: JSON has escapes of its own.

A formatter of our own, since what those of libraries do is the short part of it: they lose the record where a value of
`extra` can't be written (`json.dumps` raises), write NaN, which is no JSON, and would take the message in the printable
form that our records have.
"""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

from recovery.printable import printable_json

_OF_ATTEMPTS = ("actor", "process", "task", "attempt", "trace", "span")
"""Fields that `LogContext` puts on a record, each as `recovery_` and this name."""

# Beside those of every record, what others put on each: formatters and Celery.
_NOT_EXTRA = {*logging.makeLogRecord({}).__dict__, "message", "asctime", "taskName", "task_name", "task_id"}


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
    """A value as JSON; what has none, as the text that it is shown as."""
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
    """Write what this process logs, from WARNING on, and Python's own warnings, as JSON to stderr, until somebody sets
    logging up in another way, as Celery does."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.captureWarnings(True)
