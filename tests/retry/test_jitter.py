"""Jitter is there so that not all retries come together: those of one worker's processes neither."""

from __future__ import annotations

import asyncio
import multiprocessing

from recovery.retry import Durable, reason_of
from recovery.retry.strategies import ServerCall


def _delays(_: int) -> list[float | None]:
    strategy = Durable()
    request, reason = ServerCall("a task", strategy, idempotent=True), reason_of("NODE_NOT_AVAILABLE")
    return [asyncio.run(strategy.retry_after(request, reason)).duration for _ in range(3)]


def test_processes_that_were_forked_from_one_wait_differently() -> None:
    with multiprocessing.get_context("fork").Pool(4) as pool:
        found = pool.map(_delays, range(4), chunksize=1)
    delays = [delay for some in found for delay in some]
    assert len(set(delays)) == len(delays) == 12
