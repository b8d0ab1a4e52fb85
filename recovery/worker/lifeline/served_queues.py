"""The statistics of the queues that a worker serves, for its record, and the check of queues that are polled again.

The statistics show which queues are polled, according to Redis's answers, and how young the youngest message is that
was taken from each queue. Older messages of that queue are then presumed lost. The youngest message is reported a
moment late, because it may be taken before older messages are claimed: a starting worker takes messages for all of its
slots at once, and the slots are not ready yet.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import datetime, timedelta

from recovery.engine import Recovery
from recovery.queue import MessageId
from recovery.records import QueueStatistics, Worker
from recovery.store import Store
from recovery.store.views.overview import time_limit
from recovery.worker.lifeline.judging import ServerClock
from recovery.worker.messages.queue_consumption import Polls

LOST_SOON = 0.3
"""The part of a message timeout after which the waiting tasks of a queue that is polled again are checked. A message
counts as lost after a fifth of the timeout; tasks whose messages are still in the queue by then keep waiting."""


class ServedQueues:
    """The queues of one worker. Its heartbeats read statistics; its event loop reports messages."""

    def __init__(self, app: Recovery, store: Store, worker: Worker, polls: Polls, clock: ServerClock) -> None:
        """`store` is the store of the heartbeats, which answers soon or not at all."""
        self._broker, self._settings, self._store, self._worker = app.resources.broker, app.settings, store, worker
        self._polls, self._clock = polls, clock
        self._taken = Taken(clock, app.settings.claim_margin)
        self._polled: dict[str, datetime] = {}
        self._returned: set[str] = set()
        self._to_check: set[str] = set()
        """Queues that are polled again, as MongoDB has recorded, and whose tasks are still to be checked."""
        self._redis_answers = False

    def record_taken(self, queue: str, message: MessageId) -> None:
        """Note that the worker took a message from a queue. Called for every message, so it must be cheap."""
        if message.queued_at is not None:
            self._taken.add(queue, message.queued_at, time.monotonic())

    def statistics(self, paused: Iterable[str]) -> tuple[QueueStatistics, ...]:
        """Return what is known of each queue that was ever polled here. Paused queues are not consumed."""
        consumed, now = set(self._worker.queues).difference(paused), time.monotonic()
        polled = self._polls.recent(consumed)
        polled |= self._polls.full(consumed - polled) if self._redis_answers else set()
        if (moment := self._clock.least(now)) is not None:
            limit = moment - timedelta(seconds=self._settings.polled_within)
            self._returned |= {queue for queue in polled if queue not in self._polled or self._polled[queue] < limit}
            self._polled |= dict.fromkeys(polled, moment)
        taken = self._taken.claimed(now)
        return tuple(
            QueueStatistics(id=queue, polled_at=polled_at, taken_queued_at=taken.get(queue))
            for queue, polled_at in sorted(self._polled.items())
        )

    def look_at_returned(self, paused: Iterable[str]) -> None:
        """Find out whether Redis would answer polls of queues that are not polled now because all slots are busy. Then
        check the tasks that wait in queues that are polled again. Raises StoreError."""
        consumed = set(self._worker.queues).difference(paused)
        store, settings = self._store, self._settings
        full = self._polls.full(consumed - self._polls.recent(consumed))
        # After the heartbeat, so that this delays none.
        self._redis_answers = bool(full) and self._broker.is_there(settings.heartbeat_interval / 2)
        returned = frozenset(self._returned)
        # Not longer, because a worker that beats too rarely may not judge others.
        with time_limit(min(settings.heartbeat_timeout / 2, settings.heartbeat_interval)):
            polled_again = store.queues.polled_again(returned, settings.polled_within, self._worker.id)
            self._returned -= returned
            self._to_check |= set(polled_again) if settings.events else set()
            for queue in sorted(self._to_check):
                store.task_deadlines.taken_up(queue, LOST_SOON)  # messages that were on their way may be lost
                self._to_check.remove(queue)


class Taken:
    """The youngest message taken from each queue of one worker. Its event loop writes; its heartbeats read."""

    def __init__(self, clock: ServerClock, margin: float) -> None:
        self._clock, self._margin = clock, margin
        """Seconds within which a taken message is claimed."""
        self._youngest: dict[str, datetime] = {}
        self._kept: dict[str, datetime] = {}
        self._kept_at = float("-inf")
        self._reported: dict[str, datetime] = {}

    def add(self, queue: str, queued_at: datetime, now: float) -> None:
        """Note that a message was taken, at `now` by the monotonic clock. Called for every message, so it must be
        cheap."""
        youngest = self._youngest.get(queue)
        if youngest is not None and queued_at <= youngest:
            return
        if not self._clock.is_to_come(queued_at, now):  # otherwise it is forged, and would hide other messages
            self._youngest[queue] = queued_at

    def claimed(self, now: float) -> dict[str, datetime]:
        """Return {queue: `queuedAt` of its youngest message that was taken so long ago that all messages taken before
        are claimed}."""
        for queue, youngest in list(self._youngest.items()):
            # An impossible time, taken while MongoDB's clock was not known, must not hide the messages after it.
            if self._clock.is_to_come(youngest, now) and self._youngest[queue] == youngest:
                del self._youngest[queue]
        if now - self._kept_at >= self._margin:
            self._reported, self._kept, self._kept_at = self._kept, dict(self._youngest), now
        return {queue: moment for queue, moment in self._reported.items() if not self._clock.is_to_come(moment, now)}
