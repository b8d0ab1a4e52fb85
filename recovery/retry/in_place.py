"""Retry in place: a call to a server that is retried in the calling thread.

Work that must survive a crash is retried by its record's deadline instead.

The orchestrator decides. An error that no catalogue knows as transient is raised at once. The thread waits between two
tries. The first retry of a call is logged with the error's text as a warning, and further ones at level INFO. When the
call succeeds after retries, its duration is logged. The caller may choose other levels.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from recovery.limits import ERROR_LENGTH
from recovery.retry.breaker import CircuitBreaker, CircuitOpen
from recovery.retry.catalogue import Catalogue, Classified, Entry, classify
from recovery.retry.catalogues import SHIPPED
from recovery.retry.catalogues.mongodb import MONGODB
from recovery.retry.catalogues.redis import REDIS
from recovery.retry.codes import CIRCUIT_OPEN, ErrorCode
from recovery.retry.orchestrator import Verdict, decided, maybe_retry
from recovery.retry.reasons import (
    CIRCUIT_BREAKER_OPEN,
    NODE_NOT_AVAILABLE,
    NOT_PRIMARY,
    SERVICE_NOT_AVAILABLE,
    SOCKET_CLOSED_WHILE_IN_FLIGHT,
    STATE_CHANGED_IN_FLIGHT,
    TIMEOUT_IN_FLIGHT,
    Stage,
)
from recovery.retry.strategies import Request

T = TypeVar("T")

log = logging.getLogger(__name__)

AWAY = ErrorCode(20002, "SERVER_AWAY", "A required server does not answer")
TIMED_OUT = ErrorCode(20003, "SERVER_TIMED_OUT", "A required server did not answer in time")
BROKER = ErrorCode(20004, "BROKER_FAILED", "A Redis operation failed")

_DRIVERS = (MONGODB, REDIS)
_SERVERS = Catalogue(
    "servers",
    (
        Entry(TIMED_OUT, TIMEOUT_IN_FLIGHT, types=frozenset({"recovery.errors.StoreTimeout"})),
        Entry(AWAY, NODE_NOT_AVAILABLE, types=frozenset({"recovery.errors.ServerUnavailable"})),
        Entry(BROKER, SERVICE_NOT_AVAILABLE, types=frozenset({"recovery.errors.BrokerError"})),
    ),
)

_AWAY = {
    NODE_NOT_AVAILABLE, SERVICE_NOT_AVAILABLE, SOCKET_CLOSED_WHILE_IN_FLIGHT, NOT_PRIMARY, STATE_CHANGED_IN_FLIGHT,
}  # fmt: skip
"""Reasons that count as failures for a circuit breaker: no server is there to take the call.

A time-out does not count, because a slow call, a lagging majority or our own time limit causes it, too. A server that
answers that it is overloaded does not count either.
"""

Classify = Callable[[BaseException], Classified]


def by_shipped(error: BaseException) -> Classified:
    """Classify an error by the shipped catalogues."""
    return classify(error, SHIPPED)


def by_driver(error: BaseException) -> Classified:
    """Classify a server's error of one of our own calls, by the driver's error that caused it, otherwise by its type.

    Actors' errors are classified by all catalogues in use instead.
    """
    classified = classify(error, _DRIVERS)
    return classified if classified.catalogue is not None else classify(error, (_SERVERS,))


def call(
    step: Callable[[], T],
    request: Request,
    *,
    classified: Classify = by_shipped,
    breaker: CircuitBreaker | None = None,
    wait: Callable[[float], object] | None = None,
    level: int = logging.WARNING,
    refusal_level: int = logging.WARNING,
) -> T:
    """Call `step` and return its result, retrying as the orchestrator decides.

    Args:
        step: The call to the server.
        request: The request, with its strategy and deadline.
        classified: Classifies an error of `step`.
        breaker: If given, no call is sent while it is open.
        wait: Waits for a number of seconds between two tries; by default the thread sleeps.
        level: Log level of the first retry, and of the line with the duration of a call that was retried.
        refusal_level: Log level of an error that is not retried, for a caller that logs it itself.

    Raises:
        Exception: What `step` raised last.
    """
    started_at = time.monotonic()
    while True:
        try:
            result = step() if breaker is None else guarded(step, breaker, classified)
        except Exception as error:
            failure = _open(error) if isinstance(error, CircuitOpen) else classified(error)
            if not failure.is_retriable:
                _log_refusal(request, failure, error, refusal_level)
                raise
            # A person who reads only warnings sees one line for each call.
            retry_level = min(level, logging.INFO) if request.retry_attempts else level
            ruling = decided(
                maybe_retry(
                    request,
                    failure.reason,
                    code=failure.code,
                    error=error,
                    level=retry_level,
                    refusal_level=refusal_level,
                )
            )
            if ruling.verdict is Verdict.FAIL:
                raise
            delay = max(ruling.delay, failure.retry_after or 0.0)
            remaining = request.remaining
            is_last = ruling.verdict is Verdict.CANCEL or (remaining is not None and delay >= remaining)
            (wait or threading.Event().wait)(delay if remaining is None else max(0.0, min(delay, remaining)))
            if is_last:
                raise
        else:
            if request.retry_attempts:
                seconds = time.monotonic() - started_at
                log.log(level, "%s: done after %.1f s, retries: %d", request.name, seconds, request.retry_attempts,
                        extra={"retry_attempts": request.retry_attempts, "retry_seconds": seconds})  # fmt: skip
            return result


def guarded(
    step: Callable[[], T], breaker: CircuitBreaker, classified: Classify = by_shipped, *, always: bool = False
) -> T:
    """Call `step` once through a circuit breaker, and return its result.

    Args:
        step: The call to the server.
        breaker: The server's breaker.
        classified: Classifies an error of `step`.
        always: Whether to call `step` even if the breaker is open.

    Raises:
        CircuitOpen: The breaker is open, so `step` was not called.
    """
    return breaker.call(step, lambda error: _is_away(classified(error)), always=always)


def _log_refusal(request: Request, classified: Classified, error: Exception, level: int) -> None:
    """Log an error that is not retried, if a catalogue knows it as a server's error.

    Other errors are answers to the caller, for example a refused start.
    """
    if classified.catalogue is not None:
        log.log(
            level,
            "%s: not retried (%s, %d): %s: %s",
            request.name, classified.reason.name, classified.code.number, classified.code.text,
            " ".join(str(error).split())[:ERROR_LENGTH],
            extra={
                "retry_reason": classified.reason.name, "retry_code": classified.code.number, "retry_delay": None,
                "retry_attempt": request.retry_attempts,
            },
        )  # fmt: skip


def _open(error: CircuitOpen) -> Classified:
    return Classified(CIRCUIT_OPEN, CIRCUIT_BREAKER_OPEN, retry_after=error.left)


def _is_away(classified: Classified) -> bool | None:
    """Return what an error shows about the server, for its breaker: True that it is away, False that it answers.

    Return None if the error shows nothing about the server, for example if the call was wrong.
    """
    if classified.reason in _AWAY:
        return classified.is_retriable
    return False if classified.reason.stage is Stage.RESPONSE_RECEIVED else None
