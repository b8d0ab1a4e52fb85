"""A circuit breaker: after failures in a row a server is left alone for a while, so that one which comes back is not
trampled (RFC 49, CIRCUIT_BREAKER_OPEN).

    closed      all calls go through; `failures` in a row open it
    open        none does, for `pause` seconds
    half open   one does: its success closes the breaker, its failure opens it again
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


class State(StrEnum):
    """How a breaker is."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half open"


class CircuitOpen(RecoveryError):
    """Nothing was sent: the server has failed a moment ago, again and again."""


class CircuitBreaker:
    """One for each server. Safe for threads."""

    def __init__(
        self, name: str, *, failures: int = 5, pause: float = 1.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.name = name
        self._failures, self._pause, self._clock = failures, pause, clock
        self._lock = threading.Lock()
        self._failed = 0
        self._open_until: float | None = None
        self._trying = False

    @property
    def state(self) -> State:
        with self._lock:
            return self._state()

    def call(self, step: Callable[[], T], is_failure: Callable[[Exception], bool] = lambda _: True) -> T:
        """What `step` gives. Raises CircuitOpen where it is not sent; an error counts if it is the server's."""
        with self._lock:
            state = self._state()
            if state is State.OPEN or (state is State.HALF_OPEN and self._trying):
                raise CircuitOpen(f"{self.name}: not asked, since it failed {self._failed} times in a row")
            self._trying = state is State.HALF_OPEN
        try:
            done = step()
        except Exception as error:
            self._end(failed=is_failure(error))
            raise
        except BaseException:
            self._end(failed=None)
            raise
        self._end(failed=False)
        return done

    def _state(self) -> State:
        if self._open_until is None:
            return State.CLOSED
        return State.OPEN if self._clock() < self._open_until else State.HALF_OPEN

    def _end(self, *, failed: bool | None) -> None:
        """Note how a call ended; None if nobody knows."""
        with self._lock:
            was_trying, self._trying = self._trying, False
            if failed is None:
                return
            if not failed:
                if self._open_until is not None:
                    log.warning("%s: circuit breaker closed: it answers", self.name)
                self._failed, self._open_until = 0, None
                return
            self._failed += 1
            if was_trying or (self._open_until is None and self._failed >= self._failures):
                self._open_until = self._clock() + self._pause
                log.warning("%s: circuit breaker open for %g s: %d failures", self.name, self._pause, self._failed)
