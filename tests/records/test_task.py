"""A small task is copied into its decision in full; a large one is not copied."""

from __future__ import annotations

import pytest

from recovery.records import Call, Decision, Task
from recovery.records.task import CALL_BYTES

TASK = Task(
    id="p/t", actor="add", args="[[1],{}]", parent="start", epoch=3, deps=("a", "b"), dependents={"c": "sum"},
    unlocks={"d": "mean"}, fallible=True,
)  # fmt: skip
CALL = Call(args="[[1],{}]", parent="start", deps=("a", "b"), dependents={"c": "sum"}, unlocks={"d": "mean"})


def test_a_task_becomes_a_call_and_a_decision_with_that_call_becomes_the_task() -> None:
    assert TASK.call() == CALL
    assert Decision(id="p/t", actor="add", epoch=3, fallible=True, call=CALL).task() == TASK


@pytest.mark.parametrize(
    ("deps", "dependents", "room"),
    [((), {}, CALL_BYTES), (("a", "b"), {}, CALL_BYTES - 80), (("a",), {"c": "sum"}, CALL_BYTES - 80)],
    ids=["alone", "dependencies", "dependents"],
)
def test_a_call_is_copied_up_to_2048_bytes(deps: tuple[str, ...], dependents: dict[str, str], room: int) -> None:
    task = Task(id="p/t", actor="add", args="x" * room, deps=deps, dependents=dependents)
    assert task.call() == Call(args=task.args, deps=deps, dependents=dependents)
    assert task.evolve(args="x" * (room + 1)).call() is None
