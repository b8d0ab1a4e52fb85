"""When a worker is killed, and which, and what else breaks: by a seed, so that a run can be tried again."""

from __future__ import annotations

import random
import secrets
from collections.abc import Iterator, Sequence
from typing import TypeVar

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
