"""Logs an outage of a server once for each process of a worker, and not once for each step that fails by it.

In the parent process one line reports that the worker lost Redis, and one that messages are taken again: Celery by
itself logs each try to connect, and reports a new connection only as it does a worker's first. That MongoDB is away is
reported by the line of its heartbeats. In a pool process the circuit breaker reports MongoDB, and the broker Redis.

Other records of this package with an error by which a server is away become DEBUG, except for a process's first in a
while: it may come before those. What the application logs is left as it is, and so is what ends the worker (CRITICAL).
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable
from typing import Any, ClassVar

from celery import bootsteps
from celery.worker.consumer.consumer import CANCEL_TASKS_BY_DEFAULT, CONNECTION_ERROR, CONNECTION_RETRY

from recovery.addresses import public, told
from recovery.errors import BrokerError, StoreUnavailable

log = logging.getLogger(__name__)

_CELERYS_LOG, _WARNINGS = "celery.worker.consumer.consumer", "py.warnings"
BREAKERS, WAITS = "recovery.retry.breaker", "recovery.waits"
"""Names of loggers."""
QUIET = 30.0
"""Seconds without an error by which a server is away, after which another one belongs to another outage. A step that
waits for MongoDB fails within 20 s."""
_OURS = "recovery."
"""What the names of this package's loggers begin with."""
_MONGODB, _REDIS = "MongoDB", "Redis"
_REPEATED = "recovery_repeated"


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
    """Return the record's text and arguments, with their line breaks."""
    return f"{record.msg} {record.args}"


def _connection_error(record: logging.LogRecord) -> object:
    """Return the error by which Celery lost its connection, or could not connect; None for another record."""
    match record.msg, record.args:
        case "%s (%r)", (text, error) if text == CONNECTION_RETRY:
            return error
        case text, (_, error, _) if text == CONNECTION_ERROR:
            return error
    return None


class OfPoolProcesses(logging.Filter):
    """Makes the records of a worker's parent process DEBUG."""

    def filter(self, record: logging.LogRecord) -> bool:
        return record.processName != "MainProcess" or is_logged_as_debug(record)


class OncePerOutage(logging.Filter):
    """A filter for handlers: makes records DEBUG that repeat an outage."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._now = now
        self._seen: dict[tuple[int, str], float] = {}
        self._waits_shown: dict[int, bool] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        fields = record.__dict__
        if _REPEATED not in fields:  # else another handler has asked
            fields[_REPEATED] = self._is_repeated(record)
        return not fields[_REPEATED] or is_logged_as_debug(record)

    def _is_repeated(self, record: logging.LogRecord) -> bool:
        if record.name == BREAKERS:
            self._was_seen(_MONGODB)
            return False
        if record.name == WAITS:
            return self._is_repeated_wait(record)
        server = _server_away(record)
        return server is not None and self._was_seen(server)

    def _is_repeated_wait(self, record: logging.LogRecord) -> bool:
        """Whether a record reports that writes wait, or no longer wait, in an outage that was logged already."""
        if len(record.args or ()) > 1:
            shown = self._waits_shown[os.getpid()] = not self._was_seen(_MONGODB)
        else:
            shown = self._waits_shown.pop(os.getpid(), True)
        return not shown

    def _was_seen(self, server: str) -> bool:
        """Whether this process logged a moment ago that the server is away. It does so now."""
        key, now = (os.getpid(), server), self._now()
        before, self._seen[key] = self._seen.get(key, -math.inf), now
        return now - before < QUIET


def _server_away(record: logging.LogRecord) -> str | None:
    """The server by whose absence a step failed, if a record is about that. A line that is logged once for each outage
    anyway, and says what it means for the worker, is about more than a step."""
    is_step = record.name.startswith(_OURS) and record.levelno < logging.CRITICAL
    if not is_step or getattr(record, "recovery_outage", False) or not isinstance(record.args, tuple):
        return None
    if any(isinstance(argument, StoreUnavailable) for argument in record.args):
        return _MONGODB
    of_redis = (one for one in record.args if isinstance(one, BrokerError) and one.__cause__ is not None)
    return _REDIS if any(is_lost_connection(one.__cause__) for one in of_redis) else None


def is_lost_connection(error: BaseException | None) -> bool:
    """Return whether a driver, or kombu, raised this error for a server that does not answer."""
    return not {kind.__name__ for kind in type(error).__mro__}.isdisjoint(("ConnectionError", "TimeoutError"))
