"""A line now and then, for what others can bring about as often as they like: a log must not fill a disk."""

from __future__ import annotations

import logging
import threading
import time

EVERY = 1.0
"""Seconds between two lines of a kind, unless it is said otherwise."""
KINDS = 1000
"""Of so many it is known when they were said last."""


class Seldom:
    """Says one line of a kind, and then none of that kind for a while; the next one tells how many were not said. Its
    kind is its text before anything is put in, of which a program has a few, and what it is `about`. Any thread."""

    def __init__(self, log: logging.Logger, every: float | None = None) -> None:
        self._log, self._every = log, every
        self._lock = threading.Lock()
        self._said_at: dict[tuple[str, str], float] = {}
        self._unsaid: dict[tuple[str, str], int] = {}

    def warning(self, message: str, *args: object, about: str = "") -> None:
        """Say it, or count it."""
        kind = (message, about)
        with self._lock:
            now = time.monotonic()
            if now - self._said_at.get(kind, float("-inf")) < (EVERY if self._every is None else self._every):
                self._unsaid[kind] = self._unsaid.get(kind, 0) + 1
                return
            self._said_at.pop(kind, None)  # the last said stands last
            self._said_at[kind] = now
            unsaid = self._unsaid.pop(kind, 0)
            if len(self._said_at) > KINDS:
                oldest = next(iter(self._said_at))
                del self._said_at[oldest]
                self._unsaid.pop(oldest, None)
        more = f", and {unsaid:,} more since the last line" if unsaid else ""
        self._log.warning(f"{message}%s", *args, more, stacklevel=2)
