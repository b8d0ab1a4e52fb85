"""What another program has spoilt of an operation's records stops that operation at the most, and no other one."""

from __future__ import annotations

from typing import Any

import pytest

from recovery import operations
from recovery.operations import advance, commands, work
from recovery.records import OperationState, ResultState
from recovery.settings import Settings
from tests.operations.ordering import Ordering
from tests.waiting import wait_until


@pytest.fixture
def world(emptied: Settings, monkeypatch: pytest.MonkeyPatch) -> Ordering:
    for module in (advance, commands):
        monkeypatch.setattr(module, "LOOK_EVERY", 0.1)
    return Ordering(emptied)


def spoil(world: Ordering, collection: str, query: dict[str, Any], fields: dict[str, Any]) -> None:
    done = world.store.database[collection].update_one(query, {"$set": fields}, bypass_document_validation=True)
    assert done.modified_count == 1


@pytest.mark.parametrize("fields", [{"counts": 5}, {"tally": 7}, {"repaired": [1]}, {"state": 7}, {"plan": {"a": 1}}])
def test_a_result(world: Ordering, fields: dict[str, Any]) -> None:
    """It ends as an error where it can't be read, and all others end as they should."""
    ids = world.orders(3)
    operation = world.bring_on(world.ask("abort", "state:running"))
    spoil(world, "operationResults", {"process": ids[1]}, fields)
    operations.apply(world.app.resources, operation.id)
    done = world.bring_on(operation)
    assert done.state is OperationState.FINISHED and done.applied is not None
    assert (done.applied.found, done.applied.done, done.applied.errors) == (3, 2, 1)
    assert world.states(ids) == ["aborted", "running", "aborted"]
    raw = world.store.database["operationResults"].find_one({"process": ids[1]})
    assert raw is not None and raw["state"] == ResultState.ERROR.value and raw["error"]


def test_an_end_of_a_page(world: Ordering, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who reads page after page does not take one that can't be read wholly for the end."""
    ids = sorted(world.orders(6))
    operation = world.bring_on(world.ask("abort", "state:running"))
    for one in ids[:2]:
        spoil(world, "operationResults", {"process": one}, {"state": 7, "endedAt": world.store.now()})
    monkeypatch.setattr(world.kind("abort"), "page", 2)
    operations.apply(world.app.resources, operation.id)
    done = world.bring_on(operation)
    assert world.states(ids) == ["running"] * 2 + ["aborted"] * 4
    assert done.applied is not None and (done.applied.found, done.applied.done) == (6, 4)


@pytest.mark.parametrize(
    "fields", [{"selection": "((("}, {"cuts": 5}, {"priorities": {"order": "high"}}, {"kind": 1}, {"rate": "fast"}]
)
def test_an_operation(world: Ordering, fields: dict[str, Any]) -> None:
    ids = world.orders(2)
    spoilt = world.ask("abort", "state:running")
    spoil(world, "operations", {"_id": spoilt.id}, fields)
    other = world.ask("check")
    assert world.bring_on(other).state is OperationState.FINISHED
    assert world.states(ids) == ["running"] * 2
    again = world.ask("check")
    assert world.bring_on(again, worker=world.worker("another")).state is OperationState.FINISHED


def test_one_that_can_not_go_on_is_tried_again(world: Ordering, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a while, so that it costs the others nothing; and it ends once what was spoilt is mended."""
    ids = world.orders(4)
    monkeypatch.setattr(advance, "RESULTS_EACH", 1)  # so that each range by itself can be counted
    spoilt = world.bring_on(world.ask("abort", "state:running"))
    world.store.database["operationResults"].update_many({}, {"$set": {"counts": {"RULE": 2**62}}})
    operations.apply(world.app.resources, spoilt.id)
    other, worker = world.ask("check"), world.worker()
    assert world.bring_on(other, worker=worker).state is OperationState.FINISHED
    assert world.states(ids) == ["aborted"] * 4
    assert world.now(spoilt).state is OperationState.RUNNING, "its totals are too large for MongoDB"
    tries: list[str] = []
    real = work.advance
    monkeypatch.setattr(work, "advance", lambda *what: (tries.append("tried"), real(*what))[1])
    world.store.database["operationResults"].update_many({}, {"$unset": {"counts": ""}})
    wait_until(lambda: [*world.store.operations.overdue(10).records] != [], 5, "it to be due")
    worker.run_once(5)
    assert tries == [] and world.now(spoilt).state is OperationState.RUNNING, "put off"
    assert world.bring_on(spoilt, worker=world.worker("another")).state is OperationState.FINISHED
