"""Time that goes by when a test says so."""

from __future__ import annotations

import time


class Clock:
    """Stands for the module `time` where only `monotonic` is to go by when a test says so."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def monotonic(self) -> float:
        return self.now

    @staticmethod
    def time() -> float:
        return time.time()
