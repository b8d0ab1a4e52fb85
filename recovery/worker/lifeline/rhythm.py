"""When a worker beats: at moments of MongoDB's clock that it shares with others.

To wake up a mongod that sleeps is much of what a heartbeat costs it, and what it does after each write that comes by
itself: a dozen that come together cost a quarter less (measured; `make bench ONLY=heartbeats`). So there are a few
moments in an interval, and each worker has one of them, by its id. Where there are hundreds of workers there are more,
of a dozen workers each: nothing waits long behind heartbeats. No fewer than a few, or nobody of a machine's workers
would look around between two heartbeats of one that has died.

Whatever has all workers beat at once (an operator's command, the end of an outage), each comes back to its own.
"""

from __future__ import annotations

from datetime import datetime
from zlib import crc32

FEWEST = 8
"""Moments in an interval, at least."""
TOGETHER = 12
"""Workers that have a moment in common, about, where there are more of them than for the fewest moments."""
LATE = 1 / 16
"""Of an interval: by so much at most is a heartbeat later than its interval says. One that is a little early or late
keeps its moment."""


class Rhythm:
    """Of one worker, for its heartbeats every `interval` seconds. Times without a zone are by a clock that only
    measures."""

    def __init__(self, worker_id: str, interval: float) -> None:
        number = crc32(worker_id.encode())
        self._place, self._interval, self._late = number / 2**32, interval, LATE * interval
        self.first = number % 2 == 0
        """Whether it is of the first half of all workers, where half of them do something and then the others."""
        self._ahead: float | None = None

    def saw(self, now: datetime, asked: float, answered: float) -> None:
        """What MongoDB's clock showed between these times. Of a slow answer nobody knows when it was given."""
        if answered - asked < self._late:
            self._ahead = now.timestamp() - (asked + answered) / 2

    def until_next(self, at: float, workers: int) -> float:
        """Seconds from a heartbeat at this time to the next, where there are so many workers. A whole interval as long
        as MongoDB's clock is not known."""
        if self._ahead is None:
            return self._interval
        moments = max(FEWEST, workers // TOGETHER)
        moment = int(self._place * moments) / moments * self._interval
        return self._interval + self._late - (at + self._ahead - moment + self._late) % self._interval
