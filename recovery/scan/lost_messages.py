"""Detection of lost messages, for a whole queue at once.

Workers take messages in the order in which they were pushed. Therefore a time is known for each queue up to which all
tasks that are still queued have lost their message (`Surroundings.lost_before`). One range of an index contains these
tasks, so tasks that wait normally cost nothing, however many they are. The Decision scanner judges the found tasks
whatever their deadlines.

A range is searched again for a while, because another scanner may have judged by older knowledge. All of it is searched
every few minutes, after a failed run, and by each process that begins to scan, because a failover may revert requeues.
"""

from __future__ import annotations

import math
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from recovery.engine import Resources
from recovery.records import Decision
from recovery.repair import RedisLoss, keep_empty, look_around
from recovery.rules import Surroundings
from recovery.store import LOSSES_WITHOUT_DELAY
from recovery.store.lifecycle.task_deadlines import LONGEST_WAIT
from recovery.store.record_reading import Read

_MOMENT = timedelta(milliseconds=1)
_FIRST = datetime.min.replace(tzinfo=UTC) + _MOMENT
"""The earliest date that has a predecessor."""
AGAIN_FOR = 30.0
"""Seconds for which a range is searched again: longer than a scanner takes from reading a queue to postponing the
tasks that it found waiting."""
ADVANCE_EVERY = 10.0
"""Seconds between two updates that advance the deadlines of an actor's tasks. Only for actors with a `requeue_rate`,
whose tasks get deadlines minutes away."""
LOOK_AT_ALL = 300.0
"""Seconds after which the whole range is searched again."""


@dataclass(slots=True)
class _Searched:
    """How far a queue was searched, by the time when tasks were queued.

    Tasks queued before `final_until` are not searched again. `recent` holds (monotonic time of a search, end of its
    range) for the searches of the last AGAIN_FOR seconds.
    """

    final_until: datetime | None = None
    recent: deque[tuple[float, datetime]] = field(default_factory=deque)

    def add(self, until: datetime, now: float) -> None:
        self.recent.append((now, until))

    def since(self, now: float) -> datetime | None:
        while self.recent and self.recent[0][0] < now - AGAIN_FOR:
            _, moment = self.recent.popleft()
            self.final_until = moment if self.final_until is None else max(self.final_until, moment)
        return self.final_until


class LostMessages:
    """A search for lost messages, which one scanning process runs again and again.

    After it has read `pages`, the caller must call `ended` to report whether they were repaired.
    """

    def __init__(
        self, resources: Resources, clock: Callable[[], float] = time.monotonic, redis_loss: RedisLoss | None = None
    ) -> None:
        self._resources, self._clock = resources, clock
        self._redis_loss = redis_loss or RedisLoss(resources)
        self._searched: dict[str, _Searched] = {}
        self._searched_since = clock()
        self._advanced: dict[str, float] = {}
        """When the deadlines of lost messages were last advanced, by actor with a requeue_rate (monotonic clock)."""
        self._completed: dict[str, datetime] = {}
        """Queues that this run searched completely, and up to which time."""
        self._reached: tuple[str, datetime] | None = None
        """Queue and time that a run reached when its time ended. The next run continues there, so that tasks that
        can be neither repaired nor postponed do not hide all others."""

    def pages(self, size: int) -> Iterator[Read[Decision]]:
        """Yield decisions of queued tasks that lost their message, in pages of `size`.

        Costs one query per queue with waiting tasks.
        """
        store = self._resources.store
        oldest, _ = store.pending.oldest(store.preferences.told_actors())
        self._forget(oldest)
        if not oldest:
            return
        self._redis_loss.look(oldest)
        max_age = 2 * LONGEST_WAIT * self._resources.settings.message_timeout
        surroundings, now = look_around(self._resources, queues=oldest, looks_again=True), self._clock()
        # If all tasks of a queue were queued just now, its emptiness proves nothing.
        keep_empty(
            self._resources,
            surroundings,
            [actor for actor, queued_at in oldest.items() if not _is_young(queued_at, surroundings)],
        )
        reached, self._reached = self._reached, None
        for actor in _beginning_with(reached, oldest):
            until, queued_at = surroundings.lost_before(actor), oldest[actor]
            if (
                until is None
                or actor in surroundings.blocked
                or (isinstance(queued_at, datetime) and queued_at > until)
            ):
                continue
            if surroundings.actor(actor).requeue_rate:  # the pace applies, so they are requeued by their deadlines
                if self._clock() > self._advanced.get(actor, -math.inf) + ADVANCE_EVERY:
                    self._advanced[actor] = self._clock()
                    store.task_deadlines.advance_lost(actor, until, max_age)
                continue
            since = self._searched.setdefault(actor, _Searched()).since(now)
            is_continued = reached is not None and reached[0] == actor
            if reached is not None and is_continued:
                since = reached[1]
            for page, moment in store.decisions.lost_pages(
                actor, since, until, size, losses=LOSSES_WITHOUT_DELAY, patience=max_age
            ):
                yield page
                # The caller took the page. Other tasks may have been queued in the same millisecond, so it is searched
                # again.
                self._reached = (actor, max(moment, _FIRST) - _MOMENT) if moment is not None else self._reached
            if not is_continued:
                self._completed[actor] = until
        self._reached = None

    def ended(self, *, well: bool) -> None:
        """Report the end of a run. `well`: whether the pages were repaired. Otherwise all ranges are searched again."""
        completed, self._completed = self._completed, {}
        if not well:
            self._searched.clear()
        for actor, until in completed.items() if well else ():
            self._searched.setdefault(actor, _Searched()).add(until, self._clock())

    def _forget(self, waiting: Collection[str]) -> None:
        self._completed.clear()
        self._advanced = {actor: advanced_at for actor, advanced_at in self._advanced.items() if actor in waiting}
        self._searched = {actor: searched for actor, searched in self._searched.items() if actor in waiting}
        if self._clock() > self._searched_since + LOOK_AT_ALL:
            self._searched, self._searched_since = {}, self._clock()


def _is_young(queued_at: Any, surroundings: Surroundings) -> bool:
    """Return whether a message queued at this time may still be on its way; False for values that are not dates."""
    return isinstance(queued_at, datetime) and surroundings.now - queued_at <= surroundings.message_margin


def _beginning_with(reached: tuple[str, datetime] | None, queues: Iterable[str]) -> list[str]:
    """Return the queues sorted, beginning with the one that was reached."""
    names = sorted(queues)
    position = bisect_left(names, reached[0]) if reached is not None else 0
    return names[position:] + names[:position]
