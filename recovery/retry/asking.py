"""Asking the orchestrator from code that is not asynchronous."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


def decided(asked: Coroutine[Any, Any, T]) -> T:
    """What is answered, by strategies that may do I/O: in a loop of its own, and in a thread of its own where this one
    has a loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(asked)
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, asked).result()
