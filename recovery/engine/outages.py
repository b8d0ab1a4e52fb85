"""Waiting for a database that is away, where giving up would throw work away: calls of ours that are tried again where
they stand, by the retry orchestrator.

Only for steps that may run twice. Each write is a compare-and-set on the state that it was decided from, or an insert
under an id of its own: sent again after an answer that was lost, it finds what it wrote itself, and says so. So every
request here is idempotent, also in flight. A call of the store itself waits for a primary for up to 20 s, and no write
is tried again by it.

What says that the database is away, an error or what the driver saw when it looked last, opens its circuit breaker, one
for each MongoDB in a process: then one of these steps at a time finds out whether it is back, and the others, which
would all wait for a primary and begin in the moment that there is one, follow within half a second. All else is sent as
ever (heartbeats, scans, claims, whatever is asked by people): what is not tried again must not be kept from its one
try, and who sends no heartbeat is taken for dead.
Redis has none: a message is sent once more at most, since messages are hints.

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
    """What `step` gives, tried again for up to `seconds` while the database can't be reached, or takes no writes.

    The last try begins once they are over: one that hung until then tells how the database was, not how it is. So this
    is no deadline as the orchestrator has them, which cuts the delay before the last try and cancels that; the strategy
    stops instead, and the work of a call that hung is not thrown away. Nor by the breaker: it lets the last try pass.
    """
    until, is_last = time.monotonic() + seconds, False

    def attempt() -> T:
        nonlocal is_last
        is_last = time.monotonic() >= until
        server = breaker(resources.settings.mongo_uri)
        if not is_last and resources.store.is_away():
            server.note_away()
        return guarded(step, server, by_driver, always=is_last)

    over = Stop(lambda _request, _reason: is_last)
    with waits().noted(what):
        request = STORE_CALL.request(what, stop=over, calculator=pause)
        # The breaker logs the outage, once for all calls of this process.
        return call(attempt, request, classified=by_driver, level=logging.DEBUG)


def pause(retries: int) -> float:
    """Seconds before the next try; not the same of all that wait."""
    return STORE_CALL.delay(retries + 1) * random.uniform(0.5, 1)


def breaker(mongo_uri: str) -> CircuitBreaker:
    """The breaker of a MongoDB, in this process; a fork makes its own."""
    return _breaker(mongo_uri, os.getpid())


@lru_cache(maxsize=8)
def _breaker(mongo_uri: str, _pid: int) -> CircuitBreaker:
    return CircuitBreaker(
        f"MongoDB at {public(mongo_uri)}",
        # The driver, too, takes a server for away by one connection that is lost, and waits for another one: a second
        # failure may be 20 s later, with all slots waiting by then. Where it was a mere connection, it costs a pause.
        failures=1,
        pause=STORE_CALL.policy.initial,
        longest_pause=STORE_CALL.policy.maximum,
        changed=lambda state: metrics.BREAKER_CHANGES.labels("mongodb", state.value).inc(),
    )
