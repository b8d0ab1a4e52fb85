"""Tells that there is a Spark at work, for the operation that is driven in it and for those that wait for their turn.
So no other driver takes the one, and recovery workers leave all of them alone.

Not where a job waits for executors that don't come: then workers go on, after a minute.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from recovery.engine import Resources
from recovery.engine.isolation import in_a_line

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
    over = threading.Event()

    def attend() -> None:
        while not over.wait(ATTEND_EVERY):
            try:
                if driver.hold() and (numbers := waiting()):
                    resources.store.operations.attend(numbers)
            except Exception as error:  # of the servers, or of whatever another program wrote
                log.warning("operations in Spark: %s", in_a_line(error))

    thread = threading.Thread(target=attend, name="spark turns", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
