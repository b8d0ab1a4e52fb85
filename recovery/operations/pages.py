"""Pages of an operation's range: how a worker keeps the lease of the range, and how each page is read, processed and
counted."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Protocol

from recovery.engine import Outbox, Resources
from recovery.operations.kinds import Kind, Planned, kind_of, totals_of
from recovery.operations.selection import Selected
from recovery.records import Operation, OperationRange, OperationResult, OperationState, Phase, ResultState, Totals
from recovery.store.operators.operation_records import LimiterTurn
from recovery.store.operators.operation_results import PlannedPage
from recovery.store.splitting import batches
from recovery.store.views.ranges import Range

LEASE = 30.0
"""Seconds that a range is leased. A worker renews the lease while it works or waits for the limiter. After a worker was
killed, its range can be leased again when the lease expires."""
RENEW = 5.0
"""Minimum seconds between two renewals of the lease during the scan of a whole range."""
WAIT = 1.0
"""Maximum seconds that a worker waits for the limiter before it checks whether the operation still runs."""
STATES = {Phase.PLAN: OperationState.PLANNING, Phase.APPLY: OperationState.RUNNING}

PLANNED = 100
"""Processes in a page of the planning phase."""
LATE = "found by a worker that had lost its lease, after the plan was complete; not applied"


class Hold:
    """A worker's lease of a range, and its turns with the limiter. `ending` is set when the worker has to stop."""

    def __init__(
        self, resources: Resources, operation: Operation, leased: OperationRange, ending: threading.Event
    ) -> None:
        self._store, self._operation, self._leased = resources.store, operation, leased
        self._state, self._ending = STATES[leased.phase], ending
        self._renewed, self._is_over = time.monotonic(), False

    def leased(self) -> bool:
        """Renew the lease, and return whether this worker still has it. If so, no other worker has worked on the range
        since it was leased."""
        return self._renew()

    def ours(self) -> bool:
        """Renew the lease. Return whether this worker still has it and the operation is still in its working state."""
        return self._renew() and self._turn(0) is not None

    def goes_on(self) -> bool:
        """Return whether the scan of a range may continue.

        It may not if the lease is lost, the operation has left its state, its rate was changed, or the worker has to
        stop. The lease and the operation are checked every RENEW seconds. Once False, the result stays False.
        """
        if not self._is_over and time.monotonic() - self._renewed >= RENEW:
            turn = self._turn(0) if self._renew() else None
            self._is_over = turn is None or (self._operation.is_paced and turn.rate != self._operation.rate)
        return not self._is_over and not self._ending.is_set()

    def take_turn(self, count: int) -> float | None:
        """Wait until the limiter admits `count` processes.

        Returns:
            The rate in processes per second, 0 if there is none. None: the operation has left its state, the lease is
            lost, or the worker has to stop. In a phase without a rate the call does not wait.
        """
        if not self._operation.is_paced:
            return None if self._turn(0) is None else 0.0
        turn = self._turn(count)
        seconds_left = turn.seconds if turn is not None else 0.0
        while turn is not None and seconds_left > 0:
            if self._ending.wait(min(WAIT, seconds_left)) or not self._renew():
                return None
            seconds_left -= WAIT
            next_turn = self._turn(0)  # the operation may be paused by now
            if next_turn is not None and next_turn.rate != turn.rate:
                next_turn = self._turn(count)
                seconds_left = next_turn.seconds if next_turn is not None else 0.0
            turn = next_turn
        return None if turn is None else turn.rate or 0.0

    def _renew(self) -> bool:
        self._renewed = time.monotonic()
        return self._store.operation_ranges.extend(self._leased, LEASE)

    def _turn(self, count: int) -> LimiterTurn | None:
        return self._store.operations.take_turn(self._operation.id, self._state, count)


class Pages(Protocol):
    """The pages of a range, one after the other."""

    last: str | None
    """The last process id of the current page."""
    size: int
    """Maximum processes in a page, if the rate allows that many."""

    def read(self, part: OperationRange, size: int) -> int:
        """Read the next page after the range's cursor. Return the number of its processes."""

    def do(self) -> Totals | None:
        """Process the page, save its results, and return its totals. None: the page was abandoned and does not count,
        because the operation was stopped or the lease is lost."""


def pages_of(resources: Resources, outbox: Outbox, operation: Operation, part: OperationRange, hold: Hold) -> Pages:
    """Return the pages of a leased range."""
    kind = kind_of(operation.kind, resources, outbox)
    if part.phase is Phase.APPLY:
        return _Applying(resources, operation, kind, hold)
    if kind.surveys and operation.pace is None and part.cursor is None:
        return _Surveying(resources, operation, kind, hold, part)
    return _Planning(resources, operation, kind, hold, part)


