"""How young the youngest message is that was taken of each queue, told a moment after.

By it the older ones of its queue count as lost. What is taken just now is taken before its elders are claimed, perhaps:
a worker that starts takes for all of its slots at once what has waited for long, and they are not ready yet.
"""

from __future__ import annotations

from datetime import datetime

from recovery.worker.lifeline.watch import ServerClock


class Taken:
    """Of one worker. Written by its event loop; asked by whoever beats."""

    def __init__(self, clock: ServerClock, margin: float) -> None:
        self._clock, self._margin = clock, margin
        """Seconds within which what is taken is claimed."""
        self._youngest: dict[str, datetime] = {}
        self._kept: dict[str, datetime] = {}
        self._kept_at = float("-inf")
        self._told: dict[str, datetime] = {}

    def add(self, queue: str, queued_at: datetime, now: float) -> None:
        """A message was taken, at `now` by the monotonic clock. Called for every message: cheap."""
        youngest = self._youngest.get(queue)
        if youngest is not None and queued_at <= youngest:
            return
        if not self._clock.is_to_come(queued_at, now):  # else it is forged, and would hide the others
            self._youngest[queue] = queued_at

    def claimed(self, now: float) -> dict[str, datetime]:
        """{queue: `queuedAt` of the youngest that was taken so long ago that all that was taken before is claimed}."""
        for queue, youngest in list(self._youngest.items()):
            # A time that no message can have, taken while the clock was not known, must not hide what comes after it.
            if self._clock.is_to_come(youngest, now) and self._youngest[queue] == youngest:
                del self._youngest[queue]
        if now - self._kept_at >= self._margin:
            self._told, self._kept, self._kept_at = self._kept, dict(self._youngest), now
        return {queue: moment for queue, moment in self._told.items() if not self._clock.is_to_come(moment, now)}
