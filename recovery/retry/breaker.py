"""Circuit breaker: after several failures in a row a server gets no calls for a while (RFC 49, CIRCUIT_BREAKER_OPEN).

A server that comes back is then not overloaded at once.

    closed      all calls go through; `failures` in a row open it
    open        no call goes through for `pause` seconds; the pause doubles each time, up to `longest_pause`
    half open   one trial call goes through: its success closes the breaker, its failure opens it again

If a trial does not end within `trial` seconds, the next call is a trial, too. A failed call that began before another
call was answered does not count, because it only shows the server's earlier state.
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
"""What an error shows about the server: True that it is away, False that it answers, None nothing."""


class State(StrEnum):
    """The state of a circuit breaker."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half open"


class CircuitOpen(RecoveryError):
    """The call was not sent, because the server has failed a moment ago. `left` is the seconds until a trial is
    allowed."""

    def __init__(self, message: str, left: float) -> None:
        super().__init__(message)
        self.left = left


class CircuitBreaker:
    """A circuit breaker for one server. Safe for threads, but not usable in a forked child."""

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
        """Create a closed breaker.

        Args:
            name: The server's name in the log.
            failures: Failures in a row that open the breaker.
            pause: Seconds for which it is open the first time.
            longest_pause: Maximum seconds for which it is open; the same as `pause` if None.
            trial: Seconds after which another trial is allowed if a trial has not ended.
            clock: Returns the time in seconds.
            changed: Called when the breaker opens and when it closes, but not after a failed trial.
        """
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
        """Count a failure that was detected without a call. Does nothing while the breaker is open."""
        if self._open_until is None:
            self._note_failure(self._clock(), is_trial=False)

    def call(self, step: Callable[[], T], judge: Judge = lambda _: True, *, always: bool = False) -> T:
        """Call `step` and return its result.

        Args:
            step: The call to the server.
            judge: Says what an error of `step` shows about the server.
            always: Whether to call `step` even if the breaker is open.

        Raises:
            CircuitOpen: The breaker is open, so `step` was not called.
        """
        started_at = self._clock()
        is_trial = not always and self._open_until is not None and self._admit(started_at)
        try:
            result = step()
        except Exception as error:
            is_away = judge(error)
            if is_away is True:
                self._note_failure(started_at, is_trial)
            elif is_away is False:
                self._note_answer()
            elif is_trial:
                self._end_trial()
            raise
        except BaseException:
            if is_trial:
                self._end_trial()
            raise
        self._note_answer()
        return result

    def _state(self) -> State:
        if self._open_until is None:
            return State.CLOSED
        return State.OPEN if self._clock() < self._open_until else State.HALF_OPEN

    def _admit(self, now: float) -> bool:
        """Return whether this call is a trial. Raise CircuitOpen if it must not be sent."""
        with self._lock:
            if self._open_until is None:
                return False
            if now < self._open_until or now < self._trying_until:
                message = f"{self.name}: not called, because it failed ({self._failed} in a row)"
                raise CircuitOpen(message, max(0.0, self._open_until - now))
            self._trying_until = now + self._trial
            return True

    def _end_trial(self) -> None:
        """End a trial without a verdict: the next call is a new trial."""
        with self._lock:
            self._trying_until = float("-inf")

    def _note_answer(self) -> None:
        self._answered_at = self._clock()
        if not self._failed:  # checked without the lock, because this is nearly always so
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

    def _note_failure(self, started_at: float, is_trial: bool) -> None:
        with self._lock:
            if is_trial:
                self._trying_until = float("-inf")
            elif started_at < self._answered_at:
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
        message = "%s: circuit breaker %s for %g s: failures in a row: %d"
        log.log(logging.WARNING if opens else logging.DEBUG, message, self.name, "open" if opens else "open again",
                pause, self._failed)  # fmt: skip
        if opens:
            self._changed(State.OPEN)
