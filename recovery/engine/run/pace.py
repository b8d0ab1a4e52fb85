"""How many tasks of an actor a slot takes at once: one, until they prove quick.

A quick task takes less time than the writing of its end, which is measured as well: it depends on how far the servers
are away, and on who else uses them.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

QUICK = 0.0125
"""Seconds that a quick task takes in any case: some five times what a message, a claim and an end of its own cost."""
LEAST_SLOW = 0.02
"""Seconds from which on none is quick, whatever its end costs."""
BATCH_SECONDS = 0.05
"""What a batch takes, about: for so long a message may wait behind others, though another slot may be idle."""
WEIGHT = 0.2
"""Of the last task in a moving average: after one of 2 s some 20 quick ones prove that it was an exception."""
SHORT = 0.25
"""Seconds that a task takes at most after which its slot takes the next message by itself. Celery hands on one at a
time, to all slots in turn: where there are many, that is what they wait for."""
ALONE = 5
"""So many tasks are run by themselves after one that was not to be run with others."""


@dataclass(slots=True)
class _Known:
    seconds: float
    size: int = 1
    """Of the last batch, at most; the next one may be twice as large."""
    alone: int = 0
    """So many more are to be run by themselves."""


class Pace:
    """What one process of a worker has seen of its actors' tasks. Safe for threads."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._known: dict[str, _Known] = {}
        self._around = 0.0

    def note(self, actor: str, seconds: float) -> None:
        """A task took so long."""
        with self._lock:
            known = self._known.setdefault(actor, _Known(seconds))
            known.seconds += WEIGHT * (seconds - known.seconds)
            known.alone = max(0, known.alone - 1)
            if known.seconds > self._quick:
                known.size = 1

    def note_around(self, seconds: float) -> None:
        """To write and apply the end of a task that was run by itself took so long."""
        with self._lock:
            self._around += WEIGHT * (min(seconds, LEAST_SLOW) - self._around)

    def note_unfit(self, actor: str) -> None:
        """One was not to be run with others: so the next few are run by themselves."""
        with self._lock:
            known = self._known[actor]
            known.size, known.alone = 1, ALONE

    def is_quick(self, actor: str) -> bool:
        """Whether its tasks take little time."""
        known = self._known.get(actor)
        return known is not None and known.seconds <= self._quick

    def is_short(self, actor: str) -> bool:
        """Whether a slot that did one of its tasks goes on with another; never where they come one by one."""
        known = self._known.get(actor)
        return self._most > 1 and known is not None and known.seconds <= SHORT

    def fits(self, actor: str) -> int:
        """How many of its tasks may be run after others."""
        known = self._known.get(actor)
        if known is None or known.alone or known.seconds > self._quick:
            return 0
        return max(1, min(self._most, int(BATCH_SECONDS / max(known.seconds, 1e-6))))

    def room(self, actor: str) -> int:
        """How many to take now; no more than twice as many as the last time."""
        with self._lock:
            if not (fits := self.fits(actor)):
                return 1
            known = self._known[actor]
            known.size = min(fits, 2 * known.size)
            return known.size

    @property
    def _quick(self) -> float:
        return min(max(QUICK, self._around), LEAST_SLOW)
