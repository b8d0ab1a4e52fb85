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


def expected(operation: Operation, processes: int | None = None) -> int | None:
    """How many processes its phase is about. While a plan of all processes is made that is about `processes`, if the
    caller knows how many there are. None while a selection is planned, because nobody has counted it."""
    if operation.phase is Phase.APPLY:
        return operation.planned.found if operation.planned else None
    return None if operation.selection else processes or None


def share(operation: Operation, totals: Totals, parts: Sequence[OperationRange], processes: int | None = None) -> float:
    """How much of its phase is done, 0 to 1; `processes` as in `expected`."""
    if (of := expected(operation, processes)) is not None:
        return min(1.0, seen(operation, totals) / of) if of else 1.0
    if not parts:
        return 0.0
    # Ranges are even in volume; how far a worker is in one is not known, but that it is about half.
    begun = sum(0.5 for part in parts if part.state is RangeState.OPEN and part.cursor is not None)
    done = sum(part.state is RangeState.DONE for part in parts)
    return min(1.0, (done + begun) / len(parts))
