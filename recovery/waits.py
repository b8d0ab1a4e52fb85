"""Warnings while writes wait for MongoDB. A write that waits for a majority fails late or never, and logs nothing
itself.

Each call that may wait is noted while it runs, at the cost of two dictionary operations. While calls are noted, a
thread checks them every LOOK_EVERY seconds. It logs a line when a call has waited for SAID_AFTER seconds, again every
SAID_EVERY seconds, and once more when no call waits any longer. Each process has its own `Waits`, also after a fork.
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
"""Seconds of waiting until the first warning, and seconds between two warnings.

A write takes milliseconds, or a second for a batch of a thousand on a busy machine.
"""
LOOK_EVERY = 1.0
"""Seconds between two checks of the waiting calls."""


class Waits:
    """The calls of a process that wait for MongoDB now."""

    def __init__(self, said_after: float = SAID_AFTER) -> None:
        self._warn_after = said_after
        self._calls: dict[int, tuple[str, float]] = {}
        self._numbers = itertools.count()
        self._lock, self._watching = threading.Lock(), False
        self._warned_at: float | None = None
        self._longest = 0.0

    @contextmanager
    def noted(self, what: str) -> Iterator[None]:
        """Note a call while the block runs. `what` names it in the warning."""
        number = next(self._numbers)
        self._calls[number] = what, time.monotonic()
        if not self._watching:
            self._watch()
        try:
            yield
        finally:
            del self._calls[number]

    def _watch(self) -> None:
        if not self._claim_watch():
            return
        if not try_start(threading.Thread(target=self._watch_calls, name="waits", daemon=True)):
            self._watching = False  # only the warnings are missing

    def _claim_watch(self) -> bool:
        """Claim the watch for a new thread. Return False if a thread watches already."""
        with self._lock:
            if self._watching:
                return False
            self._watching = True
            return True

    def _watch_calls(self) -> None:
        pause = threading.Event()
        while True:
            pause.wait(min(LOOK_EVERY, self._warn_after))
            self.look()
            if not self._calls and self._warned_at is None:
                self._watching = False
                # A call noted meanwhile either saw that no thread watches, and started one, or is seen by this check.
                if not self._calls or not self._claim_watch():
                    return

    def look(self) -> None:
        """Log a warning that calls wait, or that none waits any longer, if it is due."""
        now = time.monotonic()
        late = [(now - began, what) for what, began in list(self._calls.values()) if now - began > self._warn_after]
        if late:
            self._longest, what = max(late)
            if self._warned_at is None or now - self._warned_at > SAID_EVERY:
                self._warned_at = now
                log.warning(
                    "MongoDB has not confirmed %d writes for up to %.0f s, such as of %s: no majority of its members "
                    "has them, or the primary is lost; the calls wait for them, or retry them",
                    len(late),
                    self._longest,
                    what,
                )
        elif self._warned_at is not None:
            log.warning("MongoDB confirms writes again; the longest waited for %.0f s", self._longest)
            self._warned_at = None


def waits() -> Waits:
    """Return the `Waits` of this process."""
    return _waits(os.getpid())


@lru_cache(maxsize=1)
def _waits(_pid: int) -> Waits:
    return Waits()
