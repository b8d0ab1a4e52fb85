"""A call that is tried again where it stands, in its own thread: of ours, to a server. What has to survive a crash is
retried by its record's deadline instead.

The orchestrator decides; an error that no catalogue takes for one that passes is raised at once. Between two tries the
thread waits.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from recovery.retry.breaker import CircuitBreaker, CircuitOpen
from recovery.retry.catalogue import Catalogue, Classified, classify
from recovery.retry.catalogues import SHIPPED
from recovery.retry.codes import ErrorCode
from recovery.retry.orchestrator import Ruling, Verdict, maybe_retry
from recovery.retry.reasons import CIRCUIT_BREAKER_OPEN
from recovery.retry.request import Request

T = TypeVar("T")

OPEN = ErrorCode(20001, "CIRCUIT_BREAKER_OPEN", "The circuit breaker is open, so nothing was sent")


def call(
    step: Callable[[], T],
    request: Request,
    *,
    catalogues: Sequence[Catalogue] = SHIPPED,
    breaker: CircuitBreaker | None = None,
    wait: Callable[[float], object] | None = None,
) -> T:
    """What `step` gives, tried again as the orchestrator says; else what it raised last. With a `breaker` nothing is
    sent while that is open."""
    pause = wait or threading.Event().wait
    while True:
        try:
            if breaker is None:
                return step()
            # What is wrong with the call says nothing of the server.
            return breaker.call(step, lambda error: _classified(error, catalogues).is_retriable)
        except Exception as error:
            found = _classified(error, catalogues)
            if not found.is_retriable:
                raise
            ruling = _decided(maybe_retry(request, found.reason))
            if ruling.verdict is Verdict.FAIL:
                raise
            delay = max(ruling.delay, found.retry_after or 0.0)
            left = request.remaining
            ends = ruling.verdict is Verdict.CANCEL or (left is not None and delay >= left)
            pause(delay if left is None else min(delay, left))
            if ends:
                raise


def _classified(error: Exception, catalogues: Sequence[Catalogue]) -> Classified:
    if isinstance(error, CircuitOpen):
        return Classified(OPEN, CIRCUIT_BREAKER_OPEN)
    return classify(error, catalogues)


def _decided(asked: Coroutine[Any, Any, Ruling]) -> Ruling:
    """What the orchestrator says, whose strategies may do I/O: in a loop of its own, and in a thread of its own where
    this one has a loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(asked)
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, asked).result()
