"""A line a second at most, for what others can bring about as often as they like: a log must not fill a disk."""

from __future__ import annotations

import logging
import threading
import time

EVERY = 1.0
"""Seconds between two lines."""


class Seldom:
    """Says one line of any kind, and then none for a while; the next one tells how many were not said. Any thread."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._said_at, self._unsaid = float("-inf"), 0

    def warning(self, message: str, *args: object) -> None:
        """Say it, or count it."""
        self._say(logging.WARNING, message, *args)

    def info(self, message: str, *args: object) -> None:
        """The same of what is no trouble."""
        self._say(logging.INFO, message, *args)

    def _say(self, level: int, message: str, *args: object) -> None:
        if not self._log.isEnabledFor(level):
            return
        with self._lock:
            now = time.monotonic()
            if now - self._said_at < EVERY:
                self._unsaid += 1
                return
            more = f", and {self._unsaid:,} more since the last line" if self._unsaid else ""
            self._said_at, self._unsaid = now, 0
        self._log.log(level, f"{message}%s", *args, more)
