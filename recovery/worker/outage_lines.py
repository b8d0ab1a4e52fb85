"""Logs an outage once for each process of a worker, and not once for each step that fails by it.

In the parent process the line of its heartbeats reports that MongoDB is away, and that of Celery's consumer that Redis
is (`messages.outage`). In a pool process the circuit breaker reports MongoDB, and the broker Redis. Other records of
this package with an error by which a server is away become DEBUG, except for a process's first in a while: it may come
before those. What the application logs is left as it is, and so is what ends the worker (CRITICAL).
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable

from recovery.errors import BrokerError, StoreUnavailable
from recovery.worker.outage_logs import is_logged_as_debug

BREAKERS, WAITS = "recovery.retry.breaker", "recovery.waits"
"""Names of loggers."""

QUIET = 30.0
"""Seconds without an error by which a server is away, after which another one belongs to another outage. A step that
waits for MongoDB fails within 20 s."""

_OURS = "recovery."
"""What the names of this package's loggers begin with."""
_MONGODB, _REDIS = "MongoDB", "Redis"
_REPEATED = "recovery_repeated"


class OfPoolProcesses(logging.Filter):
    """Makes the records of a worker's parent process DEBUG."""

    def filter(self, record: logging.LogRecord) -> bool:
        return record.processName != "MainProcess" or is_logged_as_debug(record)


class OncePerOutage(logging.Filter):
    """A filter for handlers."""

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
        """Whether it says that writes wait, or do no longer, in an outage that was logged already."""
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
    return _REDIS if any(map(_is_lost_connection, record.args)) else None


def _is_lost_connection(argument: object) -> bool:
    kinds = {kind.__name__ for kind in type(argument.__cause__).__mro__} if isinstance(argument, BrokerError) else set()
    return not kinds.isdisjoint(("ConnectionError", "TimeoutError"))
