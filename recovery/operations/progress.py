"""How much of an operation's current phase is done, and an estimate of when it ends."""

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
"""Minimum seconds and minimum share done before the remaining time is estimated. An earlier estimate would be a
guess."""
COUNT_AFTER = 20.0
"""Results are counted again after this multiple of the last count's duration. Counting then takes at most a
twentieth of one core's time."""


NO_PARQUET = (
    "its Parquet files need a worker that serves the queue spark, and none is alive: start one, "
    "`recovery worker --queues spark`, or cancel the operation"
)


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of an operation's current or last phase."""

    operation: Operation
    totals: Totals
    share: float
    """Share of the phase that is done, 0 to 1."""
    expected: int | None
    """Number of processes in this phase; approximate while all processes are planned. None while a selection is
    planned, because nothing has counted its processes."""
    seconds: float
    """Seconds that the phase has lasted, without pauses."""
    speed: float | None
    """Processes per second."""
    seconds_left: float | None
    """Estimated seconds until the phase ends. None if unknown, because nothing moves or the phase has just begun."""
    ranges: int
    ranges_done: int
    workers: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    """Why ranges were given back, and why the operation does not continue."""


class Watching:
    """The progress of an operation that is asked for repeatedly, for example by `recovery operation watch`.

    Counting many results is slow. They are counted again only after COUNT_AFTER times the duration of the last count.
    In between, the totals are the sums of the ranges, each of which counts its pages.
    """

    def __init__(self, resources: Resources, clock: Callable[[], float] = time.monotonic) -> None:
        self._resources, self._clock = resources, clock
        self._counted, self._count_at = Totals(), 0.0

    def look(self, operation: Operation) -> Progress:
        """Return the operation's progress. The totals of a finished phase are exact."""
        if _kept(operation) is None and self._clock() >= self._count_at:
            began_at = self._clock()
            self._counted = self._resources.store.operation_results.totals(operation.id)
            duration = self._clock() - began_at
            self._count_at = began_at + duration + COUNT_AFTER * duration
        return progress(self._resources, operation, self._counted)


def progress(resources: Resources, operation: Operation, counted: Totals | None = None) -> Progress:
    """Return an operation's progress. Reads its ranges, and counts its results unless the caller passes the totals that
    it `counted` earlier."""
    now = resources.store.now()
    ranges = resources.store.operation_ranges.all(operation.id, operation.phase)
    is_over = operation.state in (OperationState.FINISHED, OperationState.PLANNED)
    totals = _kept(operation) or _so_far(resources, operation, ranges, counted)
    plans_all = operation.phase is Phase.PLAN and not operation.selection and not is_over
    processes = resources.store.ranges.volume()[0] if plans_all else None
    share = 1.0 if is_over else operation.share(totals, ranges, processes)
    seconds = _lasted(operation, now)
    done_processes = operation.seen(totals)
    is_moving = operation.state in (OperationState.PLANNING, OperationState.RUNNING)
    is_known = is_moving and seconds >= KNOWN_AFTER_SECONDS and share >= KNOWN_AFTER_SHARE
    return Progress(
        operation=operation,
        totals=totals,
        share=share,
        expected=operation.expected(processes),
        seconds=seconds,
        speed=done_processes / seconds if seconds > 0 and done_processes else None,
        seconds_left=seconds * (1 - share) / share if is_known else None,
        ranges=len(ranges),
        ranges_done=sum(part.state is RangeState.DONE for part in ranges),
        workers=tuple(sorted({part.worker for part in ranges if part.lease and part.worker})),
        errors=_errors(resources, operation, ranges),
    )


def _errors(resources: Resources, operation: Operation, parts: list[OperationRange]) -> tuple[str, ...]:
    errors = dict.fromkeys(part.error for part in parts if part.error)
    if operation.state is OperationState.PLANNING and operation.awaits_parquet and not _is_driven(resources, operation):
        errors[NO_PARQUET] = None
    return tuple(errors)


def _is_driven(resources: Resources, operation: Operation) -> bool:
    """Return whether a driver has the operation, for example `recovery sweep --here`, or a worker with Spark may take
    it."""
    until = operation.driven_until
    return (until is not None and until > resources.store.now()) or resources.store.workers.serve_spark()


def _kept(operation: Operation) -> Totals | None:
    """Return the totals that were saved when the phase ended, or None if it has not ended."""
    is_over = operation.state in (OperationState.FINISHED, OperationState.PLANNED)
    return (operation.applied or operation.planned) if is_over else None


def _so_far(resources: Resources, operation: Operation, parts: list[OperationRange], counted: Totals | None) -> Totals:
    if counted is None:
        return totals_so_far(resources, operation)
    range_totals = sum((part.totals for part in parts), Totals())
    highest = max(counted, range_totals, key=lambda totals: (totals.ended, totals.found))
    return highest.evolve(processes=range_totals.processes, decisions=range_totals.decisions)


def _lasted(operation: Operation, now: datetime) -> float:
    if operation.begun_at is None:
        return 0.0
    end = operation.ended_at or operation.paused_at or now
    return max(0.0, (end - operation.begun_at).total_seconds() - operation.paused_seconds)
