"""Coordination between workers through Redis, besides messages: which worker applies the finished tasks of a large
process (`Turns`), and whether Redis lost its data (`Kept`).

All of this is a hint: losing it with Redis costs time, never work.
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
"""Redis's answer to PTTL for a list that has no expiry."""

KEPT_KEY = "recovery.kept"


@dataclass(frozen=True, slots=True)
class TurnStep:
    """The result of one step of a turn: the tasks that it `removed` from the list, and the first tasks that are
    `waiting` behind them. The turn is over if none are waiting."""

    removed: tuple[str, ...]
    waiting: tuple[str, ...]


@translated
class Turns:
    """The right to apply the finished tasks of a large process, one list per process of the tasks whose decisions are
    finished but not applied.

    The worker that puts the first task into an empty list has the turn until it has removed the last task. No worker
    waits for another. A task that is lost with Redis, or with the worker that had the turn, is applied when its
    decision is overdue. A list that no worker serves for `lifetime` seconds expires, and the turn ends with it.
    """

    def __init__(self, url: str, lifetime: float) -> None:
        self._url, self._lifetime = url, int(lifetime * 1000)

    @property
    def _redis(self) -> Redis:
        return client(self._url, os.getpid(), bounded=True)

    def join(self, process_id: str, tasks: Sequence[str]) -> bool:
        """Add tasks of a process to its list. Return whether the caller now has the turn.

        One round trip, or two if the list has no expiry yet.
        """
        key = APPLY_KEY.format(process_id)
        with self._redis.pipeline() as pipeline:
            pipeline.lpush(key, *tasks)
            pipeline.pttl(key)
            length, milliseconds_left = pipeline.execute()
        if milliseconds_left == NEVER:  # the list is new, or the worker that created it ended before it set the expiry
            self._redis.pexpire(key, self._lifetime)
        return bool(length == len(tasks))

    def go_on(self, process_id: str, done: int, count: int) -> TurnStep:
        """Remove the first `done` tasks, which the caller has applied, and read up to `count` of the next ones.

        If the removed tasks include tasks that the caller has not applied, it had lost the turn, and must apply them.
        """
        key = APPLY_KEY.format(process_id)
        with self._redis.pipeline() as pipeline:
            if done:
                pipeline.rpop(key, done)
            pipeline.lrange(key, -count, -1)
            pipeline.pexpire(key, self._lifetime)
            *removed, waiting, _ = pipeline.execute()
        return TurnStep(_texts(removed[0] if removed else None), _texts(waiting)[::-1])


def _texts(values: Any) -> tuple[str, ...]:
    return tuple(text.decode(errors="replace") for text in values or ())


@translated
class Kept(Addressed):
    """A marker in Redis that is missing once Redis has lost its data, for whatever reason.

    It uses list commands only, which every user of queues is allowed to run.
    """

    def is_noted(self) -> bool:
        """Return whether Redis has kept all data since `note` was called."""
        return bool(self._redis.exists(KEPT_KEY))

    def note(self) -> None:
        """Record that Redis has all data now. Calling this twice does no harm."""
        self._redis.lpush(KEPT_KEY, "so was all that was pushed")
