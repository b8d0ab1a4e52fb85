"""Logs one line when a worker loses Redis, and one when messages are taken again.

Celery by itself logs each try to connect, and tells of a new connection only as it does of a worker's first.
"""

from __future__ import annotations

import logging
import math
import time
from typing import Any, ClassVar

from celery import bootsteps
from celery.worker.consumer.consumer import CANCEL_TASKS_BY_DEFAULT, CONNECTION_ERROR, CONNECTION_RETRY

from recovery.addresses import public, told

log = logging.getLogger(__name__)

_CELERYS_LOG, _WARNINGS = "celery.worker.consumer.consumer", "py.warnings"


class Outage:
    """The outage of Redis that this worker is in, if any. Only the event loop's thread changes it."""

    since: ClassVar[float | None] = None
    """When it was noticed, by the monotonic clock."""
    ended_at: ClassVar[float] = -math.inf
    """When the last one was over."""

    @classmethod
    def was_within(cls, seconds: float) -> bool:
        """Whether there was one at some time within the last `seconds`."""
        return cls.since is not None or time.monotonic() - cls.ended_at <= seconds


class OutageStart(logging.Filter):
    """Turns Celery's first line of an outage into ours, and makes the others DEBUG."""

    def __init__(self, broker_url: str) -> None:
        super().__init__()
        self._broker_url = broker_url

    def install(self) -> None:
        """Filter what Celery logs of its connection."""
        for name in (_CELERYS_LOG, _WARNINGS):
            logging.getLogger(name).addFilter(self)

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name == _WARNINGS:
            # Advice at each lost connection, on a setting that changes nothing here: attempts go on without Redis.
            return CANCEL_TASKS_BY_DEFAULT.strip() not in _raw(record) or is_logged_as_debug(record)
        if (error := _connection_error(record)) is None:
            return True
        if Outage.since is not None:
            return is_logged_as_debug(record)
        Outage.since = time.monotonic()
        record.levelno, record.levelname = logging.WARNING, logging.getLevelName(logging.WARNING)
        record.msg = "Redis at %s is away (%s): no message is taken until it is back"
        record.args = public(self._broker_url), told(error, self._broker_url) or type(error).__name__
        return True


class OutageEnd(bootsteps.StartStopStep):  # type: ignore[misc]
    """A part of Celery's consumer that is started once there is a connection, again perhaps."""

    requires = ("celery.worker.consumer.tasks:Tasks",)

    def start(self, _consumer: Any) -> None:
        if Outage.since is not None:
            log.warning("Redis is back, after %.0f s: messages are taken again", time.monotonic() - Outage.since)
            Outage.since, Outage.ended_at = None, time.monotonic()


def is_logged_as_debug(record: logging.LogRecord) -> bool:
    """Make a record one of the level DEBUG, and return whether its logger takes these."""
    record.levelno, record.levelname = logging.DEBUG, logging.getLevelName(logging.DEBUG)
    return logging.getLogger(record.name).isEnabledFor(logging.DEBUG)


def _raw(record: logging.LogRecord) -> str:
    """What was logged, with its line breaks."""
    return f"{record.msg} {record.args}"


def _connection_error(record: logging.LogRecord) -> object:
    """The error that Celery lost its connection by, or could not connect by; None of another record."""
    match record.msg, record.args:
        case "%s (%r)", (text, error) if text == CONNECTION_RETRY:
            return error
        case text, (_, error, _) if text == CONNECTION_ERROR:
            return error
    return None
