"""A Redis that lost its data: seen by what it lacks (`recovery.queue.kept`), and told of each queue in MongoDB.

It is looked at before anything is pushed into a queue that is empty, and by whoever looks for lost messages. What was
queued up to the moment that is told is queued again, so a push that comes before that moment is made twice.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from datetime import UTC, datetime

from recovery.engine import Resources
from recovery.errors import BrokerError
from recovery.queue import Kept

log = logging.getLogger(__name__)

NEVER = datetime(1970, 1, 1, tzinfo=UTC)
"""Before this Redis lost its data, as is told where it was noted for the first time that it has all."""
IN_HAND = 0.1
"""The part of what waits, at most, whose messages may be in hands just now."""


class RedisLoss:
    """What one process that scans knows of it."""

    def __init__(self, resources: Resources) -> None:
        self._resources, self._kept = resources, Kept(resources.settings.broker_url)

    def look(self, waiting: Collection[str] | None = None) -> None:
        """Where Redis lost its data, tell so of each queue in which tasks wait (read here if they are not given), and
        only then note that it is known. Where Redis is away nothing is known. Raises StoreError."""
        try:
            if not self._kept.is_noted():
                self._tell(self._resources.store.pending.oldest() if waiting is None else waiting)
        except BrokerError as error:
            log.debug("not known whether Redis lost its data (%s)", error)  # the scan says it

    def _tell(self, queues: Collection[str]) -> None:
        store, kept, broker = self._resources.store, self._kept, self._resources.broker
        before, waiting = store.now(), dict[str, int]()
        was_noted = any(queue.lost_before is not None for queue in store.queues.all().values())
        if was_noted:  # all is there where but the key is gone
            depths = broker.depths(queues)
            waiting = store.pending.count_queued(queues, before)
        lost = [queue for queue, count in waiting.items() if depths[queue] < (1 - IN_HAND) * count]
        if kept.is_noted():
            return  # by another scanner: what that one queued again was queued before this moment, perhaps
        store.queues.lost(lost if was_noted else queues, before if was_noted else NEVER)
        kept.note()
        for queue in lost:
            log.warning("Redis lost its data: what waits in %s is queued again (%d tasks)", queue, waiting[queue])
