"""Log an outage of a server once per process of a worker, and not once per step that fails because of it.

In the parent process one line reports that the worker lost Redis, and one that messages are taken again. Celery itself
would log each attempt to connect, and would report a new connection in the same words as a worker's first. Outages of
MongoDB are reported by the heartbeats. In a pool process the circuit breaker reports MongoDB, and the broker Redis.

Other records of this package that carry an error of an unreachable server become DEBUG, except a process's first in a
while, because it may come before those lines. Records of the application stay as they are, and so do CRITICAL records,
which end the worker.
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
"""Names of the loggers of the circuit breaker, and of waits for a server."""
QUIET = 30.0
"""Seconds without an error of an unreachable server after which the next such error belongs to another outage. A step
that waits for MongoDB fails within 20 s."""
_OURS = "recovery."
"""Prefix of the names of this package's loggers."""
_MONGODB, _REDIS = "MongoDB", "Redis"
_REPEATED = "recovery_repeated"


class Outage:
    """The outage of Redis that this worker is in, if any. Only the event loop's thread changes it."""

    since: ClassVar[float | None] = None
    """When the outage was noticed, by the monotonic clock; None if there is none."""
    ended_at: ClassVar[float] = -math.inf
    """When the last outage was over."""

    @classmethod
    def was_within(cls, seconds: float) -> bool:
        """Return whether Redis was away at some time within the last `seconds`."""
        return cls.since is not None or time.monotonic() - cls.ended_at <= seconds


class OutageStart(logging.Filter):
    """A filter that replaces Celery's first line of an outage by ours, and lowers the others to DEBUG."""

    def __init__(self, broker_url: str) -> None:
        super().__init__()
        self._broker_url = broker_url

    def install(self) -> None:
        """Filter Celery's log of its connection."""
        for name in (_CELERYS_LOG, _WARNINGS):
            logging.getLogger(name).addFilter(self)

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name == _WARNINGS:
            # Celery logs advice at each lost connection, on a setting that changes nothing here: attempts go on without
            # Redis.
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
    """A part of Celery's consumer that is started after each connection."""

    requires = ("celery.worker.consumer.tasks:Tasks",)

    def start(self, _consumer: Any) -> None:
        if Outage.since is not None:
            log.warning("Redis is back, after %.0f s: messages are taken again", time.monotonic() - Outage.since)
            Outage.since, Outage.ended_at = None, time.monotonic()


def is_logged_as_debug(record: logging.LogRecord) -> bool:
    """Set a record's level to DEBUG. Return whether its logger takes DEBUG records."""
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
    """A filter that lowers the records of a worker's parent process to DEBUG."""

    def filter(self, record: logging.LogRecord) -> bool:
        return record.processName != "MainProcess" or is_logged_as_debug(record)


class OncePerOutage(logging.Filter):
    """A filter for handlers that lowers repeated records of an outage to DEBUG."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._now = now
        self._seen: dict[tuple[int, str], float] = {}
        self._waits_shown: dict[int, bool] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        fields = record.__dict__
        if _REPEATED not in fields:  # otherwise another handler has already asked
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
        """Return whether a record reports that writes wait, or no longer wait, in an outage that was logged already."""
        if len(record.args or ()) > 1:
            shown = self._waits_shown[os.getpid()] = not self._was_seen(_MONGODB)
        else:
            shown = self._waits_shown.pop(os.getpid(), True)
        return not shown

    def _was_seen(self, server: str) -> bool:
        """Return whether this process logged within the last QUIET seconds that the server is away, and note that it
        does so now."""
        key, now = (os.getpid(), server), self._now()
        last_seen, self._seen[key] = self._seen.get(key, -math.inf), now
        return now - last_seen < QUIET


def _server_away(record: logging.LogRecord) -> str | None:
    """Return the server whose absence made a step fail, if the record is about that; otherwise None.

    Records with `recovery_outage` do not count: these lines are logged once per outage anyway, and report its effect on
    the whole worker.
    """
    is_step = record.name.startswith(_OURS) and record.levelno < logging.CRITICAL
    if not is_step or getattr(record, "recovery_outage", False) or not isinstance(record.args, tuple):
        return None
    if any(isinstance(argument, StoreUnavailable) for argument in record.args):
        return _MONGODB
    redis_errors = (error for error in record.args if isinstance(error, BrokerError) and error.__cause__ is not None)
    return _REDIS if any(is_lost_connection(error.__cause__) for error in redis_errors) else None


def is_lost_connection(error: BaseException | None) -> bool:
    """Return whether a driver, or kombu, raised this error because a server does not answer."""
    return not {kind.__name__ for kind in type(error).__mro__}.isdisjoint(("ConnectionError", "TimeoutError"))
