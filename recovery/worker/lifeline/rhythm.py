"""When a worker beats: at moments of MongoDB's clock that it shares with others.

To wake up a mongod that sleeps is much of what a heartbeat costs it: a dozen that come together cost half of what they
cost one by one (measured; `make bench ONLY=heartbeats`). So there are a few moments in an interval, and each worker
keeps to the one that it came to first. Where there are hundreds there are more, of a dozen workers each: nothing waits
long behind heartbeats. No fewer than a few, or nobody of a machine's workers would look around between two heartbeats
of one that has died.
"""

from __future__ import annotations

import math
from datetime import datetime

FEWEST = 8
"""Moments in an interval, at least."""
TOGETHER = 12
"""Workers that have a moment in common, about, where there are more of them than for the fewest moments."""
LATE = 1 / 8
"""Of the time between two moments: by so much at most is a heartbeat later than its interval says. So one that is a
little early or late by its clock keeps its moment."""


def until_next(now: datetime, interval: float, workers: int) -> float:
    """Seconds from a heartbeat at `now`, by MongoDB's clock, to the next, of one of so many workers. Earlier than an
    interval where that leads to a moment."""
    apart = interval / max(FEWEST, workers // TOGETHER)
    beat = now.timestamp()
    due = beat + interval + LATE * apart
    return math.floor(due / apart) * apart - beat
