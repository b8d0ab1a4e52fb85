"""Whether Redis has kept what was pushed: a key that it lacks once it lost its data, however that came about.

By list commands alone, which whoever serves queues may use anyway.
"""

from __future__ import annotations

from recovery.queue.clients import Addressed
from recovery.queue.driver_errors import translated

KEY = "recovery.kept"


@translated
class Kept(Addressed):
    """The key at one Redis address."""

    def is_noted(self) -> bool:
        """Whether Redis has kept everything since this was noted."""
        return bool(self._redis.exists(KEY))

    def note(self) -> None:
        """From now on it is to be known when all is lost. Noted twice it is noted."""
        self._redis.lpush(KEY, "so was all that was pushed")
