"""Who scans just now, told in Redis: scanners of many workers share what is overdue, and none of them leads.

A hint like all else in Redis: where it is away two look at the same page, and one of them in vain; and a share whose
scanner died is looked at a while later.
"""

from __future__ import annotations

from recovery.queue.clients import Addressed
from recovery.queue.driver_errors import translated

KEY = "recovery.scanning"
LIVES = 10
"""Seconds after which one who said that he scans, and not that he has ended, counts no more: longer than the other
scanners of a worker have their turns."""


@translated
class Places(Addressed):
    """The places at one Redis address."""

    def take(self, name: str) -> tuple[int, int]:
        """The place of `name` among those who scan, from 0, and how many they are. By Redis's clock."""
        now, _ = self._redis.time()
        with self._redis.pipeline(transaction=False) as pipeline:
            pipeline.zadd(KEY, {name: now})
            pipeline.zrangebyscore(KEY, now - LIVES, now + LIVES)
            pipeline.pexpire(KEY, 10 * LIVES * 1000)
            _, names, _ = pipeline.execute()
        there = sorted({name, *(one.decode(errors="replace") for one in names)})
        return there.index(name), len(there)

    def leave(self, name: str) -> None:
        """It scans no more."""
        self._redis.zrem(KEY, name)
