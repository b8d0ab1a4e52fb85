"""The kinds of faults and disasters of a demo, how long each fault lasts, and who is struck when: by a seed, so that a
run can be tried again.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import TypeVar


class FaultKind(StrEnum):
    """The kinds of faults."""

    WORKER_KILLED = "worker_killed"
    POOL_PROCESS_KILLED = "pool_process_killed"
    WORKER_FROZEN = "worker_frozen"
    BEAT_KILLED = "beat_killed"
    SECOND_BEAT = "second_beat"
    PRIMARY_KILLED = "primary_killed"
    PRIMARY_STEPPED_DOWN = "primary_stepped_down"
    PRIMARY_FROZEN = "primary_frozen"
    PRIMARY_LOST = "primary_lost"
    """Replication stops, then the primary dies: what it wrote meanwhile is gone."""
    MONGODB_AWAY = "mongodb_away"
    """All of it, for longer than any call waits."""
    VALKEY_KILLED = "valkey_killed"
    VALKEY_LOST = "valkey_lost"
    MESSAGES_DROPPED = "messages_dropped"


LASTS: Mapping[FaultKind, float] = {
    # At the most: until others have done what it was at. What it brings when it comes back is too late then.
    FaultKind.WORKER_FROZEN: 20.0,
    FaultKind.BEAT_KILLED: 3.0,
    FaultKind.SECOND_BEAT: 3.0,
    # Longer than an election, so that there are two of them.
    FaultKind.PRIMARY_KILLED: 5.0,
    FaultKind.PRIMARY_FROZEN: 6.0,
    FaultKind.PRIMARY_LOST: 5.0,
    FaultKind.MONGODB_AWAY: 20.0,
    FaultKind.VALKEY_KILLED: 2.0,
    FaultKind.VALKEY_LOST: 2.0,
}
"""Seconds until it is mended; what is not here is at once."""

FAILOVERS = frozenset(
    {
        *(FaultKind.PRIMARY_KILLED, FaultKind.PRIMARY_STEPPED_DOWN, FaultKind.PRIMARY_FROZEN, FaultKind.PRIMARY_LOST),
        # What was in no journal yet is gone with all members.
        FaultKind.MONGODB_AWAY,
    }
)
"""Faults after which what a majority did not have may be taken back."""


class Disaster(StrEnum):
    """What is destroyed."""

    REDIS = "redis"
    """Every message, and all else that is in Redis."""
    GRAPH = "graph"
    """The whole collection of graphs."""
    MIXED = "mixed"
    """A random tenth of the records of every kind."""


T = TypeVar("T")


class Chaos:
    """One kill every `every` seconds (0: never), of whom the seed says."""

    def __init__(self, every: float, seed: int | None = None) -> None:
        self.every = every
        self.seed = secrets.randbelow(2**31) if seed is None else seed
        self._random = random.Random(self.seed)
        self._next: float | None = None

    def start(self, now: float) -> None:
        """The first kill is `every` seconds from now."""
        self._next = now + self.every if self.every else None

    def stop(self) -> None:
        """No more kills."""
        self._next = None

    def is_due(self, now: float) -> bool:
        """Whether to kill now. Kills that were missed are not made up for."""
        if self._next is None or now < self._next:
            return False
        self._next = now + self.every
        return True

    def choose(self, among: Sequence[T]) -> T:
        """Who is killed."""
        return self._random.choice(among)

    def deck(self, among: Sequence[T]) -> Iterator[T]:
        """What comes next, without end: all of them in some order, then all in another."""
        while True:
            yield from self._random.sample(among, len(among))
