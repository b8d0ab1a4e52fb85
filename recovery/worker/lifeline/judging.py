"""Whether a worker may judge others by their silence, and whether scans are held back.

All deadlines are by MongoDB's clock, so that it does not matter whose clocks are wrong. It may step itself: somebody
sets it, or another member of the replica set is the primary now, whose clock is ahead. Then all that is at work is
overdue at once, and each worker seems to have been silent for as long as the step. So each worker watches MongoDB's
clock and the other workers' deadlines by its own monotonic clock.

A worker that was cut off itself, or stood still, does not know what it missed: others may have been cut off with it,
and are given a heartbeat timeout to write what they could not. So are all workers after MongoDB's clock stepped.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from recovery.errors import StoreError
from recovery.limits import SILENCE_FAR_OFF
from recovery.records import is_same_deadline
from recovery.settings import Settings

log = logging.getLogger(__name__)

HOLD_EVERY = 5
"""Heartbeat timeouts that scans go on at least, between two that they are held back."""
STEP = 1.0
"""Seconds forward between two looks that count as a step. Heartbeats and deadlines bear as much, and clocks that are
only kept right move by milliseconds."""


class Judging:
    """What one worker knows of MongoDB's clock, and of how long it was served. Threads ask it beside the heartbeats.

    `ask` gives the time by MongoDB's clock, and raises StoreError; `on_step` is called where that clock stepped.
    """

    def __init__(self, settings: Settings, ask: Callable[[], datetime], on_step: Callable[[], object]) -> None:
        self._settings, self._ask, self._on_step = settings, ask, on_step
        self.clock, self._clock_lock = ServerClock(), threading.Lock()
        self._watch = SilenceWatch(settings.heartbeat_timeout)
        self._served_since: float | None = None
        self._served_last = 0.0
        self._away = False
        self._hold_until = -math.inf

    def was_served(self, smoothly: bool) -> None:
        """Note that a heartbeat was written; `smoothly`: by its first try, and in time."""
        now = time.monotonic()
        if not smoothly:
            self._served_since = None  # the database was away for a while, and so for all
        elif self._served_since is None or not self.is_served():
            # One that stood still (its machine was paused, say) did so with others, perhaps. Whoever goes on first must
            # not judge those that are about to.
            self._served_since = now
        self._served_last = now
        if self._away:
            self._hold_back()
        self._away = False

    def was_not_served(self, outage: bool) -> None:
        """Note that a heartbeat was not written. An error that does not pass by itself is no `outage`: scans must not
        wait for it."""
        self._served_since, self._away = None, outage

    def is_served(self) -> bool:
        """Whether the last heartbeat of this worker is recent. Otherwise the worker was held up, and does not know what
        it missed."""
        return time.monotonic() - self._served_last < 2 * self._settings.heartbeat_interval

    def may_judge(self) -> bool:
        """Whether this worker was up and served for a whole heartbeat timeout, and so may judge others by their
        silence."""
        if not self._settings.events or not self.is_served():
            return False
        since = self._served_since  # read after `_served_last`, and written before it, by another thread
        return since is not None and time.monotonic() - since > self._settings.heartbeat_timeout

    def saw(self, deadlines: Mapping[str, Any], now: datetime) -> None:
        """Note the deadlines of all workers, as they stood at `now` by MongoDB's clock."""
        self._watch.look(deadlines, now, time.monotonic())

    def silent(self) -> Mapping[str, Any]:
        """Return the workers that this one may call lost by their silence, with the deadlines in their records."""
        silent = self._watch.silent(time.monotonic())
        return silent if self.may_judge() else {}  # asked last: one that stands still in between must not judge

    def in_outage_grace(self, ask: Callable[[], datetime] | None = None) -> bool:
        """Whether the database was away until less than a heartbeat timeout ago, or its clock stepped. What is overdue
        then is overdue for that reason: its workers get time to write what they could not, before others are set to do
        it again. Asked before each scan; asks the database, by `ask` if it is given."""
        try:
            self.look_at_clock(ask)
        except StoreError as error:
            log.debug("MongoDB's clock not seen (%s)", error)  # the scan says it
        return self._away or time.monotonic() < self._hold_until

    def look_at_clock(self, ask: Callable[[], datetime] | None = None) -> datetime:
        """Return the time by MongoDB's clock, as `ask` returns it. If the clock stepped, scans are held back for as
        long as others take to notice. Raises StoreError."""
        asked = time.monotonic()
        # Not under the lock: a scan's question may wait for long, and a heartbeat must not.
        now = (ask or self._ask)()
        answered = time.monotonic()
        with self._clock_lock:
            if self.clock.look(now, asked, answered):
                log.warning("MongoDB's clock stepped forward: no worker is judged by it, and all claims here beat")
                self._hold_back()
                self._on_step()
        return now

    def _hold_back(self) -> None:
        """Hold scans back for a heartbeat timeout. Not soon after the last time: if outages or steps follow each other,
        recovery has to go on between them, though it may repeat what somebody still works at."""
        now, timeout = time.monotonic(), self._settings.heartbeat_timeout
        if now > self._hold_until + HOLD_EVERY * timeout:
            self._hold_until = now + timeout


