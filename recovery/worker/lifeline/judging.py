"""Decide whether a worker may judge others by their silence, and whether scans are held back.

All deadlines are by MongoDB's clock, so it does not matter whether other clocks are wrong. But MongoDB's clock may
step: somebody sets it, or another member of the replica set with a faster clock becomes the primary. Then all running
work is overdue at once, and each worker seems to have been silent for the length of the step. So each worker watches
MongoDB's clock and the other workers' deadlines by its own monotonic clock.

A worker that was cut off or suspended does not know what it missed. Other workers may have been cut off with it, and
get one heartbeat timeout to write their heartbeats. All workers get the same time after MongoDB's clock stepped.
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
"""Minimum heartbeat timeouts between two periods in which scans are held back."""
STEP = 1.0
"""Seconds forward between two looks that count as a step. Heartbeats and deadlines tolerate that much, and synchronized
clocks move only by milliseconds."""


class Judging:
    """What one worker knows about MongoDB's clock, and about how long MongoDB has served it. Other threads call it
    besides the heartbeats.

    `ask` returns the time by MongoDB's clock, and raises StoreError. `on_step` is called when that clock has stepped.
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
        """Note that a heartbeat was written. `smoothly`: by its first try, and in time."""
        now = time.monotonic()
        if not smoothly:
            self._served_since = None  # MongoDB was away for a while, and so for all workers
        elif self._served_since is None or not self.is_served():
            # A worker that was suspended, for example with its machine, may have been suspended together with others.
            # The first one to resume must not judge the others, which are about to resume.
            self._served_since = now
        self._served_last = now
        if self._away:
            self._hold_back()
        self._away = False

    def was_not_served(self, outage: bool) -> None:
        """Note that a heartbeat was not written. An error that does not pass by itself is no `outage`, because scans
        must not wait for it."""
        self._served_since, self._away = None, outage

    def is_served(self) -> bool:
        """Return whether the last heartbeat of this worker is recent. Otherwise the worker was held up, and does not
        know what it missed."""
        return time.monotonic() - self._served_last < 2 * self._settings.heartbeat_interval

    def may_judge(self) -> bool:
        """Return whether this worker was up and served for a whole heartbeat timeout. Only then it may judge others by
        their silence."""
        if not self._settings.events or not self.is_served():
            return False
        since = self._served_since  # read after `_served_last`, and written before it, by another thread
        return since is not None and time.monotonic() - since > self._settings.heartbeat_timeout

    def saw(self, deadlines: Mapping[str, Any], now: datetime) -> None:
        """Note the deadlines of all workers, as they were at `now` by MongoDB's clock."""
        self._watch.look(deadlines, now, time.monotonic())

    def silent(self) -> Mapping[str, Any]:
        """Return the workers that this worker may declare lost because of their silence, with the deadlines in their
        records."""
        silent = self._watch.silent(time.monotonic())
        # checked last, because a worker that is suspended in between must not judge
        return silent if self.may_judge() else {}

    def in_outage_grace(self, ask: Callable[[], datetime] | None = None) -> bool:
        """Return whether MongoDB was away, or its clock stepped, until less than a heartbeat timeout ago.

        Records are then overdue for that reason. Their workers get time to write their heartbeats and results before
        others redo the work. Called before each scan. Asks MongoDB for the time, by `ask` if that is given.
        """
        try:
            self.look_at_clock(ask)
        except StoreError as error:
            log.debug("could not read MongoDB's clock (%s)", error)  # the scan reports it
        return self._away or time.monotonic() < self._hold_until

    def look_at_clock(self, ask: Callable[[], datetime] | None = None) -> datetime:
        """Return the time by MongoDB's clock, as `ask` returns it. If the clock stepped, hold scans back for as long as
        other workers take to notice. Raises StoreError."""
        asked = time.monotonic()
        # Not under the lock: MongoDB may answer a scan late, and heartbeats must not wait for that.
        now = (ask or self._ask)()
        answered = time.monotonic()
        with self._clock_lock:
            if self.clock.look(now, asked, answered):
                log.warning(
                    "MongoDB's clock stepped forward: no worker is judged by it, and all claims here are extended"
                )
                self._hold_back()
                self._on_step()
        return now

    def _hold_back(self) -> None:
        """Hold scans back for a heartbeat timeout, unless they were held back recently. If outages or steps follow each
        other, recovery must go on between them, even if it repeats work that is still in progress."""
        now, timeout = time.monotonic(), self._settings.heartbeat_timeout
        if now > self._hold_until + HOLD_EVERY * timeout:
            self._hold_until = now + timeout


