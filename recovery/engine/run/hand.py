"""What a slot has in hand: tasks that it claimed together, to be run one after the other, and the ends of those
that ran.

Nobody waits behind a task that turns out slow. What lies in the hand meanwhile is taken out of it: ends are written,
and what has not begun is given back.
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
"""Seconds that a task runs before what is in hand with it is taken out."""
LOOK_EVERY = 0.01
LONGEST = 0.1
"""Seconds after which no further task of a batch is begun: each takes longer than was thought."""


@dataclass(frozen=True, slots=True)
class LastRun:
    """What a slot that is gone ran: a task, or none. What else it had in hand had not begun, or had ended."""

    decision_id: str | None


class Hand:
    """Of one slot, which takes from it; another thread may empty it."""

    def __init__(self, claimed: Sequence[ClaimedTask]) -> None:
        self._lock = threading.Lock()
        self._left, self._ended = deque(claimed), list[tuple[ClaimedTask, Tried]]()
        self._until = time.monotonic() + LONGEST
        self._running: Decision | None = None
        self._since = 0.0

    def next(self, may_begin: Callable[[str], bool] = lambda _: True) -> ClaimedTask | None:
        """What is to be run now; None if nothing is left, it is time to end, or of its actor nothing may be begun. That
        may be asked of a server, and nobody who looks at the hand waits for its answer."""
        with self._lock:
            self._running = None
            if not self._left or time.monotonic() >= self._until:
                return None
            actor = self._left[0].decision.actor
        if not may_begin(actor):
            return None
        with self._lock:
            if not self._left:  # somebody has emptied it meanwhile
                return None
            here = self._left.popleft()
            self._running, self._since = here.decision, time.monotonic()
            return here

    def keep(self, here: ClaimedTask, tried: Tried) -> None:
        """What ran has come to this."""
        with self._lock:
            self._running = None
            self._ended.append((here, tried))

    def empty(self) -> tuple[list[tuple[ClaimedTask, Tried]], list[Decision]]:
        """What has ended, and what has not begun: whoever gets it sees to it."""
        with self._lock:
            ended, left = self._ended, [here.decision for here in self._left]
            self._ended = []
            self._left.clear()
            return ended, left

    def slow(self) -> Decision | None:
        """What runs for long while others wait for it."""
        with self._lock:
            waits = self._ended or self._left
            return self._running if waits and time.monotonic() - self._since > SLOW else None


Relieve = Callable[[Hand, Decision], None]


class Watch:
    """Looks at all hands of a process, as long as there are some, and has those emptied in which a task is slow. None
    waits for another."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._hands: dict[Hand, Relieve] = {}
        self._relieving: set[Hand] = set()
        self._thread = ServiceThread("hands", self._look)

    @contextmanager
    def over(self, hand: Hand, relieve: Relieve) -> Iterator[None]:
        """Within, call `relieve` once for a hand whose task is slow; in another thread."""
        with self._lock:
            self._hands[hand] = relieve
        if self._thread.begin():  # without it who waits for a slow task waits for its end
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
                self._relieve_beside(hand, relieve, slow)
        return LOOK_EVERY if hands else None

    def _relieve_beside(self, hand: Hand, relieve: Relieve, slow: Decision) -> None:
        """Relieve a hand in a thread of its own, because an outage may hold that up for long, and other hands must not
        wait for it."""
        try:
            threading.Thread(target=self._relieve, args=(hand, relieve, slow), name="hand", daemon=True).start()
        except RuntimeError:  # no further thread can be started: late is better than never
            self._relieve(hand, relieve, slow)

    def _relieve(self, hand: Hand, relieve: Relieve, slow: Decision) -> None:
        try:
            relieve(hand, slow)
        except Exception as error:  # what could not be written or given back has its deadline
            log.warning("what waited for %s was not seen to (%s): it is at its deadline", slow.id, error)
        finally:
            self._relieving.discard(hand)
