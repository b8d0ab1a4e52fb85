"""How many tasks of an actor a slot takes at once: one, until they prove quick."""

from __future__ import annotations

import threading
from dataclasses import dataclass

QUICK = 0.005
"""Seconds that a quick task takes: as much as a message and a claim of its own cost."""
BATCH_SECONDS = 0.05
"""What a batch takes, about: for so long a message may wait behind others, though another slot may be idle."""
WEIGHT = 0.2
"""Of the last task in the moving average: after one of 2 s some 25 quick ones prove that it was an exception."""


@dataclass(slots=True)
class _Known:
    seconds: float
    size: int = 1
    """Of the last batch, at most; the next one may be twice as large."""


class Pace:
    """What one process of a worker has seen of its actors' tasks. Safe for threads."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._known: dict[str, _Known] = {}

    def note(self, actor: str, seconds: float) -> None:
        """A task took so long."""
        with self._lock:
            known = self._known.setdefault(actor, _Known(seconds))
            known.seconds += WEIGHT * (seconds - known.seconds)
            if known.seconds > QUICK:
                known.size = 1

    def note_unfit(self, actor: str) -> None:
        """One was not to be run with others: so the next few are run by themselves."""
        with self._lock:
            known = self._known[actor]
            known.seconds = max(known.seconds, 2 * QUICK)
            known.size = 1

    def is_quick(self, actor: str) -> bool:
        """Whether its tasks may be run after others."""
        known = self._known.get(actor)
        return known is not None and known.seconds <= QUICK

    def room(self, actor: str) -> int:
        """How many to take now; no more than twice as many as the last time."""
        with self._lock:
            known = self._known.get(actor)
            if known is None or known.seconds > QUICK:
                return 1
            known.size = max(1, min(self._most, 2 * known.size, int(BATCH_SECONDS / max(known.seconds, 1e-6))))
            return known.size
