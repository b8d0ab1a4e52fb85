"""A circuit breaker: after failures in a row a server is left alone for a while, so that one which comes back is not
trampled (RFC 49, CIRCUIT_BREAKER_OPEN).

    closed      all calls go through; `failures` in a row open it
    open        none does, for `pause` seconds; each time it opens again for twice as long, up to `longest_pause`
    half open   one does, a trial: its success closes the breaker, its failure opens it again

A trial that has no end does not stand for the server for ever: after `trial` seconds there is another one. A call that
failed, and had begun before another one was answered, says how the server was then: it does not count.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from enum import StrEnum
from typing import TypeVar

from recovery.errors import RecoveryError

T = TypeVar("T")

log = logging.getLogger(__name__)

Judge = Callable[[Exception], bool | None]
"""What an error says of the server: True that it is away, False that it answers, None nothing."""


class State(StrEnum):
    """How a breaker is."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half open"


class CircuitOpen(RecoveryError):
    """Nothing was sent: the server has failed a moment ago. `left` are the seconds until there may be a trial."""

    def __init__(self, message: str, left: float) -> None:
        super().__init__(message)
        self.left = left


class CircuitBreaker:
    """One for each server. Safe for threads, and not to be carried over a fork. While it is closed and nothing fails, a
    call costs half a microsecond."""

    def __init__(
        self,
        name: str,
        *,
        failures: int = 5,
        pause: float = 1.0,
        longest_pause: float | None = None,
        trial: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
        changed: Callable[[State], object] = lambda _: None,
    ) -> None:
        """`changed` is told when it opens, and when it closes; not of trials that fail."""
        self.name = name
        self._failures, self._pause, self._longest = failures, pause, max(pause, longest_pause or pause)
        self._trial, self._clock, self._changed = trial, clock, changed
        self._lock = threading.Lock()
        self._failed = self._reopened = 0
        self._open_until: float | None = None
        self._opened_at = self._answered_at = self._trying_until = float("-inf")

    @property
    def state(self) -> State:
        with self._lock:
            return self._state()

    def note_away(self) -> None:
        """Count a failure that was seen without a call. Does nothing while it is open."""
        if self._open_until is None:
            self._note_failure(self._clock(), is_trial=False)

    def call(self, step: Callable[[], T], judge: Judge = lambda _: True, *, always: bool = False) -> T:
        """What `step` gives. Raises CircuitOpen where it is not sent; it is `always` sent where it has to be."""
        begun = self._clock()
        is_trial = not always and self._open_until is not None and self._admit(begun)
        try:
            done = step()
        except Exception as error:
            away = judge(error)
            if away is True:
                self._note_failure(begun, is_trial)
            elif away is False:
                self._note_answer()
            elif is_trial:
                self._end_trial()
            raise
        except BaseException:
            if is_trial:
                self._end_trial()
            raise
        self._note_answer()
        return done

    def _state(self) -> State:
        if self._open_until is None:
            return State.CLOSED
        return State.OPEN if self._clock() < self._open_until else State.HALF_OPEN

    def _admit(self, now: float) -> bool:
        """Whether this call is a trial. Raises CircuitOpen."""
        with self._lock:
            if self._open_until is None:
                return False
            if now < self._open_until or now < self._trying_until:
                told = f"{self.name}: not asked, since it failed ({self._failed} in a row)"
                raise CircuitOpen(told, max(0.0, self._open_until - now))
            self._trying_until = now + self._trial
            return True

    def _end_trial(self) -> None:
        """Nobody knows how it ended: the next call is another one."""
        with self._lock:
            self._trying_until = float("-inf")

    def _note_answer(self) -> None:
        self._answered_at = self._clock()
        if not self._failed:  # without the lock, since that is nearly always so
            return
        with self._lock:
            was_open, self._open_until = self._open_until is not None, None
            self._failed = self._reopened = 0
            self._trying_until = float("-inf")
        if was_open:
            log.warning(
                "%s: circuit breaker closed after %.1f s: it answers", self.name, self._answered_at - self._opened_at
            )
            self._changed(State.CLOSED)

    def _note_failure(self, begun: float, is_trial: bool) -> None:
        with self._lock:
            if is_trial:
                self._trying_until = float("-inf")
            elif begun < self._answered_at:
                return
            self._failed += 1
            now, opens = self._clock(), self._open_until is None
            if not (is_trial or (opens and self._failed >= self._failures)):
                return
            pause = min(self._longest, self._pause * 2.0 ** min(self._reopened, 32))
            self._open_until = now + pause
            self._reopened += 1
            if opens:
                self._opened_at = now
        told = "%s: circuit breaker %s for %g s: failures in a row: %d"
        log.log(logging.WARNING if opens else logging.DEBUG, told, self.name, "open" if opens else "open again", pause,
                self._failed)  # fmt: skip
        if opens:
            self._changed(State.OPEN)
