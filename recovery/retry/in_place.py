"""A call that is tried again where it stands, in its own thread: of ours, to a server. What has to survive a crash is
retried by its record's deadline instead.

The orchestrator decides; an error that no catalogue takes for one that passes is raised at once. Between two tries the
thread waits. The first retry of a call is a warning, with the error's text, the others are told for those who look
closer; so is in the end how long it took.
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

AWAY = ErrorCode(20002, "SERVER_AWAY", "A server that we need does not answer")
TIMED_OUT = ErrorCode(20003, "SERVER_TIMED_OUT", "A server that we need did not answer in time")
BROKER = ErrorCode(20004, "BROKER_FAILED", "Redis did not do what it was asked for")

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
"""Reasons that open a breaker: nobody is there who could take the call. Not a time-out, which a single slow call, a
majority that lags and a time limit of our own are as well; not a server that is there and has too much to do."""

Classify = Callable[[BaseException], Classified]


def by_shipped(error: BaseException) -> Classified:
    """What an error is by the catalogues that are shipped."""
    return classify(error, SHIPPED)


def by_driver(error: BaseException) -> Classified:
    """What an error of a server is, for our own calls: what the driver's error was that it was raised from, else what
    its kind says. Of no use for actors: they are asked with all catalogues that are in use."""
    found = classify(error, _DRIVERS)
    return found if found.catalogue is not None else classify(error, (_SERVERS,))


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
    """What `step` gives, tried again as the orchestrator says; else what it raised last. With a `breaker` nothing is
    sent while that is open. `level` is that of the first retry in the log, and of how long the call took;
    `refusal_level` that of an error that is not retried, for a caller who logs it."""
    began = time.monotonic()
    while True:
        try:
            done = step() if breaker is None else guarded(step, breaker, classified)
        except Exception as error:
            found = _open(error) if isinstance(error, CircuitOpen) else classified(error)
            if not found.is_retriable:
                _log_refusal(request, found, error, refusal_level)
                raise
            # Who reads warnings alone is told once of each call.
            told = min(level, logging.INFO) if request.retry_attempts else level
            ruling = decided(
                maybe_retry(
                    request, found.reason, code=found.code, error=error, level=told, refusal_level=refusal_level
                )
            )
            if ruling.verdict is Verdict.FAIL:
                raise
            delay = max(ruling.delay, found.retry_after or 0.0)
            left = request.remaining
            ends = ruling.verdict is Verdict.CANCEL or (left is not None and delay >= left)
            (wait or threading.Event().wait)(delay if left is None else max(0.0, min(delay, left)))
            if ends:
                raise
        else:
            if request.retry_attempts:
                seconds = time.monotonic() - began
                log.log(level, "%s: done after %.1f s, retries: %d", request.name, seconds, request.retry_attempts,
                        extra={"retry_attempts": request.retry_attempts, "retry_seconds": seconds})  # fmt: skip
            return done


def guarded(
    step: Callable[[], T], breaker: CircuitBreaker, classified: Classify = by_shipped, *, always: bool = False
) -> T:
    """What `step` gives, once, by way of a breaker. Raises CircuitOpen, unless it is `always` sent."""
    return breaker.call(step, lambda error: _is_away(classified(error)), always=always)


def _log_refusal(request: Request, found: Classified, error: Exception, level: int) -> None:
    """Log an error that is not retried, if it is a server's. Others are answers to whoever called: a start that is
    refused, for example."""
    if found.catalogue is not None:
        log.log(
            level,
            "%s: not retried (%s, %d): %s: %s", request.name, found.reason.name, found.code.number, found.code.text,
            " ".join(str(error).split())[:ERROR_LENGTH],
            extra={
                "retry_reason": found.reason.name, "retry_code": found.code.number, "retry_delay": None,
                "retry_attempt": request.retry_attempts,
            },
        )  # fmt: skip


def _open(error: CircuitOpen) -> Classified:
    return Classified(CIRCUIT_OPEN, CIRCUIT_BREAKER_OPEN, retry_after=error.left)


def _is_away(found: Classified) -> bool | None:
    """What an error says of the server, for its breaker. What is wrong with the call says nothing of it."""
    if found.reason in _AWAY:
        return found.is_retriable
    return False if found.reason.stage is Stage.RESPONSE_RECEIVED else None
