"""How far an operation is, and when it may be done, as far as that is known."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from recovery.engine import Resources
from recovery.operations.advance import totals_so_far
from recovery.records import Operation, OperationRange, OperationState, Phase, Totals
from recovery.records.operation_parts import RangeState

KNOWN_AFTER_SECONDS, KNOWN_AFTER_SHARE = 3.0, 0.02
"""An estimate from less than this is no better than a guess, and none is made."""
COUNT_AFTER = 20.0
"""Who watches takes a twentieth of the time of one core at the most, however many results there are."""


NO_PARQUET = (
    "its Parquet files are written by a worker that serves the queue spark, and there is none: start one, "
    "`recovery worker --queues spark`, or cancel it"
)


@dataclass(frozen=True, slots=True)
class Progress:
    """Of the phase that an operation is in, or ended in."""

    operation: Operation
    totals: Totals
    share: float
    """0 to 1."""
    expected: int | None
    """How many processes this phase is about, or about how many, while all are planned; None while a selection is
    planned, because nobody has counted it."""
    seconds: float
    """That the phase has lasted, pauses left out."""
    speed: float | None
    """Processes a second."""
    seconds_left: float | None
    """None where that is not known: nothing moves, or it has only begun."""
    ranges: int
    ranges_done: int
    workers: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    """Why ranges were given back, and why it does not go on."""


class Watching:
    """Progress that is asked for again and again, as by who watches.

    To count the results takes three seconds for each million of them. So they are counted again only once COUNT_AFTER
    times as long as that took is over, and in between it is what the ranges add up to, each of which counts its pages.
    """

    def __init__(self, resources: Resources, clock: Callable[[], float] = time.monotonic) -> None:
        self._resources, self._clock = resources, clock
        self._counted, self._count_at = Totals(), 0.0

    def look(self, operation: Operation) -> Progress:
        """How far it is; of one that is over exactly."""
        if _kept(operation) is None and self._clock() >= self._count_at:
            began = self._clock()
            self._counted = self._resources.store.operation_results.totals(operation.id)
            took = self._clock() - began
            self._count_at = began + took + COUNT_AFTER * took
        return progress(self._resources, operation, self._counted)


def progress(resources: Resources, operation: Operation, counted: Totals | None = None) -> Progress:
    """Read and count. One look at the operation's ranges, and one at its results, unless these were `counted` a while
    ago."""
    now = resources.store.now()
    parts = resources.store.operation_ranges.all(operation.id, operation.phase)
    over = operation.state in (OperationState.FINISHED, OperationState.PLANNED)
    totals = _kept(operation) or _so_far(resources, operation, parts, counted)
    plans_all = operation.phase is Phase.PLAN and not operation.selection and not over
    processes = resources.store.ranges.volume()[0] if plans_all else None
    share = 1.0 if over else operation.share(totals, parts, processes)
    seconds = _lasted(operation, now)
    seen = operation.seen(totals)
    moving = operation.state in (OperationState.PLANNING, OperationState.RUNNING)
    known = moving and seconds >= KNOWN_AFTER_SECONDS and share >= KNOWN_AFTER_SHARE
    return Progress(
        operation=operation,
        totals=totals,
        share=share,
        expected=operation.expected(processes),
        seconds=seconds,
        speed=seen / seconds if seconds > 0 and seen else None,
        seconds_left=seconds * (1 - share) / share if known else None,
        ranges=len(parts),
        ranges_done=sum(part.state is RangeState.DONE for part in parts),
        workers=tuple(sorted({part.worker for part in parts if part.lease and part.worker})),
        errors=_errors(resources, operation, parts),
    )


def _errors(resources: Resources, operation: Operation, parts: list[OperationRange]) -> tuple[str, ...]:
    told = dict.fromkeys(part.error for part in parts if part.error)
    if operation.state is OperationState.PLANNING and operation.awaits_parquet and not _is_driven(resources, operation):
        told[NO_PARQUET] = None
    return tuple(told)


def _is_driven(resources: Resources, operation: Operation) -> bool:
    """Whether somebody drives it, `recovery sweep --here` perhaps, or a worker may."""
    until = operation.driven_until
    return (until is not None and until > resources.store.now()) or resources.store.workers.serve_spark()


def _kept(operation: Operation) -> Totals | None:
    """The totals of one that is over, which were counted then."""
    over = operation.state in (OperationState.FINISHED, OperationState.PLANNED)
    return (operation.applied or operation.planned) if over else None


def _so_far(resources: Resources, operation: Operation, parts: list[OperationRange], counted: Totals | None) -> Totals:
    if counted is None:
        return totals_so_far(resources, operation)
    read = sum((part.totals for part in parts), Totals())
    newest = max(counted, read, key=lambda totals: (totals.ended, totals.found))
    return newest.evolve(processes=read.processes, decisions=read.decisions)


def _lasted(operation: Operation, now: datetime) -> float:
    if operation.begun_at is None:
        return 0.0
    end = operation.ended_at or operation.paused_at or now
    return max(0.0, (end - operation.begun_at).total_seconds() - operation.paused_seconds)
