"""Whose turn it is to apply what ends in a process of many tasks: a list in Redis for each, of tasks whose decisions
are finished and not applied.

Whoever puts the first task into an empty list has the turn, until it has taken out the last. Nobody waits for anybody,
and the list holds hints: one that is lost, with Redis or with whoever had the turn, has tasks in it that are applied
when their decisions are overdue. A list that is not served for some time is gone, and with it the turn.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from redis import Redis

from recovery.queue.clients import client
from recovery.queue.driver_errors import translated

KEY = "recovery.apply.{}"
NEVER = -1
"""What Redis answers where a list has no end of its time."""


@dataclass(frozen=True, slots=True)
class Page:
    """What one step of a turn found: the tasks that it `removed` from the list, and the first of the others. With no
    others the turn is over."""

    removed: tuple[str, ...]
    waiting: tuple[str, ...]


@translated
class Turns:
    """The lists at one Redis address. Of one that is not served for `lifetime` seconds nothing is left."""

    def __init__(self, url: str, lifetime: float) -> None:
        self._url, self._lifetime = url, int(lifetime * 1000)

    @property
    def _redis(self) -> Redis:
        return client(self._url, os.getpid(), bounded=True)

    def join(self, process_id: str, tasks: Sequence[str]) -> bool:
        """Put tasks of a process into its list: whether it is the caller's turn from now on. One round trip, and a
        second one where it is."""
        key = KEY.format(process_id)
        with self._redis.pipeline() as pipeline:
            pipeline.lpush(key, *tasks)
            pipeline.pttl(key)
            length, left = pipeline.execute()
        if left == NEVER:  # the first; or whoever was the first ended before it came to this
            self._redis.pexpire(key, self._lifetime)
        return bool(length == len(tasks))

    def go_on(self, process_id: str, done: int, count: int) -> Page:
        """Take out the `done` tasks that were put in first, which are applied, and see up to `count` of the others.
        Whoever finds among those it took out what it has not applied had lost the turn, and applies it."""
        key = KEY.format(process_id)
        with self._redis.pipeline() as pipeline:
            if done:
                pipeline.rpop(key, done)
            pipeline.lrange(key, -count, -1)
            pipeline.pexpire(key, self._lifetime)
            *removed, waiting, _ = pipeline.execute()
        return Page(_texts(removed[0] if removed else None), _texts(waiting)[::-1])


def _texts(found: Any) -> tuple[str, ...]:
    return tuple(text.decode(errors="replace") for text in found or ())
