"""Says that calls wait for MongoDB: a write that waits for a majority fails late, or never, and until then a log would
show nothing at all.

Each call that may wait is noted while it lasts, at the cost of two dictionary operations. A thread looks once a second
while there are some, and says one line when the first has waited for SAID_AFTER, one each SAID_EVERY, and one when none
waits any more. One for each process; a fork makes its own.
"""

from __future__ import annotations

import itertools
import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

from recovery.threads import try_start

log = logging.getLogger(__name__)

SAID_AFTER, SAID_EVERY = 3.0, 60.0
"""Seconds. A write takes milliseconds, and one of a thousand on a busy machine a second."""
LOOK_EVERY = 1.0


class Waits:
    """The calls of a process that wait for MongoDB now."""

    def __init__(self, said_after: float = SAID_AFTER) -> None:
        self._after = said_after
        self._calls: dict[int, tuple[str, float]] = {}
        self._numbers = itertools.count()
        self._lock, self._watching = threading.Lock(), False
        self._said_at: float | None = None
        self._longest = 0.0

    @contextmanager
    def noted(self, what: str) -> Iterator[None]:
        """Note a call while the block runs."""
        number = next(self._numbers)
        self._calls[number] = what, time.monotonic()
        if not self._watching:
            self._watch()
        try:
            yield
        finally:
            del self._calls[number]

    def _watch(self) -> None:
        if not self._take_watch():
            return
        if not try_start(threading.Thread(target=self._look_on, name="waits", daemon=True)):
            self._watching = False  # nothing is said, and nothing else depends on it

    def _take_watch(self) -> bool:
        """Become the thread that watches. Return False if another one watches already."""
        with self._lock:
            if self._watching:
                return False
            self._watching = True
            return True

    def _look_on(self) -> None:
        pause = threading.Event()
        while True:
            pause.wait(min(LOOK_EVERY, self._after))
            self.look()
            if not self._calls and self._said_at is None:
                self._watching = False
                # Whoever came meanwhile either saw that nobody watches, or is seen here.
                if not self._calls or not self._take_watch():
                    return

    def look(self) -> None:
        """Log that calls wait, or wait no longer, if that is due."""
        now = time.monotonic()
        late = [(now - began, what) for what, began in list(self._calls.values()) if now - began > self._after]
        if late:
            self._longest, what = max(late)
            if self._said_at is None or now - self._said_at > SAID_EVERY:
                self._said_at = now
                log.warning(
                    "MongoDB has not confirmed %d writes for up to %.0f s, such as of %s: no majority of its members "
                    "has them, or the primary is lost; they are waited for, or tried again",
                    len(late),
                    self._longest,
                    what,
                )
        elif self._said_at is not None:
            log.warning("MongoDB confirms writes again; the longest waited for %.0f s", self._longest)
            self._said_at = None


def waits() -> Waits:
    """Return the waits of this process."""
    return _waits(os.getpid())


@lru_cache(maxsize=1)
def _waits(_pid: int) -> Waits:
    return Waits()
