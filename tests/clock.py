"""Time that goes by when a test says so."""

from __future__ import annotations


class Clock:
    """Stands for the module `time` where only `monotonic` is asked for."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def monotonic(self) -> float:
        return self.now
