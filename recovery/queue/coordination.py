"""What workers tell each other through Redis beside messages: whose turn it is to apply what ends in a large process
(`Turns`), and whether Redis lost its data (`Kept`).

All of it is a hint: what is lost with Redis costs time, and never work.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from redis import Redis

from recovery.queue.redis_connection import Addressed, client, translated

APPLY_KEY = "recovery.apply.{}"
NEVER = -1
"""What Redis answers where a list has no end of its time."""

KEPT_KEY = "recovery.kept"


@dataclass(frozen=True, slots=True)
class TurnStep:
    """What one step of a turn found: the tasks that it `removed` from the list, and the first of the others. With no
    others the turn is over."""

    removed: tuple[str, ...]
    waiting: tuple[str, ...]


@translated
class Turns:
    """Whose turn it is to apply what ends in a process of many tasks: a list for each process, of tasks whose decisions
    are finished and not applied.

    Whoever puts the first task into an empty list has the turn, until it has taken out the last. Nobody waits for
    anybody. A task that is lost with Redis, or with whoever had the turn, is applied when its decision is overdue. A
    list that is not served for `lifetime` seconds is gone, and with it the turn.
    """

    def __init__(self, url: str, lifetime: float) -> None:
        self._url, self._lifetime = url, int(lifetime * 1000)

    @property
    def _redis(self) -> Redis:
        return client(self._url, os.getpid(), bounded=True)

    def join(self, process_id: str, tasks: Sequence[str]) -> bool:
        """Put tasks of a process into its list: whether it is the caller's turn from now on. One round trip, and a
        second one where it is."""
        key = APPLY_KEY.format(process_id)
        with self._redis.pipeline() as pipeline:
            pipeline.lpush(key, *tasks)
            pipeline.pttl(key)
            length, left = pipeline.execute()
        if left == NEVER:  # the first; or whoever was the first ended before it came to this
            self._redis.pexpire(key, self._lifetime)
        return bool(length == len(tasks))

    def go_on(self, process_id: str, done: int, count: int) -> TurnStep:
        """Take out the `done` tasks that were put in first, which are applied, and see up to `count` of the others.
        Whoever finds among those it took out what it has not applied had lost the turn, and applies it."""
        key = APPLY_KEY.format(process_id)
        with self._redis.pipeline() as pipeline:
            if done:
                pipeline.rpop(key, done)
            pipeline.lrange(key, -count, -1)
            pipeline.pexpire(key, self._lifetime)
            *removed, waiting, _ = pipeline.execute()
        return TurnStep(_texts(removed[0] if removed else None), _texts(waiting)[::-1])


def _texts(found: Any) -> tuple[str, ...]:
    return tuple(text.decode(errors="replace") for text in found or ())


@translated
class Kept(Addressed):
    """Whether Redis has kept what was pushed: a key that is missing once Redis lost its data, for whatever reason.

    By list commands alone, which whoever serves queues may use anyway.
    """

    def is_noted(self) -> bool:
        """Whether Redis has kept everything since this was noted."""
        return bool(self._redis.exists(KEPT_KEY))

    def note(self) -> None:
        """Note that Redis has all data now. Noting it twice does no harm."""
        self._redis.lpush(KEPT_KEY, "so was all that was pushed")
