"""Lost messages, found for a whole queue at once.

Messages are taken in the order in which they were pushed. So of a queue it is known up to when all that is still
queued has lost its message (`Surroundings.lost_before`), and one range of an index has these tasks: what waits and lost
nothing costs nothing, whether a thousand wait or ten million. The Decision scanner looks at them, whatever their
deadlines.

A range is looked through again for a while, since another scanner may have judged by what was known before; and all of
it by each process that begins to scan.

That Redis lost its data is seen by what it lacks (`recovery.queue.kept`), and then told of each queue in MongoDB.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

from recovery.engine import Resources
from recovery.errors import BrokerError
from recovery.queue import Kept
from recovery.records import Decision
from recovery.repair import look_around
from recovery.store import LONGEST_WAIT, LOSSES_WITHOUT_DELAY
from recovery.store.lifecycle.decision_queries import ALL, Share
from recovery.store.reading import Read

log = logging.getLogger(__name__)

NEVER = datetime(1970, 1, 1, tzinfo=UTC)
"""Before this Redis lost its data, as is told where it was noted for the first time that it has all."""

AGAIN_FOR = 30.0
"""Seconds for which a range is looked through again: longer than from a scanner's look at a queue until it has
postponed what it found waiting."""


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
    """Of one process that scans."""

    def __init__(self, resources: Resources, clock: Callable[[], float] = time.monotonic) -> None:
        self._resources, self._clock = resources, clock
        self._kept = Kept(resources.settings.broker_url)
        self._passed: dict[str, _Passed] = {}

    def pages(self, size: int, share: Callable[[], Share] = lambda: ALL) -> Iterator[Read[Decision]]:
        """What has lost its message, `size` at a time, of a share of all processes. Costs a look at each queue in which
        tasks wait."""
        store = self._resources.store
        oldest = store.pending.oldest()
        self._passed = {actor: passed for actor, passed in self._passed.items() if actor in oldest}
        if not oldest:
            return
        self._look_at_redis(oldest)
        patience = 2 * LONGEST_WAIT * self._resources.settings.message_timeout
        around, now = look_around(self._resources, queues=oldest), self._clock()
        for actor, queued_at in oldest.items():
            until = around.lost_before(actor)
            # What is requeued in pace is so by its deadlines.
            if until is None or actor in around.blocked or around.actor(actor).requeue_rate:
                continue
            if isinstance(queued_at, datetime) and queued_at > until:
                continue
            passed = self._passed.setdefault(actor, _Passed())
            since = passed.since(now)
            ours = share()
            yield from store.decisions.lost_pages(
                actor, since, until, size, losses=LOSSES_WITHOUT_DELAY, patience=patience, share=ours
            )
            # Not if whoever asked has ended before; and what others have in hand is behind us when they are.
            if ours == ALL:
                passed.add(until, now)

    def _look_at_redis(self, queues: Collection[str]) -> None:
        """Where Redis lost its data, tell so of each queue in which tasks wait, and only then note that it is known."""
        store, kept, broker = self._resources.store, self._kept, self._resources.broker
        try:
            if kept.is_noted():
                return
            before = store.now()
            if kept.is_noted():
                return  # by another scanner: what that one queued again was queued before this moment, perhaps
            if any(queue.lost_before is not None for queue in store.queues.all().values()):
                waiting = store.pending.count_queued(queues)
                depths = broker.depths(waiting)  # all is there where but the key is gone
                lost = [queue for queue, count in waiting.items() if depths[queue] < count]
                store.queues.lost(lost, before)
            else:  # it was never noted, so it has lost nothing
                waiting, lost = {}, []
                store.queues.lost(queues, NEVER)
            kept.note()
        except BrokerError as error:
            log.debug("not known whether Redis lost its data (%s)", error)  # the scan says it
            return
        for queue in lost:
            log.warning("Redis lost its data: what waits in %s is queued again (%d tasks)", queue, waiting[queue])
