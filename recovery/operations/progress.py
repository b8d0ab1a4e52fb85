"""How far an operation is, and when it may be done, as far as that is known."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from recovery.engine import Resources
from recovery.operations.advance import totals_so_far
from recovery.records import Operation, OperationRange, OperationState, Phase, Totals
from recovery.records.operation import RangeState

KNOWN_AFTER_SECONDS, KNOWN_AFTER_SHARE = 3.0, 0.02
"""An estimate from less than this is no better than a guess, and none is made."""


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
    """How many processes this phase is about; None while the plan is made, since nobody has counted the selection."""
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


def progress(resources: Resources, operation: Operation) -> Progress:
    """Read and count. One look at the operation's ranges, and one at its results."""
    now = resources.store.now()
    parts = resources.store.operation_ranges.all(operation.id, operation.phase)
    over = operation.state in (OperationState.FINISHED, OperationState.PLANNED)
    kept = operation.applied or operation.planned
    totals = kept if over and kept is not None else totals_so_far(resources, operation)
    expected = operation.planned.found if operation.phase is Phase.APPLY and operation.planned else None
    share = 1.0 if over else _share(operation, totals, parts, expected)
    seconds = _lasted(operation, now)
    seen = _seen(operation, totals)
    moving = operation.state in (OperationState.PLANNING, OperationState.RUNNING)
    known = moving and seconds >= KNOWN_AFTER_SECONDS and share >= KNOWN_AFTER_SHARE
    return Progress(
        operation=operation,
        totals=totals,
        share=share,
        expected=expected,
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


def _seen(operation: Operation, totals: Totals) -> int:
    if operation.phase is Phase.PLAN:
        return totals.processes
    return totals.done + totals.nothing + totals.changed + totals.errors


def _share(operation: Operation, totals: Totals, parts: list[OperationRange], expected: int | None) -> float:
    if expected is not None:
        return min(1.0, _seen(operation, totals) / expected) if expected else 1.0
    if not parts:
        return 0.0
    # Ranges are even in volume; how far a worker is in one is not known, but that it is about half.
    begun = sum(0.5 for part in parts if part.state is RangeState.OPEN and part.cursor is not None)
    done = sum(part.state is RangeState.DONE for part in parts)
    return min(1.0, (done + begun) / len(parts))


def _lasted(operation: Operation, now: datetime) -> float:
    if operation.begun_at is None:
        return 0.0
    end = operation.ended_at or operation.paused_at or now
    return max(0.0, (end - operation.begun_at).total_seconds() - operation.paused_seconds)
