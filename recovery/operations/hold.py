"""A range that is leased: held while it is worked at, and given back where nobody is to work at it any more."""

from __future__ import annotations

import threading
import time

from recovery.engine import Resources
from recovery.records import Operation, OperationRange, OperationState, Phase
from recovery.store.operators.operation_records import LimiterTurn

LEASE = 30.0
"""Seconds that a range is leased for, renewed while its worker is at it or waits for the limiter: whoever is killed is
followed by somebody after so long."""
RENEW = 5.0
"""Seconds after which who goes through a range as a whole looks whether it is still his."""
WAIT = 1.0
"""Seconds after which who waits for the limiter looks whether its operation still runs."""
STATES = {Phase.PLAN: OperationState.PLANNING, Phase.APPLY: OperationState.RUNNING}


class Hold:
    """What a worker asks while it is at a range. `ending` is set when the worker is to stop."""

    def __init__(
        self, resources: Resources, operation: Operation, leased: OperationRange, ending: threading.Event
    ) -> None:
        self._store, self._operation, self._leased = resources.store, operation, leased
        self._state, self._ending = STATES[leased.phase], ending
        self._renewed, self._over = time.monotonic(), False

    def leased(self) -> bool:
        """Renew the lease; whether it is still ours. Who has it now had it all the time: nobody else was at the range
        since it was leased."""
        return self._renew()

    def ours(self) -> bool:
        """The same, and whether the operation is at work."""
        return self._renew() and self._turn(0) is not None

    def goes_on(self) -> bool:
        """Whether a range may be gone through further: the same, asked once in a while; and no other rate was set, and
        this worker is not to stop. Once it says no it always does."""
        if not self._over and time.monotonic() - self._renewed >= RENEW:
            turn = self._turn(0) if self._renew() else None
            self._over = turn is None or (self._operation.is_paced and turn.rate != self._operation.rate)
        return not self._over and not self._ending.is_set()

    def take_turn(self, count: int) -> float | None:
        """Wait until the limiter lets so many pass; the rate that holds, 0 for none. None: no more is to be done, or by
        somebody else. A phase that the rate does not slow down passes without waiting."""
        if not self._operation.is_paced:
            return None if self._turn(0) is None else 0.0
        turn = self._turn(count)
        left = turn.seconds if turn is not None else 0.0
        while turn is not None and left > 0:
            if self._ending.wait(min(WAIT, left)) or not self._renew():
                return None
            left -= WAIT
            now = self._turn(0)  # it may be paused by now
            if now is not None and now.rate != turn.rate:
                now = self._turn(count)
                left = now.seconds if now is not None else 0.0
            turn = now
        return None if turn is None else turn.rate or 0.0

    def _renew(self) -> bool:
        self._renewed = time.monotonic()
        return self._store.operation_ranges.extend(self._leased, LEASE)

    def _turn(self, count: int) -> LimiterTurn | None:
        return self._store.operations.take_turn(self._operation.id, self._state, count)
