"""The pages of a range: what is taken together, done together, and counted by one commit."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from recovery.engine import Applier, Resources
from recovery.operations.kinds import Kind, kind_of, totals_of
from recovery.operations.selection import Selected
from recovery.records import Operation, OperationRange, OperationResult, Phase, ResultState, Totals
from recovery.store.views.ranges import Range
from recovery.survey import without_collector

PLANNED = 100
"""Processes that are planned together."""
HELD = 5.0
"""Seconds after which a lease is renewed by who goes through a range as a whole."""


class Pages(Protocol):
    """The pages of a range, one after the other."""

    last: str | None
    """The last process of the page that was read."""
    size: int
    """Processes that are taken together, if the rate allows."""

    def read(self, part: OperationRange, size: int) -> int:
        """Read the next page of a range, after its cursor; how many it has."""

    def do(self) -> Totals:
        """Do what is to be done with it, and save what came of it; what it adds up to."""


def pages_of(
    resources: Resources, applier: Applier, operation: Operation, part: OperationRange, hold: Callable[[], bool]
) -> Pages:
    """How a range is gone through; `hold` renews its lease, and tells whether it is still ours."""
    kind = kind_of(operation.kind, resources, applier)
    if part.phase is Phase.APPLY:
        return _Applying(resources, operation, kind)
    if kind.surveys and operation.rate is None and part.cursor is None:
        return _Surveying(resources, operation, kind, hold)
    return _Planning(resources, operation, kind)


class _Surveying:
    """A range as one page, gone through in key order."""

    last: str | None = None
    size = 1

    def __init__(self, resources: Resources, operation: Operation, kind: Kind, hold: Callable[[], bool]) -> None:
        self._results, self._operation, self._kind = resources.store.operation_results, operation, kind
        self._selected = Selected(resources, operation)
        self._hold, self._held = hold, time.monotonic()
        self._part = Range()

    def read(self, part: OperationRange, size: int) -> int:  # noqa: ARG002
        self._part = Range(part.start, part.end)
        return 0

    def do(self) -> Totals:
        with without_collector():
            planned = self._kind.survey(self._operation, self._part, self._selected.all(self._part), self._still_ours)
        self._results.insert(planned.results)
        return planned.totals

    def _still_ours(self) -> bool:
        if time.monotonic() - self._held < HELD:
            return True
        self._held = time.monotonic()
        return self._hold()


class _Planning:
    """Pages of process ids, of which a plan is made."""

    def __init__(self, resources: Resources, operation: Operation, kind: Kind) -> None:
        self._results, self._operation, self._kind = resources.store.operation_results, operation, kind
        self._selected = Selected(resources, operation)
        self._page: list[str] = []
        self._whole: Range | None = None
        self.last: str | None = None
        self.size = PLANNED

    def read(self, part: OperationRange, size: int) -> int:
        self._page = self._selected.page(part, size)
        self.last = self._page[-1] if self._page else None
        if len(self._page) < size and not self._operation.selection:
            self._whole = Range(part.start, part.end)
        return len(self._page)

    def do(self) -> Totals:
        besides = self._kind.besides(self._whole) if self._whole is not None else ()
        planned = self._kind.plan(self._operation, [*self._page, *besides])
        self._results.insert(planned.results)
        return planned.totals


class _Applying:
    """Pages of what is planned, which is done."""

    def __init__(self, resources: Resources, operation: Operation, kind: Kind) -> None:
        self._results, self._operation, self._kind = resources.store.operation_results, operation, kind
        self._page: list[OperationResult] = []
        self.last: str | None = None
        self.size = kind.page

    def read(self, part: OperationRange, size: int) -> int:
        self._page = self._results.planned(part.operation, part.cursor, size, part.start, part.end, part.only, part.but)
        self.last = self._page[-1].process if self._page else None
        return len(self._page)

    def do(self) -> Totals:
        ended = [one for one in self._page if one.state is not ResultState.FOUND]
        wanted = [one for one in self._page if one.state is ResultState.FOUND]
        if wanted:
            self._results.begin(wanted)
            done = self._kind.apply(self._operation, wanted)
            self._results.end(done)
            ended += done
        return totals_of(ended, processes=len(self._page))
