"""A Redis that lost its data: seen by what it lacks (`recovery.queue.coordination`), and told of each queue in MongoDB.

What was queued up to the moment that is told has lost its message. So whoever looks for lost messages sees to it, and
each repair does before it queues anything: what it queued again before that moment would be requeued for the same loss
once more. What workers queue before it, a second or so after Redis is back, is; its older message is dropped as stale.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from threading import Lock

from recovery.engine import Resources
from recovery.errors import BrokerError
from recovery.queue import Kept

log = logging.getLogger(__name__)

IN_HAND = 0.1
"""The part of what waits, at most, whose messages may be in hands just now."""


class RedisLoss:
    """What one process knows of it. For any number of threads."""

    def __init__(self, resources: Resources) -> None:
        self._resources, self._kept = resources, Kept(resources.settings.broker_url)
        self._one_at_a_time = Lock()
        self._is_told = False
        """Whether MongoDB has it of any queue that Redis was seen with all data, once it was."""

    def look(self, waiting: Collection[str] | None = None) -> None:
        """Where Redis lost its data, tell so of each queue in which tasks wait (read here if they are not given), and
        only then note that it is known. Costs one round trip where all is well. Where Redis is away nothing is known.
        Raises StoreError."""
        try:
            if self._is_told and self._kept.is_noted():
                return
            with self._one_at_a_time:
                self._see(waiting)
        except BrokerError as error:
            log.debug("not known whether Redis lost its data (%s)", error)  # who pushes says it

    def _see(self, waiting: Collection[str] | None) -> None:
        store = self._resources.store
        # First what MongoDB has, which is written last: who looks between the two writes of the first time would take
        # for lost what a worker has in hand.
        known = {} if self._is_told else store.queues.all()
        self._is_told = self._is_told or any(queue.lost_before is not None for queue in known.values())
        if self._is_told and self._kept.is_noted():
            return
        queues = store.pending.oldest(store.preferences.told_actors())[0] if waiting is None else waiting
        if not queues:  # nothing is lost, and of nothing it could be told that Redis has it
            return
        if self._is_told:
            self._tell(queues)
        else:
            self._kept.note()
            store.queues.served({*known, *queues})
            self._is_told = True

    def _tell(self, queues: Collection[str]) -> None:
        store, broker = self._resources.store, self._resources.broker
        before = store.now()
        depths, waiting = broker.depths(queues), store.pending.count_queued(queues, before)
        # All is there where but the key is gone.
        lost = [queue for queue, count in waiting.items() if depths[queue] < (1 - IN_HAND) * count]
        if self._kept.is_noted():
            return  # by another process: what that one queued again was queued before this moment, perhaps
        store.queues.lost(lost, before)
        self._kept.note()
        for queue in lost:
            log.warning("Redis lost its data: what waits in %s is queued again (%d tasks)", queue, waiting[queue])