@dataclass(slots=True)
class ServerClock:
    """How far MongoDB's clock is ahead of this process's monotonic clock, as a minimum and a maximum in seconds,
    because an answer takes time."""

    _ahead: tuple[float, float] | None = None
    wall_ahead: float | None = None
    """Seconds by which this machine's wall clock is ahead of MongoDB's clock, rounded to tenths."""

    def look(self, now: datetime, asked: float, answered: float) -> bool:
        """Compare the clocks. Return whether MongoDB's clock stepped forward since the last look.

        Args:
            now: MongoDB's answer.
            asked: When it was asked, by our monotonic clock.
            answered: When it answered, by our monotonic clock.
        """
        if answered - asked > STEP:
            return False  # too imprecise: the next answer is compared with the last precise one
        wall_time = time.time() - (time.monotonic() - (asked + answered) / 2)
        self.wall_ahead = round(wall_time - now.timestamp(), 1)
        previous, self._ahead = self._ahead, (now.timestamp() - answered, now.timestamp() - asked)
        return previous is not None and self._ahead[0] - previous[1] > STEP

    def least(self, at: float) -> datetime | None:
        """Return the earliest time that MongoDB's clock can show at `at` by our clock; None if nothing is known."""
        return datetime.fromtimestamp(at + self._ahead[0], UTC) if self._ahead is not None else None

    def is_to_come(self, moment: datetime, at: float) -> bool:
        """Return whether a moment is later than MongoDB's clock can show at `at` by our clock. False if nothing is
        known."""
        return self._ahead is not None and moment.timestamp() > at + self._ahead[1] + STEP


@dataclass(frozen=True, slots=True)
class _SeenDeadline:
    deadline: Any
    """The deadline in the record."""
    until: float
    """The same moment by our clock."""


@dataclass(slots=True)
class SilenceWatch:
    """How long each worker's record may stay unchanged, by our own clock.

    A deadline is converted to our clock when it is first seen, if a worker could have written it. No worker gets less
    than a heartbeat timeout from the last time that we saw its deadline change. So a worker with heartbeats is never
    silent, whatever MongoDB's clock does. Another thread reads this.
    """

    timeout: float
    _seen: dict[str, _SeenDeadline] = field(default_factory=dict)
    _looked_at: float = float("-inf")

    def look(self, deadlines: Mapping[str, Any], now: datetime, at: float) -> None:
        """Note the workers' deadlines, as they were at `now` by MongoDB's clock and `at` by our clock."""
        elapsed = at - self._looked_at
        # After a pause it is unknown when the deadline changed, so it is treated as changed now.
        min_seconds = self.timeout - (elapsed if elapsed <= self.timeout / 2 else 0.0)
        self._seen = {
            worker: _SeenDeadline(deadline, previous.until)
            if (previous := self._seen.get(worker)) and is_same_deadline(previous.deadline, deadline)
            else _SeenDeadline(deadline, at + max(min_seconds, _seconds_left(deadline, now)))
            for worker, deadline in deadlines.items()
        }
        self._looked_at = at

    def silent(self, at: float) -> dict[str, Any]:
        """Return the workers whose time is over, with the deadlines in their records."""
        return {worker: seen.deadline for worker, seen in self._seen.items() if seen.until < at}


def _seconds_left(deadline: Any, now: datetime) -> float:
    # A deadline further away than any worker writes was written by another program, or by a clock that was far ahead.
    # The minimum time applies to it.
    seconds = (deadline - now).total_seconds() if isinstance(deadline, datetime) else 0.0
    return seconds if seconds < SILENCE_FAR_OFF else 0.0
