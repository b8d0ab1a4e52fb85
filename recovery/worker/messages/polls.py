"""Which queues this worker polls, by Redis's own word: a poll counts once it is answered, with a message or without.

A worker asks Redis for messages of all queues that it consumes and is answered within a second. One that is not
answered does not poll, whatever it believes: Redis may be silent behind a firewall that drops. While all its slots are
busy it asks for nothing. It polls then if Redis answers something else: it takes messages as soon as it has room, and
who waits for them waits for a slot, not for a worker.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

RECENT = 2.0
"""Seconds. Redis answers a poll within one; another for an event loop that was busy."""


class Polls:
    """The polls of one worker's process. Written by its event loop; read by any thread."""

    def __init__(self) -> None:
        self._answered: dict[str, float] = {}
        self._channels: dict[str, Any] = {}
        self.on_return: Callable[[], None] = _nothing
        """Called when a queue's poll was answered for the first time, or for the first time in a while. Cheap."""

    def asked(self, channel: Any, queues: Iterable[str]) -> None:
        """A poll of these queues was sent. Called every second, and for each message: cheap."""
        for queue in queues:
            self._channels[queue] = channel

    def answered(self, queues: Sequence[str]) -> None:
        """Redis answered a poll of these queues. Called as often."""
        now = time.monotonic()
        returned = not all(self._is_recent(queue, now) for queue in queues)
        for queue in queues:
            self._answered[queue] = now
        if returned:
            self.on_return()

    def recent(self, queues: Iterable[str]) -> set[str]:
        """Those of these queues whose last poll was answered just now."""
        now = time.monotonic()
        return {queue for queue in queues if self._is_recent(queue, now)}

    def full(self, queues: Iterable[str]) -> set[str]:
        """Those that are not asked for just now, since all slots are busy."""
        return {queue for queue in queues if (channel := self._channels.get(queue)) and _is_full(channel)}

    def _is_recent(self, queue: str, now: float) -> bool:
        return now - self._answered.get(queue, float("-inf")) <= RECENT


def _is_full(channel: Any) -> bool:
    return not channel.closed and not channel.qos.can_consume()


def _nothing() -> None:
    return


POLLS = Polls()
"""Of this process: kombu makes the channels, and nobody can hand them anything."""
