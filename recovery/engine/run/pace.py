"""Decides how many tasks of an actor a slot claims at once: one, until its tasks prove quick.

A task is quick if it takes less time than writing its result. The time of the write is measured too, because it depends
on the distance and the load of the servers.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

QUICK = 0.0125
"""Seconds up to which a task always counts as quick: about five times the cost of its message, claim and result."""
LEAST_SLOW = 0.02
"""Seconds above which a task never counts as quick, whatever writing its result costs."""
BATCH_SECONDS = 0.05
"""Target duration of a batch in seconds. A message may wait this long behind others although another slot is idle."""
WEIGHT = 0.2
"""Weight of the latest task in the moving average. After a task of 2 s, about 20 quick tasks make the actor quick
again."""
SHORT = 0.25
"""Maximum average seconds of a task after which its slot claims the next task itself. Celery delivers one message at a
time, to all slots in turn, which limits a worker with many slots."""
ALONE = 5
"""Number of tasks that run alone after a task that was unfit for a batch."""


@dataclass(slots=True)
class _Known:
    seconds: float
    size: int = 1
    """Maximum size of the last batch. The next batch may be twice as large."""
    alone: int = 0
    """Number of further tasks that must run alone."""


class Pace:
    """The measured task times of one pool process, by actor. Thread-safe."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._known: dict[str, _Known] = {}
        self._overhead = 0.0

    def note(self, actor: str, seconds: float) -> None:
        """Record that a task of this actor took this many seconds."""
        with self._lock:
            measured = self._known.setdefault(actor, _Known(seconds))
            measured.seconds += WEIGHT * (seconds - measured.seconds)
            measured.alone = max(0, measured.alone - 1)
            if measured.seconds > self._quick:
                measured.size = 1

    def note_around(self, seconds: float) -> None:
        """Record the seconds that it took to write and apply the end of a task that ran alone."""
        with self._lock:
            self._overhead += WEIGHT * (min(seconds, LEAST_SLOW) - self._overhead)

    def note_unfit(self, actor: str) -> None:
        """Record that a task was unfit for a batch. The next tasks of its actor run alone."""
        with self._lock:
            measured = self._known[actor]
            measured.size, measured.alone = 1, ALONE

    def is_quick(self, actor: str) -> bool:
        """Return whether the actor's tasks are known to be quick."""
        measured = self._known.get(actor)
        return measured is not None and measured.seconds <= self._quick

    def is_short(self, actor: str) -> bool:
        """Return whether a slot claims another task after one of this actor. Never if batches are off (`most` is 1)."""
        measured = self._known.get(actor)
        return self._most > 1 and measured is not None and measured.seconds <= SHORT

    def fits(self, actor: str) -> int:
        """Return how many of the actor's tasks may run after others in a batch; 0 if they must run alone."""
        measured = self._known.get(actor)
        if measured is None or measured.alone or measured.seconds > self._quick:
            return 0
        return max(1, min(self._most, int(BATCH_SECONDS / max(measured.seconds, 1e-6))))

    def room(self, actor: str) -> int:
        """Return how many of the actor's tasks to claim now: at most twice as many as the last time."""
        with self._lock:
            if not (fits := self.fits(actor)):
                return 1
            measured = self._known[actor]
            measured.size = min(fits, 2 * measured.size)
            return measured.size

    @property
    def _quick(self) -> float:
        return min(max(QUICK, self._overhead), LEAST_SLOW)
