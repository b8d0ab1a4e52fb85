"""Which queues a worker consumes, and which of these Redis answers.

A worker consumes the queues that it serves, except those whose actors are blocked. After a failed heartbeat it consumes
nothing until one succeeds, not even nudges: a worker that can't reach MongoDB can't work on messages, and would keep
them from workers that can. As an idle worker it would even take the most, because Redis serves the client that has
waited longest.

Celery's consumer may be changed only from its own event loop, so changes are handed to that loop. The selection of
queues is changed as well, because a consumer that lost its connection begins anew with the selected queues. Messages
taken before a change need no care here: `Slot` checks again before it claims, and gives the message back.

A poll counts once Redis has answered it, with or without a message. A worker polls all queues that it consumes in one
request, which Redis answers within a second. Without an answer the queues do not count as polled, because Redis may be
unreachable behind a firewall that drops packets. While all its slots are busy a worker does not poll. Its queues then
count as polled if Redis answers another request: the worker takes messages as soon as a slot is free.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from recovery.worker.outage_logs import is_lost_connection

log = logging.getLogger(__name__)
RECENT = 2.0
"""Seconds since the last answer within which a queue counts as polled: one second for Redis's answer, and one for a
busy event loop."""


class QueueConsumption:
    """The queues of one Celery worker. Made before its consumer."""

    def __init__(self, worker: Any, queues: Iterable[str]) -> None:
        self._worker = worker
        self._served = tuple(queues)
        self._queues = worker.app.amqp.queues
        self.paused: frozenset[str] = frozenset()
        """The queues whose actors are blocked."""
        self.held = False
        """Whether nothing is consumed, because the worker can't work on messages."""
        self._other_consumers: list[Any] = []
        self._ending = False

    def pause(self, blocked: Iterable[str]) -> bool:
        """Consume all served queues except those of blocked actors. Return whether this changes anything. Thread-safe;
        takes effect within moments."""
        paused = frozenset(blocked) & frozenset(self._served)
        changed = paused != self.paused
        if changed:
            log.info("queues not consumed because their actors are blocked: %s", ", ".join(sorted(paused)) or "none")
        self.paused = paused
        self._change()
        return changed

    def hold(self) -> None:
        """Consume nothing until `go_on`. Thread-safe, may be repeated; takes effect within moments."""
        self.held = True
        self._change()

    def go_on(self) -> None:
        """Consume again after `hold`."""
        if self.held:
            self.held = False
            self._change()

    def set_others(self, consumers: Iterable[Any]) -> None:
        """Set the consumers that `hold` stops as well, but `pause` does not. They replace those set before. Call it on
        the event loop."""
        self._other_consumers = list(consumers)

    def end(self) -> None:
        """Change nothing from now on, because the worker shuts down."""
        self._ending = True

    def _change(self) -> None:
        consumer = getattr(self._worker, "consumer", None)
        if consumer is None:  # the consumer does not exist yet
            self._select()
        elif not self._ending:
            consumer.call_soon(self._apply)

    def _is_wanted(self, queue: str) -> bool:
        return not self.held and queue not in self.paused

    def _select(self) -> None:
        """Select the queues that a new consumer begins with."""
        self._queues.deselect([name for name in self._served if not self._is_wanted(name)])
        for name in self._served:
            if self._is_wanted(name) and name not in self._queues.consume_from:
                self._queues.select_add(self._queues[name])

    def _apply(self) -> None:
        """Make Celery's consumer consume the wanted queues. Runs on the event loop, where an error would end the
        worker."""
        try:
            self._select()
            consumer = self._worker.consumer.task_consumer
            if consumer is None or self._ending:
                return  # the consumer is not connected, or ends
            has_new_queues = False
            for name in self._served:
                if self._is_wanted(name) and not consumer.consuming_from(name):
                    consumer.add_queue(self._queues[name])
                    has_new_queues = True
                elif not self._is_wanted(name) and consumer.consuming_from(name):
                    consumer.cancel_by_queue(name)
            if has_new_queues:
                consumer.consume()
            self.hold_or_resume_others()
        except Exception as error:  # errors of kombu may be of any kind
            # An outage is logged elsewhere, and at its end a new consumer begins with the wanted queues.
            level = logging.DEBUG if is_lost_connection(error) else logging.WARNING
            log.log(level, "could not change which queues are consumed (%s); retried with the next heartbeat", error)

    def hold_or_resume_others(self) -> None:
        """Hold or resume the other consumers. Call it on the event loop, once they have begun."""
        for consumer in self._other_consumers:
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
        """Called when a poll of a queue is answered for the first time, or for the first time in a while. Must be
        cheap."""

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
"""The polls of this process. A global, because kombu makes the channels and passes no arguments to them."""
