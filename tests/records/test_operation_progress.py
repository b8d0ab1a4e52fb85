"""How far an operation is, by the totals of its phase and, while it is planned, by its ranges."""

from __future__ import annotations

from typing import Any

import pytest

from recovery.records.operation import Operation, OperationKind
from recovery.records.operation_parts import OperationRange, Phase, RangeState, Totals

TOTALS = Totals(processes=100, decisions=1000, found=50, done=1, nothing=2, changed=3, errors=4)


def operation(phase: Phase, **changes: Any) -> Operation:
    """An operation in this phase."""
    return Operation(id=1, kind=OperationKind.REPAIR, phase=phase, **changes)


def applied(found: int) -> Operation:
    """An operation that is applied to so many processes."""
    return operation(Phase.APPLY, planned=Totals(processes=1000, found=found))


def part(state: RangeState, cursor: str | None = None) -> OperationRange:
    """A range of an operation, worked on as far as its cursor."""
    return OperationRange(id="1/plan/0/0", operation=1, phase=Phase.PLAN, state=state, cursor=cursor)


UNTOUCHED, BEGUN, DONE = part(RangeState.OPEN), part(RangeState.OPEN, "p"), part(RangeState.DONE, "p")


def test_a_process_has_ended_in_one_of_four_ways() -> None:
    assert TOTALS.ended == 1 + 2 + 3 + 4


def test_a_plan_sees_processes_and_an_application_ends_them() -> None:
    assert operation(Phase.PLAN).seen(TOTALS) == 100
    assert applied(50).seen(TOTALS) == 10


def test_only_an_application_of_a_complete_plan_knows_its_size() -> None:
    assert applied(50).expected() == 50
    assert operation(Phase.APPLY).expected() is None
    assert operation(Phase.PLAN, planned=Totals(found=50)).expected() is None


def test_a_plan_of_all_is_measured_by_how_many_there_are() -> None:
    plan = operation(Phase.PLAN)
    assert plan.expected(400) == 400
    assert plan.share(TOTALS, [UNTOUCHED], 400) == 0.25
    assert plan.share(TOTALS, [UNTOUCHED], 50) == 1.0, "the number is an estimate"
    assert plan.share(TOTALS, [BEGUN], 0) == 0.5, "none is known"
    selected = operation(Phase.PLAN, selection="type:order")
    assert selected.expected(400) is None
    assert selected.share(TOTALS, [BEGUN], 400) == 0.5
    assert applied(50).expected(400) == 50


@pytest.mark.parametrize(("found", "done"), [(40, 0.25), (10, 1.0), (5, 1.0), (0, 1.0)])
def test_an_application_is_measured_by_the_processes_of_its_plan(found: int, done: float) -> None:
    assert applied(found).share(TOTALS, [UNTOUCHED]) == done


@pytest.mark.parametrize(
    ("parts", "done"),
    [
        ([], 0.0),
        ([UNTOUCHED], 0.0),
        ([BEGUN, UNTOUCHED], 0.25),
        ([DONE, BEGUN, UNTOUCHED, UNTOUCHED], 0.375),
        ([DONE, DONE], 1.0),
    ],
    ids=["none", "untouched", "begun", "some", "all"],
)
def test_a_plan_is_measured_by_its_ranges_with_half_for_a_begun_one(parts: list[OperationRange], done: float) -> None:
    assert operation(Phase.PLAN).share(TOTALS, parts) == done
