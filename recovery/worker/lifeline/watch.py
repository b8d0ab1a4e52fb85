"""MongoDB's clock and the other workers, watched by a clock of our own that only measures.

All deadlines are by MongoDB's clock, so that it does not matter whose clocks are wrong. It may step itself: somebody
sets it, or another member of the replica set is the primary now, whose clock is ahead. Then all that is at work is
overdue at once, and each worker seems to have been silent for as long as the step. Who watched knows better.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from recovery.limits import SILENCE_FAR_OFF
from recovery.records import is_same_deadline

STEP = 1.0
"""Seconds forward between two looks that count as a step. Heartbeats and deadlines bear as much, and clocks that are
only kept right move by milliseconds."""


@dataclass(slots=True)
class ServerClock:
    """By how much MongoDB's clock is ahead of ours, between what and what: an answer takes its time."""

    _ahead: tuple[float, float] | None = None
    wall_ahead: float | None = None
    """Seconds by which this machine's clock that people read is ahead of MongoDB's, to a tenth."""

    def look(self, now: datetime, asked: float, answered: float) -> bool:
        """Whether it stepped forward since the last look; `now` was the answer, the rest is by our clock."""
        if answered - asked > STEP:
            return False  # says too little; the next one is compared with the last good one
        wall = time.time() - (time.monotonic() - (asked + answered) / 2)
        self.wall_ahead = round(wall - now.timestamp(), 1)
        before, self._ahead = self._ahead, (now.timestamp() - answered, now.timestamp() - asked)
        return before is not None and self._ahead[0] - before[1] > STEP

    def least(self, at: float) -> datetime | None:
        """What MongoDB's clock shows at least, at `at` by ours; None if nothing is known."""
        return datetime.fromtimestamp(at + self._ahead[0], UTC) if self._ahead is not None else None

    def is_to_come(self, moment: datetime, at: float) -> bool:
        """Whether it is later than MongoDB's clock can show now, at `at` by ours; False if nothing is known."""
        return self._ahead is not None and moment.timestamp() > at + self._ahead[1] + STEP


@dataclass(frozen=True, slots=True)
class _Seen:
    deadline: Any
    """As it stands in the record."""
    until: float
    """The same, by our clock."""


@dataclass(slots=True)
class Watch:
    """Until when each worker's record may stay as it is, by our own clock.

    A deadline is carried over when it is seen first, if it is one that a worker may have. No worker is given less than
    a heartbeat timeout since we last saw another deadline of it: so whatever MongoDB's clock does, one that beats is
    not silent. Read by another thread.
    """

    timeout: float
    _seen: dict[str, _Seen] = field(default_factory=dict)
    _looked: float = float("-inf")

    def look(self, deadlines: Mapping[str, Any], now: datetime, at: float) -> None:
        """These are the workers' deadlines, `now` by MongoDB's clock, and `at` by ours."""
        since = at - self._looked
        # After a pause nobody knows when it changed: as if it were now.
        least = self.timeout - (since if since <= self.timeout / 2 else 0.0)
        self._seen = {
            worker: _Seen(deadline, before.until)
            if (before := self._seen.get(worker)) and is_same_deadline(before.deadline, deadline)
            else _Seen(deadline, at + max(least, _left(deadline, now)))
            for worker, deadline in deadlines.items()
        }
        self._looked = at

    def silent(self, at: float) -> dict[str, Any]:
        """Workers whose time is over, and the deadlines that stand in their records."""
        return {worker: seen.deadline for worker, seen in self._seen.items() if seen.until < at}


def _left(deadline: Any, now: datetime) -> float:
    # What no worker writes, whatever its heartbeat timeout, was written by others, or by a clock that was far ahead:
    # the least time holds.
    left = (deadline - now).total_seconds() if isinstance(deadline, datetime) else 0.0
    return left if left < SILENCE_FAR_OFF else 0.0
