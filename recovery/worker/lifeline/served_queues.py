"""What a worker's record tells of the queues that it serves: which of them are polled, by Redis's own word, and how
young the youngest message is that was taken of each. And what is to be looked at in queues that are polled again.

Messages older than the youngest that was taken count as lost. The youngest is reported a moment late, because a message
may be taken before older ones are claimed: a worker that starts takes messages for all of its slots at once, and these
are not ready yet.
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
"""Of a message timeout, until what waits is looked at in a queue that is polled again. A message counts as lost after a
fifth of one; what is left in the queue by then only waits on."""


class ServedQueues:
    """The queues of one worker. Its heartbeats ask; its event loop reports messages."""

    def __init__(self, app: Recovery, store: Store, worker: Worker, polls: Polls, clock: ServerClock) -> None:
        """`store` is the one of heartbeats: it answers soon or not at all."""
        self._broker, self._settings, self._store, self._worker = app.resources.broker, app.settings, store, worker
        self._polls, self._clock = polls, clock
        self._taken = Taken(clock, app.settings.claim_margin)
        self._polled: dict[str, datetime] = {}
        self._returned: set[str] = set()
        self._woken: set[str] = set()
        """Queues that are polled again, as MongoDB was told, and whose tasks are yet to be looked at."""
        self._redis_answers = False

    def record_taken(self, queue: str, message: MessageId) -> None:
        """The worker took a message from a queue. Called for every message: cheap."""
        if message.queued_at is not None:
            self._taken.add(queue, message.queued_at, time.monotonic())

    def statistics(self, paused: Iterable[str]) -> tuple[QueueStatistics, ...]:
        """What is known of each queue that was ever polled here; those that are paused are not consumed."""
        consumed, now = set(self._worker.queues).difference(paused), time.monotonic()
        polled = self._polls.recent(consumed)
        polled |= self._polls.full(consumed - polled) if self._redis_answers else set()
        if (moment := self._clock.least(now)) is not None:
            since = moment - timedelta(seconds=self._settings.polled_within)
            self._returned |= {queue for queue in polled if queue not in self._polled or self._polled[queue] < since}
            self._polled |= dict.fromkeys(polled, moment)
        taken = self._taken.claimed(now)
        return tuple(
            QueueStatistics(id=queue, polled_at=polled_at, taken_queued_at=taken.get(queue))
            for queue, polled_at in sorted(self._polled.items())
        )

    def look_at_returned(self, paused: Iterable[str]) -> None:
        """See to what waits in queues that are polled again, and whether what all slots' being busy leaves unpolled
        would be answered. Raises StoreError."""
        consumed = set(self._worker.queues).difference(paused)
        store, settings = self._store, self._settings
        full = self._polls.full(consumed - self._polls.recent(consumed))
        # After the heartbeat: none is late for it.
        self._redis_answers = bool(full) and self._broker.is_there(settings.heartbeat_interval / 2)
        returned = frozenset(self._returned)
        # No longer than that: who beats too rarely does not judge.
        with time_limit(min(settings.heartbeat_timeout / 2, settings.heartbeat_interval)):
            again = store.queues.polled_again(returned, settings.polled_within, self._worker.id)
            self._returned -= returned
            self._woken |= set(again) if settings.events else set()
            for queue in sorted(self._woken):
                store.task_deadlines.taken_up(queue, LOST_SOON)  # what was on its way is lost, perhaps
                self._woken.remove(queue)


class Taken:
    """The youngest message taken of each queue of one worker. Its event loop writes; its heartbeats ask."""

    def __init__(self, clock: ServerClock, margin: float) -> None:
        self._clock, self._margin = clock, margin
        """Seconds within which what is taken is claimed."""
        self._youngest: dict[str, datetime] = {}
        self._kept: dict[str, datetime] = {}
        self._kept_at = float("-inf")
        self._reported: dict[str, datetime] = {}

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
            self._reported, self._kept, self._kept_at = self._kept, dict(self._youngest), now
        return {queue: moment for queue, moment in self._reported.items() if not self._clock.is_to_come(moment, now)}
