"""A worker that is frozen in the middle of its tasks, for so long that others do them: what it brings then is stale.

Whoever is frozen between two tasks, or woken before another attempt has ended, proves nothing about stale results. So a
worker is frozen until it holds a task while it stands still, and stands still until each such task is finished, and
long enough for others to have seen the result that was accepted.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from recovery.errors import StoreError
from recovery.records import DecisionState
from recovery.stack import ChildProcess
from recovery.store import Store
from recovery.store.views.overview import time_limit

TRIES, BETWEEN_TRIES = 20, 0.05
"""How often, and seconds. A worker that has nothing to do for so long is frozen as it is."""
MAX_TASKS = 100
ASK_TIMEOUT = 2.0


class AtWork:
    """What a frozen worker holds, and whether others have done it. MongoDB may be away: then nothing is known."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def tasks(self, pid: int) -> list[str]:
        """The decisions that the worker with this parent process works on."""
        try:
            with time_limit(ASK_TIMEOUT):
                ids = [worker.id for worker in self._store.workers.all() if worker.pid == pid]
                held = self._store.decisions.held_by(ids, MAX_TASKS, DecisionState.WORKING) if ids else []
        except StoreError:
            return []
        return [decision.id for decision in held]

    def is_overtaken(self, tasks: Sequence[str]) -> bool:
        """Whether all of these are finished by now."""
        try:
            with time_limit(ASK_TIMEOUT):
                states = self._store.decisions.states(tasks)
        except StoreError:
            return False
        return all(states.get(task) is DecisionState.FINISHED for task in tasks)


class Lasting:
    """Whether a condition has held for some seconds, as far as it was asked."""

    def __init__(self, holds: Callable[[], bool], seconds: float) -> None:
        self._holds, self._seconds = holds, seconds
        self._since: float | None = None

    def __call__(self) -> bool:
        if not self._holds():
            self._since = None
            return False
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        return now - self._since >= self._seconds


def freeze_at_work(worker: ChildProcess, at_work: AtWork) -> list[str]:
    """Freeze a worker in the middle of some tasks, and tell which; none, if it never is in any."""
    for _ in range(TRIES):
        worker.freeze()
        if tasks := at_work.tasks(worker.pid):
            return tasks
        worker.thaw()
        threading.Event().wait(BETWEEN_TRIES)
    worker.freeze()
    return []
