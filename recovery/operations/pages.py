"""The processes of an operation, page by page: how a worker holds the lease of a range of them, and what is taken and
done together, and counted by one commit."""

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
"""Seconds that a range is leased for, renewed while its worker is at it or waits for the limiter: whoever is killed is
followed by somebody after so long."""
RENEW = 5.0
"""Seconds after which who goes through a range as a whole looks whether it is still his."""
WAIT = 1.0
"""Seconds after which who waits for the limiter looks whether its operation still runs."""
STATES = {Phase.PLAN: OperationState.PLANNING, Phase.APPLY: OperationState.RUNNING}

PLANNED = 100
"""Processes that are planned together."""
LATE = "found by a worker that had lost its lease, when the plan was complete already; left alone"


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


class Pages(Protocol):
    """The pages of a range, one after the other."""

    last: str | None
    """The last process of the page that was read."""
    size: int
    """Processes that are taken together, if the rate allows."""

    def read(self, part: OperationRange, size: int) -> int:
        """Read the next page of a range, after its cursor; how many it has."""

    def do(self) -> Totals | None:
        """Do what is to be done with it, and save what came of it; what it adds up to. None: it was broken off, and
        nothing of it counts, since nobody is to work at it any more, or somebody else has it."""


def pages_of(resources: Resources, outbox: Outbox, operation: Operation, part: OperationRange, hold: Hold) -> Pages:
    """How a range is gone through that is held."""
    kind = kind_of(operation.kind, resources, outbox)
    if part.phase is Phase.APPLY:
        return _Applying(resources, operation, kind, hold)
    if kind.surveys and operation.pace is None and part.cursor is None:
        return _Surveying(resources, operation, kind, hold, part)
    return _Planning(resources, operation, kind, hold, part)


class _Surveying:
    """A range as one page, gone through in key order."""

    last: str | None = None
    size = 1

    def __init__(
        self, resources: Resources, operation: Operation, kind: Kind, hold: Hold, part: OperationRange
    ) -> None:
        self._results, self._operation, self._kind = resources.store.operation_results, operation, kind
        self._selected, self._hold = Selected(resources, operation, part), hold
        self._only, self._but = part.only, frozenset(part.but)
        self._part = Range(part.start, part.end)

    def read(self, part: OperationRange, size: int) -> int:  # noqa: ARG002
        return 0

    def do(self) -> Totals | None:
        totals = Totals()
        chosen = self._selected.all(self._part)
        for planned in self._kind.survey(self._operation, self._part, chosen, self._hold.goes_on):
            if planned.results and not self._hold.leased():
                return None  # the plan may be complete without us
            planned = self._of_part(planned, all_are_read=chosen is None)
            self._results.insert(planned.results)
            totals += planned.totals
        return totals if self._hold.goes_on() else None

    def _of_part(self, planned: Planned, *, all_are_read: bool) -> Planned:
        """Return what is planned for the types of this range.

        Without a selection the range of all other types reads every process, and so finds what has lost its Process
        record. What it finds on types with a priority of their own is theirs, and it counts what was read for all.
        """
        if all_are_read and self._but:
            mine = [result for result in planned.results if result.type not in self._but]
            return Planned(mine, totals_of(mine, planned.totals.processes, planned.totals.decisions))
        if self._only and not self._operation.selection:
            return Planned(planned.results, totals_of(planned.results))
        return planned


class _Planning:
    """Pages of process ids, of which a plan is made."""

    def __init__(
        self, resources: Resources, operation: Operation, kind: Kind, hold: Hold, part: OperationRange
    ) -> None:
        self._results, self._operation, self._kind = resources.store.operation_results, operation, kind
        self._selected, self._hold = Selected(resources, operation, part), hold
        self._page: list[str] = []
        self._whole: Range | None = None
        self.last: str | None = None
        self.size = PLANNED

    def read(self, part: OperationRange, size: int) -> int:
        self._page = self._selected.page(part, size)
        self.last = self._page[-1] if self._page else None
        if len(self._page) < size and not self._operation.selection and not part.only:
            self._whole = Range(part.start, part.end)
        return len(self._page)

    def do(self) -> Totals | None:
        besides = self._kind.besides(self._whole) if self._whole is not None else ()
        planned = self._kind.plan(self._operation, [*self._page, *besides])
        if planned.results and not self._hold.leased():
            return None  # the plan may be complete without us
        self._results.insert(planned.results)
        return planned.totals


class _Applying:
    """Pages of what is planned, which is done."""

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
        wanted = [one for one in self._page.read.records if one.state is ResultState.FOUND]
        ended = [one for one in self._page.read.records if one.state is not ResultState.FOUND]
        late = [one.evolve(state=ResultState.CHANGED, error=LATE) for one in wanted if not self._was_shown(one)]
        self._results.end(late)
        for some in batches((one for one in wanted if self._was_shown(one)), self._kind.step):
            done = self._together(some)
            if done is None:
                return None
            ended += done
        spoilt = Totals(found=len(damaged), errors=len(damaged))
        return totals_of([*ended, *late], processes=len(self._page.read)) + spoilt

    def _together(self, wanted: Sequence[OperationResult]) -> list[OperationResult] | None:
        """Do it to some processes; each as it ended. None: it is for somebody else to say what became of them."""
        if not self._hold.ours():
            return None
        if self._kind.begins:
            self._results.begin(wanted)
        done = self._kind.apply(self._operation, wanted)
        if not self._hold.leased():
            return None
        self._results.end(done)
        return done

    def _was_shown(self, result: OperationResult) -> bool:
        """Whether it was in the plan when that was complete, and not put there since by who had lost his lease."""
        saved, complete = result.saved_at, self._operation.planned_at
        return saved is not None and complete is not None and saved <= complete