class _Surveying:
    """A range that is planned in one scan, in key order, as a single page."""

    last: str | None = None
    size = 1

    def __init__(
        self, resources: Resources, operation: Operation, kind: Kind, hold: Hold, part: OperationRange
    ) -> None:
        self._results, self._operation, self._kind = resources.store.operation_results, operation, kind
        self._selected, self._hold = Selected(resources, operation, part), hold
        self._only, self._excluded = part.only, frozenset(part.but)
        self._part = Range(part.start, part.end)

    def read(self, part: OperationRange, size: int) -> int:  # noqa: ARG002
        return 0

    def do(self) -> Totals | None:
        totals = Totals()
        chosen = self._selected.all(self._part)
        for planned in self._kind.survey(self._operation, self._part, chosen, self._hold.goes_on):
            if planned.results and not self._hold.leased():
                return None  # another worker may have completed the plan
            planned = self._of_part(planned, all_are_read=chosen is None)
            self._results.insert(planned.results)
            totals += planned.totals
        return totals if self._hold.goes_on() else None

    def _of_part(self, planned: Planned, *, all_are_read: bool) -> Planned:
        """Return the part of the plan that belongs to this range's process types.

        Without a selection, the range of all types without a priority reads every process, so that it finds records
        whose Process record is missing. It discards results on types that have a priority, because their own ranges
        report them, and counts what was read for all types.
        """
        if all_are_read and self._excluded:
            own_results = [result for result in planned.results if result.type not in self._excluded]
            return Planned(own_results, totals_of(own_results, planned.totals.processes, planned.totals.decisions))
        if self._only and not self._operation.selection:
            return Planned(planned.results, totals_of(planned.results))
        return planned


class _Planning:
    """Pages of process ids to be planned."""

    def __init__(
        self, resources: Resources, operation: Operation, kind: Kind, hold: Hold, part: OperationRange
    ) -> None:
        self._results, self._operation, self._kind = resources.store.operation_results, operation, kind
        self._selected, self._hold = Selected(resources, operation, part), hold
        self._page: list[str] = []
        self._whole_range: Range | None = None
        self.last: str | None = None
        self.size = PLANNED

    def read(self, part: OperationRange, size: int) -> int:
        self._page = self._selected.page(part, size)
        self.last = self._page[-1] if self._page else None
        if len(self._page) < size and not self._operation.selection and not part.only:
            self._whole_range = Range(part.start, part.end)
        return len(self._page)

    def do(self) -> Totals | None:
        besides = self._kind.besides(self._whole_range) if self._whole_range is not None else ()
        planned = self._kind.plan(self._operation, [*self._page, *besides])
        if planned.results and not self._hold.leased():
            return None  # another worker may have completed the plan
        self._results.insert(planned.results)
        return planned.totals


class _Applying:
    """Pages of planned results to be applied."""

    def __init__(self, resources: Resources, operation: Operation, kind: Kind, hold: Hold) -> None:
        self._results, self._operation, self._kind = resources.store.operation_results, operation, kind
        self._hold = hold
        self._page = PlannedPage()
        self.last: str | None = None
        self.size = kind.page

    def read(self, part: OperationRange, size: int) -> int:
        self._page = self._results.planned(part.operation, part.cursor, size, part.start, part.end, part.only, part.but)
        self.last = self._page.last
        return len(self._page.read)

    def do(self) -> Totals | None:
        damaged = self._page.read.damaged
        self._results.end_damaged(damaged)
        wanted = [result for result in self._page.read.records if result.state is ResultState.FOUND]
        ended = [result for result in self._page.read.records if result.state is not ResultState.FOUND]
        late = [
            result.evolve(state=ResultState.CHANGED, error=LATE) for result in wanted if not self._was_shown(result)
        ]
        self._results.end(late)
        for batch in batches((result for result in wanted if self._was_shown(result)), self._kind.step):
            batch_results = self._apply_batch(batch)
            if batch_results is None:
                return None
            ended += batch_results
        damaged_totals = Totals(found=len(damaged), errors=len(damaged))
        return totals_of([*ended, *late], processes=len(self._page.read)) + damaged_totals

    def _apply_batch(self, wanted: Sequence[OperationResult]) -> list[OperationResult] | None:
        """Apply these results, and return each in its final state. None: the lease is lost or the operation was
        stopped, so that another worker decides the results."""
        if not self._hold.ours():
            return None
        if self._kind.begins:
            self._results.begin(wanted)
        final_results = self._kind.apply(self._operation, wanted)
        if not self._hold.leased():
            return None
        self._results.end(final_results)
        return final_results

    def _was_shown(self, result: OperationResult) -> bool:
        """Return whether the result was part of the complete plan, and not saved later by a worker that had lost its
        lease."""
        saved_at, planned_at = result.saved_at, self._operation.planned_at
        return saved_at is not None and planned_at is not None and saved_at <= planned_at
