"""Whether a worker may judge others by their silence, and whether scans are held back.

Who was cut off itself, or stood still, does not know what it missed: others may have been cut off with it, and are
given a heartbeat timeout to write what they could not. So are all where MongoDB's clock stepped.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from recovery.errors import StoreError
from recovery.settings import Settings
from recovery.worker.lifeline.rhythm import Rhythm
from recovery.worker.lifeline.watch import ServerClock, Watch

log = logging.getLogger(__name__)

HOLD_EVERY = 5
"""Heartbeat timeouts that scans go on at least, between two that they are held back."""


class Judging:
    """What one worker knows of MongoDB's clock, and of how long it was served. Threads ask it beside the heartbeats.

    `ask` gives the time by MongoDB's clock, and raises StoreError; `on_step` is called where that clock stepped.
    """

    def __init__(
        self, settings: Settings, rhythm: Rhythm, ask: Callable[[], datetime], on_step: Callable[[], object]
    ) -> None:
        self._settings, self._rhythm = settings, rhythm
        self._ask, self._on_step = ask, on_step
        self.clock, self._clock_lock = ServerClock(), threading.Lock()
        self._watch = Watch(settings.heartbeat_timeout)
        self._served_since: float | None = None
        self._served_last = 0.0
        self._away = False
        self._hold_until = -math.inf

    def was_served(self, smoothly: bool) -> None:
        """A heartbeat was written; `smoothly`: by its first try, and in time."""
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
        """A heartbeat was not written. What does not pass by itself is no `outage`: scans must not wait for it."""
        self._served_since, self._away = None, outage

    def is_served(self) -> bool:
        """Whether its last heartbeat is recent: one that was held up does not know what it missed."""
        return time.monotonic() - self._served_last < 2 * self._settings.heartbeat_interval

    def may_judge(self) -> bool:
        """Whether this worker was up and served for a whole heartbeat timeout: may it judge by silence?"""
        if not self._settings.events or not self.is_served():
            return False
        since = self._served_since  # read after `_served_last`, and written before it, by another thread
        return since is not None and time.monotonic() - since > self._settings.heartbeat_timeout

    def saw(self, deadlines: Mapping[str, Any], now: datetime) -> None:
        """These are the deadlines of all workers, `now` by MongoDB's clock."""
        self._watch.look(deadlines, now, time.monotonic())

    def silent(self) -> Mapping[str, Any]:
        """Workers that this one may call lost by their silence, and the deadlines in their records."""
        silent = self._watch.silent(time.monotonic())
        return silent if self.may_judge() else {}  # asked last: one that stands still in between must not judge

    def in_outage_grace(self, ask: Callable[[], datetime] | None = None) -> bool:
        """Whether the database was away until less than a heartbeat timeout ago, or its clock stepped. What is overdue
        then is so for that: its workers are given the time to write what they could not, before others are set to do
        it again. Asked before each scan; asks the database, by what is given."""
        try:
            self.look_at_clock(ask)
        except StoreError as error:
            log.debug("MongoDB's clock not seen (%s)", error)  # the scan says it
        return self._away or time.monotonic() < self._hold_until

    def look_at_clock(self, ask: Callable[[], datetime] | None = None) -> datetime:
        """The time by MongoDB's clock, as what is asked tells it. Where it stepped, scans are held back for as long as
        others take to notice. Raises StoreError."""
        asked = time.monotonic()
        # Not under the lock: a scan's question may wait for long, and a heartbeat must not.
        now = (ask or self._ask)()
        answered = time.monotonic()
        with self._clock_lock:
            self._rhythm.saw(now, asked, answered)
            if self.clock.look(now, asked, answered):
                log.warning("MongoDB's clock stepped forward: no worker is judged by it, and all claims here beat")
                self._hold_back()
                self._on_step()
        return now

    def _hold_back(self) -> None:
        """Hold scans back for a heartbeat timeout. Where one outage or step follows the other, recovery has to go on
        between them, though it may do again what somebody is still at: so not for a while after the last time."""
        now, timeout = time.monotonic(), self._settings.heartbeat_timeout
        if now > self._hold_until + HOLD_EVERY * timeout:
            self._hold_until = now + timeout
