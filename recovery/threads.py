"""Threads that work in the background of a program, begun when there is first something to do.

A system that has no thread to give just now has one later: that one could not be begun is no error to whoever has work
for it, and the next work tries again. Until then whoever has the work does it himself, or leaves it to its deadline.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from recovery.seldom import Seldom

log = logging.getLogger(__name__)
_said = Seldom(log, every=60.0)


def try_start(thread: threading.Thread) -> bool:
    """Start a thread: whether it could be. Does not raise."""
    try:
        thread.start()
    except RuntimeError as error:  # no more threads for this user, or container, just now
        _said.warning("no thread for %s (%s)", thread.name, error)
        return False
    return True


class Background:
    """One thread that does `work`, which does not end."""

    def __init__(self, work: Callable[[], None], name: str) -> None:
        self._work, self._name = work, name
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def begin(self) -> bool:
        """Have it work, if it does not: whether it does. Does not raise."""
        if self._thread is not None and self._thread.is_alive():
            return True
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                thread = threading.Thread(target=self._work, name=self._name, daemon=True)
                self._thread = thread if try_start(thread) else None
            return self._thread is not None
