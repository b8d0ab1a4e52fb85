"""The batch in progress of a slot: tasks that it claimed together, run one after the other, and the results of finished
ones.

No task waits behind a slow one: meanwhile, another thread takes out the rest of the batch. The results are written, and
the tasks that have not begun are given back.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from recovery.engine.run.trying import Tried
from recovery.engine.steps import ClaimedTask
from recovery.records import Decision
from recovery.threads import ServiceThread

log = logging.getLogger(__name__)

SLOW = 0.02
"""Seconds that a task may run before the rest of its batch is taken out."""
LOOK_EVERY = 0.01
"""Seconds between two looks for slow tasks."""
LONGEST = 0.1
"""Seconds after which no further task of a batch is begun: its tasks take longer than estimated."""


@dataclass(frozen=True, slots=True)
class LastRun:
    """The task that a dead slot was running, if any. The rest of its batch had finished or not started."""

    decision_id: str | None


class Hand:
    """The batch in progress of one slot. The slot takes tasks from it, and another thread may empty it."""

    def __init__(self, claimed: Sequence[ClaimedTask]) -> None:
        self._lock = threading.Lock()
        self._left, self._ended = deque(claimed), list[tuple[ClaimedTask, Tried]]()
        self._until = time.monotonic() + LONGEST
        self._running: Decision | None = None
        self._since = 0.0

    def next(self, may_begin: Callable[[str], bool] = lambda _: True) -> ClaimedTask | None:
        """Return the task to run now, and mark it as running.

        Return None if no task remains, if LONGEST is over, or if `may_begin` refuses the task's actor. `may_begin` is
        called without the lock because it may ask a server.
        """
        with self._lock:
            self._running = None
            if not self._left or time.monotonic() >= self._until:
                return None
            actor = self._left[0].decision.actor
        if not may_begin(actor):
            return None
        with self._lock:
            if not self._left:  # another thread has emptied it meanwhile
                return None
            claimed = self._left.popleft()
            self._running, self._since = claimed.decision, time.monotonic()
            return claimed

    def keep(self, here: ClaimedTask, tried: Tried) -> None:
        """Keep the result of the task that ran."""
        with self._lock:
            self._running = None
            self._ended.append((here, tried))

    def empty(self) -> tuple[list[tuple[ClaimedTask, Tried]], list[Decision]]:
        """Take out and return the finished tasks with their results, and the tasks that have not begun. The caller must
        handle both."""
        with self._lock:
            ended, not_begun = self._ended, [claimed.decision for claimed in self._left]
            self._ended = []
            self._left.clear()
            return ended, not_begun

    def slow(self) -> Decision | None:
        """Return the running task if it is slow and others of its batch wait behind it."""
        with self._lock:
            others_wait = self._ended or self._left
            return self._running if others_wait and time.monotonic() - self._since > SLOW else None


Relieve = Callable[[Hand, Decision], None]
"""Handles the rest of a batch that waits behind this slow task."""


class Watch:
    """Watches all batches in progress of a pool process, and has those emptied whose task is slow. No batch waits for
    another."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._hands: dict[Hand, Relieve] = {}
        self._relieving: set[Hand] = set()
        self._thread = ServiceThread("hands", self._look)

    @contextmanager
    def over(self, hand: Hand, relieve: Relieve) -> Iterator[None]:
        """Call `relieve` once, in another thread, if the batch has a slow task while this context lasts."""
        with self._lock:
            self._hands[hand] = relieve
        if self._thread.begin():  # without a thread, tasks wait for the end of a slow one
            self._thread.wake()
        try:
            yield
        finally:
            with self._lock:
                self._hands.pop(hand, None)

    def _look(self) -> float | None:
        with self._lock:
            hands = list(self._hands.items())
        for hand, relieve in hands:
            if hand not in self._relieving and (slow := hand.slow()) is not None:
                self._relieving.add(hand)
                self._relieve_in_thread(hand, relieve, slow)
        return LOOK_EVERY if hands else None

    def _relieve_in_thread(self, hand: Hand, relieve: Relieve, slow: Decision) -> None:
        """Relieve a batch in its own thread, because an outage may block this for long and other batches must not
        wait."""
        try:
            threading.Thread(target=self._relieve, args=(hand, relieve, slow), name="hand", daemon=True).start()
        except RuntimeError:  # the system has no thread to give: relieve it here, although later
            self._relieve(hand, relieve, slow)

    def _relieve(self, hand: Hand, relieve: Relieve, slow: Decision) -> None:
        try:
            relieve(hand, slow)
        except Exception as error:  # unwritten results and unreturned tasks keep their deadlines
            log.warning(
                "could not flush the batch behind slow task %s (%s); its tasks are requeued at their deadlines",
                slow.id,
                error,
            )
        finally:
            self._relieving.discard(hand)
