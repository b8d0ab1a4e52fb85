"""Which queues a worker consumes, and which of these Redis answers.

A worker consumes the queues that it serves, except those whose actors are blocked. From a heartbeat that failed until
the next that did not it consumes nothing, not even nudges: a worker that cannot reach MongoDB can do nothing with what
it takes, and keeps it from those who could. Idle as it is, it would take the most, because Redis serves who has waited
longest.

Celery's consumer may be touched only from its own event loop, so a change is handed to it there. The selection is
changed with it, because a consumer that lost its connection begins anew with what is selected. Messages that were taken
before a change need no care here: `Slot` looks once more before it claims, and gives the message back.

A poll counts once Redis has answered it, with a message or without. A worker asks Redis for messages of all queues that
it consumes and is answered within a second. If it is not answered, it does not poll, whatever it believes: Redis may be
silent behind a firewall that drops. While all its slots are busy it asks for nothing. It polls then if Redis answers
something else: it takes messages as soon as it has room, and who waits for them waits for a slot, not for a worker.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from recovery.worker.outage_logs import is_lost_connection

log = logging.getLogger(__name__)
RECENT = 2.0
"""Seconds. Redis answers a poll within one; another for an event loop that was busy."""


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
        self._others: list[Any] = []
        self._ending = False

    def pause(self, blocked: Iterable[str]) -> bool:
        """Consume all served queues except these. Return whether that changes anything. Any thread; takes effect within
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
        """Consume again after `hold`."""
        if self.held:
            self.held = False
            self._change()

    def set_others(self, consumers: Iterable[Any]) -> None:
        """Set the consumers that are held as well, but never paused, in place of those set before. On the event
        loop."""
        self._others = list(consumers)

    def end(self) -> None:
        """Change nothing any more, because the worker shuts down."""
        self._ending = True

    def _change(self) -> None:
        consumer = getattr(self._worker, "consumer", None)
        if consumer is None:  # it is yet to be made
            self._select()
        elif not self._ending:
            consumer.call_soon(self._apply)

    def _is_wanted(self, queue: str) -> bool:
        return not self.held and queue not in self.paused

    def _select(self) -> None:
        """Select the queues that a consumer begins with."""
        self._queues.deselect([name for name in self._served if not self._is_wanted(name)])
        for name in self._served:
            if self._is_wanted(name) and name not in self._queues.consume_from:
                self._queues.select_add(self._queues[name])

    def _apply(self) -> None:
        """Bring Celery's consumer in line. Runs on the event loop, where an error would end the worker."""
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
            self.hold_or_resume_others()
        except Exception as error:  # kombu's, of any kind
            # An outage has its own line, and its end begins with the queues that are wanted.
            level = logging.DEBUG if is_lost_connection(error) else logging.WARNING
            log.log(level, "consumed queues not changed (%s): with the next heartbeat", error)

    def hold_or_resume_others(self) -> None:
        """Hold or resume the other consumers. On the event loop, once they have begun."""
        for consumer in self._others:
            if self.held:
                consumer.cancel()
            else:
                consumer.consume()


class Polls:
    """The polls of one worker's process. Its event loop writes; any thread reads."""

    def __init__(self) -> None:
        self._answered: dict[str, float] = {}
        self._channels: dict[str, Any] = {}
        self.on_return: Callable[[], None] = _nothing
        """Called when a queue's poll was answered for the first time, or for the first time in a while. Cheap."""

    def asked(self, channel: Any, queues: Iterable[str]) -> None:
        """Note that a poll of these queues was sent. Called every second and for each message, so it must be cheap."""
        for queue in queues:
            self._channels[queue] = channel

    def answered(self, queues: Sequence[str]) -> None:
        """Note that Redis answered a poll of these queues. Called as often as `asked`."""
        now = time.monotonic()
        returned = not all(self._is_recent(queue, now) for queue in queues)
        for queue in queues:
            self._answered[queue] = now
        if returned:
            self.on_return()

    def recent(self, queues: Iterable[str]) -> set[str]:
        """Return those of these queues whose last poll was answered within RECENT seconds."""
        now = time.monotonic()
        return {queue for queue in queues if self._is_recent(queue, now)}

    def full(self, queues: Iterable[str]) -> set[str]:
        """Return those of these queues that are not polled now because all slots are busy."""
        return {queue for queue in queues if (channel := self._channels.get(queue)) and _is_full(channel)}

    def _is_recent(self, queue: str, now: float) -> bool:
        return now - self._answered.get(queue, float("-inf")) <= RECENT


def _is_full(channel: Any) -> bool:
    return not channel.closed and not channel.qos.can_consume()


def _nothing() -> None:
    return


POLLS = Polls()
"""Of this process: kombu makes the channels, and nobody can hand them anything."""
