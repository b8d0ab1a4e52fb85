"""Work at the ranges of operations: lease one, take page after page of it, count each page once.

    lease → [ read a page → wait for the limiter → do it → save its results → commit: cursor and totals ] → done

The commit names the lease and the cursor that it was read with. Whoever was cut off before it is followed by somebody
who takes the same page: what is saved of its results stays as it is, and what was done to a process is not done again.
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
"""Seconds between two looks for operations at work whose deadline is missing or too far off."""


class OperationWorker:
    """Works at operations, for one process of ours. `name` is told with what it has leased."""

    def __init__(self, resources: Resources, outbox: Outbox, name: str) -> None:
        self._resources, self._outbox, self._name = resources, outbox, name
        self._ending = threading.Event()
        self._put_off: dict[int, float] = {}
        self._wake_at = 0.0

    def stop(self) -> None:
        """End with the page that is under way."""
        self._ending.set()

    def run_once(self, seconds: float = 20.0) -> bool:
        """Work until nothing is left to do, or for about so many seconds; whether there is more. Does not raise for
        servers that are away: leases end, and the next nudge comes."""
        until = time.monotonic() + seconds
        try:
            self.look_after()
            while not self._ending.is_set():
                if not self._turn(until):
                    return False
                if time.monotonic() > until:
                    return True
        except (StoreError, BrokerError) as error:
            log.warning("operations cut off (%s); the next nudge goes on", error)
        return False

    def look_after(self) -> None:
        """Take operations whose deadline is past a step further."""
        if time.monotonic() >= self._wake_at:
            self._wake_at = time.monotonic() + WAKE_EVERY
            self._resources.store.operations.wake(MAX_AHEAD)
        found = self._resources.store.operations.overdue(100)
        for damage in found.damaged:
            tell(damage)
            self._resources.store.operations.postpone(damage.record, DAMAGED_OPERATION.delay(1))
        for operation in found.records:
            self._advance(operation)

    def _turn(self, until: float) -> bool:
        """One range of each operation; whether any was there."""
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
        """Work at one range of an operation, as far as there is one, for about so long. Raises StoreError,
        BrokerError."""
        operation = self._resources.store.operations.get(number)
        if operation is not None and operation.ready and operation.state is STATES[operation.phase]:
            self.work_at(operation, time.monotonic() + seconds)

    def work_at(self, operation: Operation, until: float) -> bool:
        """Lease a range of an operation, and work at it; False if there is none to lease."""
        ranges = self._resources.store.operation_ranges
        try:
            leased = ranges.lease(operation.id, operation.phase, new_pass(), self._name, LEASE)
        except DamagedRecord:
            return self._advance(operation)  # it is saved again, as it was planned
        if leased is None:
            return False
        try:
            done = self._work(operation, leased, until)
        except Exception as error:  # of servers, or of whatever another program wrote
            of_servers = is_of_servers(error)
            again = OPERATION_RANGE if of_servers else DAMAGED_OPERATION
            ranges.give_back(leased, in_a_line(error), again.delay(1))
            if of_servers:
                raise
            tell_failed(f"operation {operation.id}, range {leased.id}", error)
            return True
        if done and not operation.driven and not ranges.how_many_open(operation.id, operation.phase):
            self._advance(operation)
        return True

    def _advance(self, operation: Operation) -> bool:
        """Take one a step further; whether it could be. One that fails, for what another program wrote into its
        records, holds up none of the others."""
        if time.monotonic() < self._put_off.get(operation.id, 0.0):
            return False
        try:
            advance(self._resources, operation)
        except Exception as error:
            if is_of_servers(error):
                raise
            tell_failed(f"operation {operation.id}", error)
            self._put_off[operation.id] = time.monotonic() + DAMAGED_OPERATION.delay(1)
            return False
        return True

    def _work(self, operation: Operation, leased: OperationRange, until: float) -> bool:
        """Page after page; whether the range is done."""
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
            done = count < size
            current = ranges.commit(current, pages.last or current.cursor, totals, LEASE, done=done)
            if done:
                return current is not None
            if current is not None and (time.monotonic() > until or self._ending.is_set()):
                ranges.give_back(current, None)
                return False
            size = _page_size(operation, pages, turn)
        return False


def _do_without_collector(pages: Pages) -> Totals | None:
    """See `Pages.do`. What a page leaves behind in cycles, of errors say, is found when it is done."""
    with without_collector():
        return pages.do()


def _page_size(operation: Operation, pages: Pages, rate: float | None) -> int:
    """As many as pass within a second: a rate that is lowered, and a pause, are felt by then. But a page of an export
    is a file, and a million of them are of no use to anybody."""
    return pages.size if not rate or operation.export is not None else max(1, min(pages.size, ceil(rate)))
