"""A line a second at most, for what others can bring about as often as they like: a log must not fill a disk."""

from __future__ import annotations

import logging
import threading
import time

EVERY = 1.0
"""Seconds between two lines of a kind."""


class Seldom:
    """Says one line of a kind, and then none of that kind for a while; the next one tells how many were not said. Its
    kind is its text before anything is put in, of which a program has a few. Any thread."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._said_at: dict[str, float] = {}
        self._unsaid: dict[str, int] = {}

    def warning(self, message: str, *args: object) -> None:
        """Say it, or count it."""
        with self._lock:
            now = time.monotonic()
            if now - self._said_at.get(message, float("-inf")) < EVERY:
                self._unsaid[message] = self._unsaid.get(message, 0) + 1
                return
            self._said_at[message] = now
            unsaid = self._unsaid.pop(message, 0)
        more = f", and {unsaid:,} more since the last line" if unsaid else ""
        self._log.warning(f"{message}%s", *args, more, stacklevel=2)
