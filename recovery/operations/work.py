"""Workers' part in operations: lease a range, process its pages one after the other, and count each page once.

    lease → [ read a page → wait for the limiter → process it → save its results → commit: cursor and totals ] → done

The commit names the lease and the cursor that the page was read with. If a worker is interrupted before the commit,
another worker takes the same page. Results that were already saved stay as they are, and a process that was already
changed is not changed again.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from math import ceil

from recovery.engine import Outbox, Resources
from recovery.engine.isolation import in_a_line, is_of_servers
from recovery.engine.isolation import tell as tell_failed
from recovery.errors import BrokerError, DamagedRecord, StoreError
from recovery.operations.advance import MAX_AHEAD, advance
from recovery.operations.pages import LEASE, STATES, Hold, Pages, pages_of
from recovery.records import Operation, OperationRange, OperationState, Totals
from recovery.records.ids import new_pass
from recovery.retry.own_work import DAMAGED_OPERATION, OPERATION_RANGE
from recovery.store.record_reading import tell
from recovery.survey import without_collector

log = logging.getLogger(__name__)

WAKE_EVERY = 30.0
"""Seconds between two searches for working operations whose deadline is missing or too far in the future."""


class OperationWorker:
    """Works on operations for one process. `name` identifies this worker in the leases of its ranges."""

    def __init__(self, resources: Resources, outbox: Outbox, name: str) -> None:
        self._resources, self._outbox, self._name = resources, outbox, name
        self._ending = threading.Event()
        self._postponed: dict[int, float] = {}
        self._wake_at = 0.0

    def stop(self) -> None:
        """Stop after the current page."""
        self._ending.set()

    def run_once(self, seconds: float = 20.0) -> bool:
        """Work until nothing is left to do, or for about `seconds`. Return whether work is left.

        Does not raise if a server is unavailable: leases expire, and the next nudge continues.
        """
        until = time.monotonic() + seconds
        try:
            self.look_after()
            while not self._ending.is_set():
                if not self._turn(until):
                    return False
                if time.monotonic() > until:
                    return True
        except (StoreError, BrokerError) as error:
            log.warning("operations interrupted (%s); they continue at the next nudge", error)
        return False

    def look_after(self) -> None:
        """Advance operations whose deadline is past."""
        if time.monotonic() >= self._wake_at:
            self._wake_at = time.monotonic() + WAKE_EVERY
            self._resources.store.operations.wake(MAX_AHEAD)
        overdue = self._resources.store.operations.overdue(100)
        for damage in overdue.damaged:
            tell(damage)
            self._resources.store.operations.postpone(damage.record, DAMAGED_OPERATION.delay(1))
        for operation in overdue.records:
            self._advance(operation)

    def _turn(self, until: float) -> bool:
        """Work on one range of each operation. Return whether any range or step was done."""
        worked = False
        for operation in self._resources.store.operations.at_work():
            if operation.state is OperationState.ADMITTING or not operation.ready:
                worked |= self._advance(operation)
            elif not operation.driven:
                worked |= self.work_at(operation, until)
            if self._ending.is_set():
                break
        return worked

    def work_once(self, number: int, seconds: float = math.inf) -> None:
        """Work on one range of an operation, if it has an open range, for about `seconds`. Raises StoreError and
        BrokerError."""
        operation = self._resources.store.operations.get(number)
        if operation is not None and operation.ready and operation.state is STATES[operation.phase]:
            self.work_at(operation, time.monotonic() + seconds)

    def work_at(self, operation: Operation, until: float) -> bool:
        """Lease a range of an operation and work on it. Return False if no range can be leased."""
        ranges = self._resources.store.operation_ranges
        try:
            leased = ranges.lease(operation.id, operation.phase, new_pass(), self._name, LEASE)
        except DamagedRecord:
            return self._advance(operation)  # advancing saves the damaged range again, as it was planned
        if leased is None:
            return False
        try:
            done = self._work(operation, leased, until)
        except Exception as error:  # errors of servers, or of records that another program wrote
            of_servers = is_of_servers(error)
            retry_policy = OPERATION_RANGE if of_servers else DAMAGED_OPERATION
            ranges.give_back(leased, in_a_line(error), retry_policy.delay(1))
            if of_servers:
                raise
            tell_failed(f"operation {operation.id}, range {leased.id}", error)
            return True
        if done and not operation.driven and not ranges.how_many_open(operation.id, operation.phase):
            self._advance(operation)
        return True

    def _advance(self, operation: Operation) -> bool:
        """Advance an operation, and return whether that worked. An operation with damaged records is postponed, so that
        it does not block the others."""
        if time.monotonic() < self._postponed.get(operation.id, 0.0):
            return False
        try:
            advance(self._resources, operation)
        except Exception as error:
            if is_of_servers(error):
                raise
            tell_failed(f"operation {operation.id}", error)
            self._postponed[operation.id] = time.monotonic() + DAMAGED_OPERATION.delay(1)
            return False
        return True

    def _work(self, operation: Operation, leased: OperationRange, until: float) -> bool:
        """Process the range page by page. Return whether the range is done."""
        ranges = self._resources.store.operation_ranges
        hold = Hold(self._resources, operation, leased, self._ending)
        pages = pages_of(self._resources, self._outbox, operation, leased, hold)
        size = _page_size(operation, pages, operation.pace)
        current: OperationRange | None = leased
        while current is not None:
            count = pages.read(current, size)
            turn = hold.take_turn(count)
            totals = _do_without_collector(pages) if turn is not None else None
            if turn is None or totals is None:
                ranges.give_back(current, None)
                return False
            is_done = count < size
            current = ranges.commit(current, pages.last or current.cursor, totals, LEASE, done=is_done)
            if is_done:
                return current is not None
            if current is not None and (time.monotonic() > until or self._ending.is_set()):
                ranges.give_back(current, None)
                return False
            size = _page_size(operation, pages, turn)
        return False


def _do_without_collector(pages: Pages) -> Totals | None:
    """Process a page, see `Pages.do`. The garbage collector runs only after the page, for example on cycles that errors
    leave behind."""
    with without_collector():
        return pages.do()


def _page_size(operation: Operation, pages: Pages, rate: float | None) -> int:
    """Return the page size: at most the processes that the rate admits within a second, so that a pause or a new rate
    takes effect by then. Pages of an export keep their full size, because each page is a file."""
    return pages.size if not rate or operation.export is not None else max(1, min(pages.size, ceil(rate)))
