"""Lost messages, found for a whole queue at once.

Messages are taken in the order in which they were pushed. So of a queue it is known up to when all that is still
queued has lost its message (`Surroundings.lost_before`), and one range of an index has these tasks: what waits and lost
nothing costs nothing, whether a thousand wait or ten million. The Decision scanner looks at them, whatever their
deadlines.

A range is looked through again for a while, since another scanner may have judged by what was known before. All of it
is every few minutes, after a run that failed, and by each process that begins to scan: a failover may take back that
something was queued again.
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
"""The first date that has one before it."""
AGAIN_FOR = 30.0
"""Seconds for which a range is looked through again: longer than from a scanner's look at a queue until it has
postponed what it found waiting."""
ADVANCE_EVERY = 10.0
"""Seconds between two looks at all that waits for an actor with a `requeue_rate`: at deadlines minutes away."""
LOOK_AT_ALL = 300.0
"""Seconds after which all of it is looked through."""


@dataclass(slots=True)
class _Passed:
    """Up to when one queue was looked through, and when that was: what is older than AGAIN_FOR is behind us."""

    behind: datetime | None = None
    lately: deque[tuple[float, datetime]] = field(default_factory=deque)

    def add(self, until: datetime, now: float) -> None:
        self.lately.append((now, until))

    def since(self, now: float) -> datetime | None:
        while self.lately and self.lately[0][0] < now - AGAIN_FOR:
            _, moment = self.lately.popleft()
            self.behind = moment if self.behind is None else max(self.behind, moment)
        return self.behind


class LostMessages:
    """Of one process that scans. Whoever reads `pages` says how that `ended`."""

    def __init__(
        self, resources: Resources, clock: Callable[[], float] = time.monotonic, redis_loss: RedisLoss | None = None
    ) -> None:
        self._resources, self._clock = resources, clock
        self._redis_loss = redis_loss or RedisLoss(resources)
        self._passed: dict[str, _Passed] = {}
        self._passed_since = clock()
        self._advanced: dict[str, float] = {}
        """{actor with a requeue_rate: when its lost messages' deadlines were brought forward last}."""
        self._looked: dict[str, datetime] = {}
        """Of this run: {queue that was looked through to its end: up to when}."""
        self._reached: tuple[str, datetime] | None = None
        """How far a run came that ended for its time: what can be neither repaired nor postponed must not stand before
        all else for ever."""

    def pages(self, size: int) -> Iterator[Read[Decision]]:
        """Yield the queued decisions that lost their message, `size` at a time. Costs a look at each queue in which
        tasks wait."""
        store = self._resources.store
        oldest, _ = store.pending.oldest(store.preferences.told_actors())
        self._forget(oldest)
        if not oldest:
            return
        self._redis_loss.look(oldest)
        patience = 2 * LONGEST_WAIT * self._resources.settings.message_timeout
        around, now = look_around(self._resources, queues=oldest, looks_again=True), self._clock()
        # Where all was queued just now it would prove nothing.
        keep_empty(self._resources, around, [a for a, at in oldest.items() if not _is_young(at, around)])
        reached, self._reached = self._reached, None
        for actor in _beginning_with(reached, oldest):
            until, queued_at = around.lost_before(actor), oldest[actor]
            if until is None or actor in around.blocked or (isinstance(queued_at, datetime) and queued_at > until):
                continue
            if around.actor(actor).requeue_rate:  # in pace, by their deadlines
                if self._clock() > self._advanced.get(actor, -math.inf) + ADVANCE_EVERY:
                    self._advanced[actor] = self._clock()
                    store.task_deadlines.advance_lost(actor, until, patience)
                continue
            since = self._passed.setdefault(actor, _Passed()).since(now)
            goes_on = reached is not None and reached[0] == actor
            if reached is not None and goes_on:
                since = reached[1]
            for page, moment in store.decisions.lost_pages(
                actor, since, until, size, losses=LOSSES_WITHOUT_DELAY, patience=patience
            ):
                yield page
                # Now it is taken. As many may have been queued in the same moment: they are looked at again.
                self._reached = (actor, max(moment, _FIRST) - _MOMENT) if moment is not None else self._reached
            if not goes_on:
                self._looked[actor] = until
        self._reached = None

    def ended(self, *, well: bool) -> None:
        """The run is over: what it was given is repaired, or it failed, and nobody knows how much of it is."""
        looked, self._looked = self._looked, {}
        if not well:
            self._passed.clear()
        for actor, until in looked.items() if well else ():
            self._passed.setdefault(actor, _Passed()).add(until, self._clock())

    def _forget(self, waiting: Collection[str]) -> None:
        self._looked.clear()
        self._advanced = {actor: at for actor, at in self._advanced.items() if actor in waiting}
        self._passed = {actor: passed for actor, passed in self._passed.items() if actor in waiting}
        if self._clock() > self._passed_since + LOOK_AT_ALL:
            self._passed, self._passed_since = {}, self._clock()


def _is_young(queued_at: Any, around: Surroundings) -> bool:
    """Whether this may be on its way still; False for what is no date."""
    return isinstance(queued_at, datetime) and around.now - queued_at <= around.message_margin


def _beginning_with(reached: tuple[str, datetime] | None, queues: Iterable[str]) -> list[str]:
    """These queues, the one first that was reached."""
    names = sorted(queues)
    place = bisect_left(names, reached[0]) if reached is not None else 0
    return names[place:] + names[:place]
