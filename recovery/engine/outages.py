"""Retry a step while MongoDB is unavailable, if an error would lose the work that was done.

The retry orchestrator retries the step in place. Only steps that may run twice are allowed: each write is a
compare-and-set on the state that it was decided from, or an insert under its own id. If the answer to a write is lost
and the write is sent again, it finds its own result and reports success. So every request here is idempotent, even
while it is in flight. A call of the store waits up to 20 s for a primary, and retries no write by itself.

An operating-system process has one circuit breaker for each MongoDB. An error opens it, and so does the driver if it
saw no primary when it looked last. While the breaker is open, one step at a time tries whether MongoDB is back. The
other steps follow within half a second. Otherwise all of them would wait for a primary, and begin at the same moment.

All other requests (heartbeats, scans, claims, queries of people) bypass the breaker. They are not retried, so their
only try must not be refused. A worker that sends no heartbeat is presumed dead. Redis has no breaker: a message is sent
at most twice, because messages are only hints.

Metrics: recovery_circuit_breaker_changes.
"""

from __future__ import annotations

import logging
import os
import random
import time
from collections.abc import Callable
from functools import lru_cache
from typing import TypeVar

from recovery import metrics
from recovery.addresses import public
from recovery.engine.resources import Resources
from recovery.retry.breaker import CircuitBreaker
from recovery.retry.in_place import by_driver, call, guarded
from recovery.retry.own_work import STORE_CALL
from recovery.retry.strategies import Stop
from recovery.waits import waits

T = TypeVar("T")


def through_outage(resources: Resources, step: Callable[[], T], seconds: float, what: str) -> T:
    """Return the result of `step`, and retry it while MongoDB cannot be reached or accepts no writes.

    The last try begins after `seconds`, even if the breaker is open. An earlier try that hung until then says only how
    MongoDB was before. Therefore the strategy ends the retries, and not a deadline of the orchestrator: a deadline
    would cut the delay before the last try and cancel the try. The work of a call that hung is not thrown away.

    Args:
        step: A request that may run twice.
        seconds: Seconds after which the last try begins.
        what: What logs name while the request waits: the id of a decision or process.

    Raises:
        StoreUnavailable: The last try failed, too.
    """
    ends_at, is_last = time.monotonic() + seconds, False

    def attempt() -> T:
        nonlocal is_last
        is_last = time.monotonic() >= ends_at
        circuit_breaker = breaker(resources.settings.mongo_uri)
        if not is_last and resources.store.is_away():
            circuit_breaker.note_away()
        return guarded(step, circuit_breaker, by_driver, always=is_last)

    after_last_try = Stop(lambda _request, _reason: is_last)
    with waits().noted(what):
        request = STORE_CALL.request(what, stop=after_last_try, calculator=pause)
        # The breaker logs the outage, once for all calls of this operating-system process.
        return call(attempt, request, classified=by_driver, level=logging.DEBUG)


def pause(retries: int) -> float:
    """Return the seconds before the next try. They are random, so that waiting steps do not all retry at once."""
    return STORE_CALL.delay(retries + 1) * random.uniform(0.5, 1)


def breaker(mongo_uri: str) -> CircuitBreaker:
    """Return the circuit breaker of a MongoDB in this operating-system process. A forked process makes its own."""
    return _breaker(mongo_uri, os.getpid())


@lru_cache(maxsize=8)
def _breaker(mongo_uri: str, _pid: int) -> CircuitBreaker:
    return CircuitBreaker(
        f"MongoDB at {public(mongo_uri)}",
        # The driver presumes a server away after one lost connection, too, and then waits for another server. A second
        # failure might come 20 s later, when all slots wait. If only a connection was lost, this costs one pause.
        failures=1,
        pause=STORE_CALL.policy.initial,
        longest_pause=STORE_CALL.policy.maximum,
        changed=lambda state: metrics.BREAKER_CHANGES.labels("mongodb", state.value).inc(),
    )
