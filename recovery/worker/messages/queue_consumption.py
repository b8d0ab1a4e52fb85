"""Which queues a worker consumes: those it serves, but for those whose actors are blocked; and none, that of nudges
included, from a heartbeat that failed to the next that did not.

A worker that cannot reach MongoDB can do nothing with what it takes, and keeps it from those who could. Idle as it is,
it would take the most: Redis serves who has waited longest.

Celery's consumer may be touched only from its own event loop, so a change is handed to it there. The selection is
changed with it, since a consumer that lost its connection begins anew with what is selected. What was taken before
a change is not our concern: `Slot` looks once more before it claims, and gives the message back.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

log = logging.getLogger(__name__)


class QueueConsumption:
    """The queues of one Celery worker. Made before its consumer is."""

    def __init__(self, worker: Any, queues: Iterable[str]) -> None:
        self._worker = worker
        self._served = tuple(queues)
        self._queues = worker.app.amqp.queues
        self.paused: frozenset[str] = frozenset()
        """Those whose actors are blocked."""
        self.held = False
        """Whether nothing is consumed, since the worker could do nothing with it."""
        self._beside: list[Any] = []
        self._ending = False

    def pause(self, blocked: Iterable[str]) -> bool:
        """Consume all that is served but these: whether that changes anything. Any thread; takes effect within
        moments."""
        paused = frozenset(blocked) & frozenset(self._served)
        changed = paused != self.paused
        if changed:
            log.info("blocked, and so not consumed: %s", ", ".join(sorted(paused)) or "nothing")
        self.paused = paused
        self._change()
        return changed

    def hold(self) -> None:
        """Consume nothing until `go_on`. Any thread, any number of times; takes effect within moments."""
        self.held = True
        self._change()

    def go_on(self) -> None:
        """Consume again what is served."""
        if self.held:
            self.held = False
            self._change()

    def beside(self, consumers: Iterable[Any]) -> None:
        """What is held as well, but never paused: consumers of their own, in place of those that were told before. On
        the event loop."""
        self._beside = list(consumers)

    def end(self) -> None:
        """Begin nothing any more: the worker shuts down."""
        self._ending = True

    def _change(self) -> None:
        consumer = getattr(self._worker, "consumer", None)
        if consumer is None:  # it is yet to be made
            self._select()
        elif not self._ending:
            consumer.call_soon(self._bring_about)

    def _is_wanted(self, queue: str) -> bool:
        return not self.held and queue not in self.paused

    def _select(self) -> None:
        """What a consumer begins with."""
        self._queues.deselect([name for name in self._served if not self._is_wanted(name)])
        for name in self._served:
            if self._is_wanted(name) and name not in self._queues.consume_from:
                self._queues.select_add(self._queues[name])

    def _bring_about(self) -> None:
        """On the event loop, where an error would end the worker."""
        try:
            self._select()
            consumer = self._worker.consumer.task_consumer
            if consumer is None or self._ending:
                return  # not connected
            added = False
            for name in self._served:
                if self._is_wanted(name) and not consumer.consuming_from(name):
                    consumer.add_queue(self._queues[name])
                    added = True
                elif not self._is_wanted(name) and consumer.consuming_from(name):
                    consumer.cancel_by_queue(name)
            if added:
                consumer.consume()
            self.see_to_others()
        except Exception as error:  # kombu's, of any kind
            log.warning("consumed queues not changed (%s): with the next heartbeat", error)

    def see_to_others(self) -> None:
        """Have what is beside consume, or not. On the event loop, once they began to."""
        for consumer in self._beside:
            if self.held:
                consumer.cancel()
            else:
                consumer.consume()
