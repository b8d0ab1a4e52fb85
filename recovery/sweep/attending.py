"""Tells that there is a Spark at work, for the operation that is driven in it and for those that wait for their turn.
So no other driver takes the one, and recovery workers leave all of them alone.

Not where a job waits for executors that don't come: then workers go on, after a minute.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from recovery.engine import Resources
from recovery.engine.isolation import in_a_line
from recovery.threads import ServiceThread

log = logging.getLogger(__name__)

ATTEND_EVERY = 10.0
"""Seconds. What waits is left alone after sixty."""


class Drives(Protocol):
    """Who drives operations."""

    def hold(self) -> bool:
        """Go on having the operation that is driven now, if there is one; False: nobody is at work."""


@contextmanager
def attended(resources: Resources, driver: Drives, waiting: Callable[[], Sequence[int]]) -> Iterator[None]:
    """Have a thread tell it meanwhile. `waiting`: the numbers of the operations that wait."""

    def attend() -> float:
        if driver.hold() and (numbers := waiting()):
            resources.store.operations.attend(numbers)
        return ATTEND_EVERY

    def failed(error: Exception) -> float:  # of the servers, or of whatever another program wrote
        log.warning("operations in Spark: %s", in_a_line(error))
        return ATTEND_EVERY

    thread = ServiceThread("spark turns", attend, failed, first=ATTEND_EVERY)
    thread.start()
    try:
        yield
    finally:
        thread.stop(timeout=None)
