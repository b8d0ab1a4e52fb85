"""How far an operation is, by what its ranges have counted."""

from __future__ import annotations

from collections.abc import Sequence

from recovery.records.operation import Operation, OperationRange, Phase, RangeState, Totals


def ended(totals: Totals) -> int:
    """Processes that an operation is done with, in one way or another."""
    return totals.done + totals.nothing + totals.changed + totals.errors


def seen(operation: Operation, totals: Totals) -> int:
    """Processes that it is done with in its phase: looked at while it is planned, ended while it is applied."""
    return totals.processes if operation.phase is Phase.PLAN else ended(totals)


def expected(operation: Operation) -> int | None:
    """How many processes its phase is about; None while the plan is made, since nobody has counted the selection."""
    return operation.planned.found if operation.phase is Phase.APPLY and operation.planned else None


def share(operation: Operation, totals: Totals, parts: Sequence[OperationRange]) -> float:
    """How much of its phase is done, 0 to 1."""
    if (of := expected(operation)) is not None:
        return min(1.0, seen(operation, totals) / of) if of else 1.0
    if not parts:
        return 0.0
    # Ranges are even in volume; how far a worker is in one is not known, but that it is about half.
    begun = sum(0.5 for part in parts if part.state is RangeState.OPEN and part.cursor is not None)
    done = sum(part.state is RangeState.DONE for part in parts)
    return min(1.0, (done + begun) / len(parts))
