"""What another program wrote into operations and their ranges: it is named, put right or ended, and stops no other."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from recovery import operations
from recovery.errors import InputError
from recovery.health.model import Cause, Level
from recovery.health.operator_records import operations as check_operations
from recovery.operations import advance, commands
from recovery.records import Operation, OperationState
from recovery.settings import Settings
from tests.cli.command import recovery
from tests.operations.ordering import WHY, Ordering
from tests.waiting import wait_until

FAR = datetime(9999, 12, 31, tzinfo=UTC)


@pytest.fixture
def world(emptied: Settings, monkeypatch: pytest.MonkeyPatch) -> Ordering:
    for module in (advance, commands):
        monkeypatch.setattr(module, "LOOK_EVERY", 0.1)
    return Ordering(emptied)


def write(world: Ordering, collection: str, query: dict[str, Any], fields: dict[str, Any]) -> None:
    """Write past the validators."""
    changes = {"$set": {name: value for name, value in fields.items() if value is not None}}
    changes["$unset"] = {name: "" for name, value in fields.items() if value is None}
    update = {name: some for name, some in changes.items() if some}
    done = world.store.database[collection].update_many(query, update, bypass_document_validation=True)
    assert done.modified_count > 0


def ready(world: Ordering, kind: str = "check", count: int = 4) -> Operation:
    """An operation whose ranges are saved, and at which nobody has worked yet."""
    world.orders(count)
    operation = world.ask(kind, "" if kind == "check" else "state:running")
    wait_until(lambda: (world.advance(operation), world.now(operation).ready)[1], 5, "its ranges")
    return world.now(operation)


def ranges(world: Ordering, operation: Operation) -> list[dict[str, Any]]:
    return list(world.store.database["operationRanges"].find({"_id": {"$regex": f"^{operation.id}/"}}).sort("_id", 1))


DAMAGED_RANGES: dict[str, dict[str, Any]] = {
    "a field of another type": {"totals": "many"},
    "a state that is none": {"state": "half"},
    "another operation's": {"operation": 99},
    "another phase's": {"phase": "apply"},
    "another beginning": {"start": "~"},
    "a cursor past the end": {"cursor": "~~~"},
    "a cursor of the future": {"cursor": "f" * 32},
    "done, with a cursor past the end": {"cursor": "~~~", "state": "done", "recoveryTime": None},
    "leased until 9999": {"lease": "x", "worker": "gone", "recoveryTime": FAR},
    "leased without end": {"lease": "x", "worker": "gone", "recoveryTime": None},
}


@pytest.mark.parametrize("case", DAMAGED_RANGES)
def test_a_damaged_range_is_worked_at_again(
    world: Ordering, case: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(advance, "LEAST_PROCESSES", 1)
    operation = ready(world)
    write(world, "operationRanges", {"operation": operation.id}, DAMAGED_RANGES[case])
    done = world.bring_on(operation)
    assert done.state is OperationState.FINISHED and done.planned is not None
    assert done.planned.processes == 4
    assert not any(one.exc_info for one in caplog.records)


def test_a_range_that_is_missing_is_saved_again_before_the_end(world: Ordering) -> None:
    operation = ready(world, "abort")
    world.store.database["operationRanges"].delete_many({})
    done = world.bring_on(operation)
    assert done.planned is not None and done.planned.found == 4


def test_a_damaged_range_does_nothing_twice(world: Ordering) -> None:
    """It is gone through from its beginning. What was done then is not done again, and is counted once."""
    planned = world.bring_on(ready(world, "abort"))
    operations.apply(world.app.resources, planned.id)
    wait_until(lambda: (world.advance(planned), world.now(planned).ready)[1], 5, "its ranges")
    world.worker().work_once(planned.id)
    write(world, "operationRanges", {"phase": "apply"}, {"totals": "many"})
    done = world.bring_on(planned)
    assert done.applied is not None and (done.applied.found, done.applied.done) == (4, 4)


@pytest.mark.parametrize("deadline", [None, FAR])
def test_an_operation_at_work_without_a_deadline_goes_on(world: Ordering, deadline: datetime | None) -> None:
    world.orders(2)
    operation = world.ask("check")
    write(world, "operations", {"_id": operation.id}, {"recoveryTime": deadline})
    assert world.bring_on(operation).state is OperationState.FINISHED


def test_an_operation_without_a_version_goes_on(world: Ordering) -> None:
    operation = world.ask("check")
    write(world, "operations", {"_id": operation.id}, {"version": None})
    assert world.bring_on(operation).state is OperationState.FINISHED


def test_a_limiter_that_is_held_until_9999_is_set_back(world: Ordering) -> None:
    operation = ready(world, "abort", 2)
    operation = operations.set_rate(world.app.resources, operation.id, 1000.0)
    write(world, "operations", {"_id": operation.id}, {"freeAt": FAR})
    turn = world.store.operations.take_turn(operation.id, operation.state, 10)
    assert turn is not None and turn.seconds < 1
    assert world.bring_on(operation).state is OperationState.PLANNED


@pytest.mark.parametrize("field", ["drivenUntil", "attendedAt", "begunAt"])
def test_a_driver_that_has_an_operation_until_9999_does_not_keep_it(world: Ordering, field: str) -> None:
    operation = ready(world)
    old = world.store.now() - timedelta(hours=1)
    fields: dict[str, Any] = {"driven": True, "driver": "gone", "begunAt": old, "attendedAt": old, field: FAR}
    write(world, "operations", {"_id": operation.id}, fields)
    if field == "drivenUntil":
        assert world.store.operations.drive(operation.id, "another", 60)
        assert not world.store.operations.drive(operation.id, "a third", 60)
    else:
        assert world.bring_on(operation).state is OperationState.FINISHED


UNWORKABLE: dict[str, dict[str, Any]] = {
    "a selection that can't be read": {"selection": "((("},
    "a rate that is none": {"rate": float("nan")},
    "a field of another type": {"cuts": 5},
}


@pytest.mark.parametrize("case", UNWORKABLE)
def test_an_operation_that_nobody_can_work_at_is_named_in_a_line_and_holds_up_no_other(
    world: Ordering, case: str, caplog: pytest.LogCaptureFixture
) -> None:
    damaged = ready(world, "abort")
    write(world, "operations", {"_id": damaged.id}, UNWORKABLE[case])
    other, worker = world.ask("check"), world.worker()
    assert world.bring_on(other, worker=worker).state is OperationState.FINISHED
    check = check_operations(world.app.resources)
    assert (check.level, check.cause) == (Level.PROBLEM, Cause.RECORDS_DAMAGED)
    assert f"operation {damaged.id}:" in check.found and "cancel" in check.advice
    told = [one for one in caplog.records if f"operation {damaged.id}" in one.getMessage()]
    assert not any(one.exc_info for one in told) and len(told) <= len(ranges(world, damaged)) + 1
    operations.cancel(world.app.resources, damaged.id, WHY)
    assert check_operations(world.app.resources).level is Level.OK


@pytest.mark.parametrize(
    ("end", "state"),
    [
        (lambda world, number: operations.cancel(world.app.resources, number, WHY), "cancelled"),
        (lambda world, number: operations.pause(world.app.resources, number, WHY), "paused"),
    ],
)
@pytest.mark.parametrize("fields", [{"cuts": 5}, {"kind": 1}, {"version": "new"}])
def test_an_operation_that_cannot_be_read_can_be_ended(
    world: Ordering, fields: dict[str, Any], end: Callable[[Ordering, int], object], state: str
) -> None:
    operation = world.ask("check")
    write(world, "operations", {"_id": operation.id}, fields)
    with pytest.raises(InputError, match=rf"operation {operation.id} can't be read.*{next(iter(fields))}.*cancel"):
        operations.find(world.app.resources, operation.id)
    assert end(world, operation.id) is None
    (found,) = world.store.database["operations"].find({"_id": operation.id})
    assert found["state"] == state and "recoveryTime" not in found


def test_an_operation_with_a_text_for_a_number_keeps_nobody_from_ordering_one(world: Ordering) -> None:
    first = world.ask("check")
    (document,) = world.store.database["operations"].find({})
    for number in ("seven", datetime(2026, 1, 1, tzinfo=UTC), 2.5):
        document["_id"] = number
        world.store.database["operations"].insert_one(
            {**document, "who": "Celery beat"}, bypass_document_validation=True
        )
    assert world.ask("check").id == first.id + 2
    assert world.store.operations.last_of("Celery beat") is None
    assert world.bring_on(first).state is OperationState.FINISHED


def test_no_command_ends_with_a_traceback(world: Ordering) -> None:
    selection, cuts = world.ask("check"), world.ask("check")
    write(world, "operations", {"_id": selection.id}, {"selection": "((("})
    write(world, "operations", {"_id": cuts.id}, {"cuts": 5})
    env = world.app.resources.settings.environment()
    listed = recovery("operation", "list", "--json", env=env)
    assert [one["number"] for one in json.loads(listed.stdout)["operations"]] == [selection.id]
    assert str(cuts.id) in json.loads(listed.stdout)["damaged"][0]
    for number in (selection.id, cuts.id):
        for arguments in (
            ("list",),
            ("show", f"{number}"),
            ("pause", f"{number}"),
            ("cancel", f"{number}", "--reason", WHY),
        ):
            done = recovery("operation", *arguments, env=env)
            assert "Traceback" not in done.stdout + done.stderr, arguments
            assert f"{number}" in done.stdout + done.stderr, arguments
    write(world, "operations", {"_id": cuts.id}, {"state": "planning"})
    cancelled = recovery("operation", "cancel", f"{cuts.id}", "--reason", WHY, "--json", env=env)
    told = json.loads(cancelled.stdout)
    assert (told["number"], told["state"], told["damaged"]) == (cuts.id, "cancelled", True)
    states = [one["state"] for one in world.store.database["operations"].find({})]
    assert states == ["cancelled", "cancelled"]
