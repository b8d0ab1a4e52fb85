"""Whether Redis has kept what was pushed: a key that it lacks once it lost its data, however that came about.

By list commands alone, which whoever serves queues may use anyway.
"""

from __future__ import annotations

import os

from redis import Redis

from recovery.queue.clients import client
from recovery.queue.driver_errors import translated

KEY = "recovery.kept"


@translated
class Kept:
    """The key at one Redis address."""

    def __init__(self, url: str) -> None:
        self._url = url

    @property
    def _redis(self) -> Redis:
        return client(self._url, os.getpid())

    def is_noted(self) -> bool:
        """Whether Redis has kept everything since this was noted."""
        return bool(self._redis.exists(KEY))

    def note(self) -> None:
        """From now on it is to be known when all is lost. Noted twice it is noted."""
        self._redis.lpush(KEY, "so was all that was pushed")