@dataclass(slots=True)
class ServerClock:
    """How far MongoDB's clock is ahead of ours, as a least and a largest number of seconds, because an answer takes its
    time."""

    _ahead: tuple[float, float] | None = None
    wall_ahead: float | None = None
    """Seconds by which this machine's clock that people read is ahead of MongoDB's, to a tenth."""

    def look(self, now: datetime, asked: float, answered: float) -> bool:
        """Compare the clocks. Return whether MongoDB's clock stepped forward since the last look; `now` was its answer,
        `asked` and `answered` are by our clock."""
        if answered - asked > STEP:
            return False  # says too little; the next one is compared with the last good one
        wall = time.time() - (time.monotonic() - (asked + answered) / 2)
        self.wall_ahead = round(wall - now.timestamp(), 1)
        before, self._ahead = self._ahead, (now.timestamp() - answered, now.timestamp() - asked)
        return before is not None and self._ahead[0] - before[1] > STEP

    def least(self, at: float) -> datetime | None:
        """Return what MongoDB's clock shows at least, at `at` by ours; None if nothing is known."""
        return datetime.fromtimestamp(at + self._ahead[0], UTC) if self._ahead is not None else None

    def is_to_come(self, moment: datetime, at: float) -> bool:
        """Whether a moment is later than MongoDB's clock can show at `at` by ours. False if nothing is known."""
        return self._ahead is not None and moment.timestamp() > at + self._ahead[1] + STEP


@dataclass(frozen=True, slots=True)
class _SeenDeadline:
    deadline: Any
    """As it stands in the record."""
    until: float
    """The same, by our clock."""


@dataclass(slots=True)
class SilenceWatch:
    """Until when each worker's record may stay as it is, by our own clock.

    A deadline is carried over when it is seen first, if it is one that a worker may have. No worker is given less than
    a heartbeat timeout since we last saw another deadline of it: so whatever MongoDB's clock does, one that beats is
    not silent. Read by another thread.
    """

    timeout: float
    _seen: dict[str, _SeenDeadline] = field(default_factory=dict)
    _looked: float = float("-inf")

    def look(self, deadlines: Mapping[str, Any], now: datetime, at: float) -> None:
        """Note the workers' deadlines, as they stood at `now` by MongoDB's clock and `at` by ours."""
        since = at - self._looked
        # After a pause nobody knows when it changed: as if it were now.
        least = self.timeout - (since if since <= self.timeout / 2 else 0.0)
        self._seen = {
            worker: _SeenDeadline(deadline, before.until)
            if (before := self._seen.get(worker)) and is_same_deadline(before.deadline, deadline)
            else _SeenDeadline(deadline, at + max(least, _left(deadline, now)))
            for worker, deadline in deadlines.items()
        }
        self._looked = at

    def silent(self, at: float) -> dict[str, Any]:
        """Return the workers whose time is over, with the deadlines in their records."""
        return {worker: seen.deadline for worker, seen in self._seen.items() if seen.until < at}


def _left(deadline: Any, now: datetime) -> float:
    # What no worker writes, whatever its heartbeat timeout, was written by others, or by a clock that was far ahead:
    # the least time holds.
    left = (deadline - now).total_seconds() if isinstance(deadline, datetime) else 0.0
    return left if left < SILENCE_FAR_OFF else 0.0
