"""One question for all scanners: what of it is overdue, and what it costs."""

from __future__ import annotations

from typing import Any

import pytest

from recovery.store import Store, layout, schema
from tests.emptied import emptied as emptied
from tests.emptied import lasting as lasting

HOUR = 3_600_000
LOOKED_AT = (schema.DECISIONS, schema.GRAPHS, schema.PROCESSES, schema.SCHEDULES)


@pytest.fixture
def store(emptied: Any) -> Store:
    store = Store(emptied)
    layout.create(store.database)
    return store


def put(store: Store, name: str, milliseconds: int, count: int = 1) -> None:
    """Records of a collection that are due so long from now."""
    collection = store.database[name]
    collection.insert_many(
        [{"_id": f"{name}/{milliseconds}/{number}"} for number in range(count)], bypass_document_validation=True
    )
    due = [{"$set": {"recoveryTime": {"$add": ["$$NOW", milliseconds]}}}]
    among = {"_id": {"$regex": f"^{name}/{milliseconds}/"}}
    collection.update_many(among, due, bypass_document_validation=True)


@pytest.mark.parametrize("name", LOOKED_AT)
def test_what_is_overdue(store: Store, name: str) -> None:
    for one in LOOKED_AT:
        put(store, one, HOUR)
    assert store.due.look().collections == frozenset()
    put(store, name, -HOUR, 3)
    assert store.due.look().collections == {name}


def test_that_a_task_is_queued(store: Store) -> None:
    put(store, schema.DECISIONS, HOUR)
    before = store.due.look()
    queued = {"$set": {"state": "queued", "actor": "any"}}
    store.database[schema.DECISIONS].update_many({}, queued, bypass_document_validation=True)
    after = store.due.look()
    assert [one.collections for one in (before, after)] == [frozenset(), {schema.DECISIONS}]


def test_an_operation_counts_while_it_is_live(store: Store) -> None:
    put(store, schema.OPERATIONS, HOUR)
    assert store.due.look().collections == {schema.OPERATIONS}
    store.database[schema.OPERATIONS].update_many({}, {"$unset": {"recoveryTime": ""}}, bypass_document_validation=True)
    assert store.due.look().collections == frozenset()


def test_it_costs_the_same_whatever_is_live(store: Store) -> None:
    for name in LOOKED_AT:
        put(store, name, HOUR, 500)
        put(store, name, -HOUR, 500)
    store.database.command("profile", 2)
    assert store.due.look().collections == {*LOOKED_AT}
    store.database.command("profile", 0)
    seen = list(store.database["system.profile"].find({"op": "command", "command.aggregate": schema.OPERATIONS}))
    assert len(seen) == 1
    assert seen[0]["docsExamined"] <= 2 * len(LOOKED_AT), seen[0]
    store.database["system.profile"].drop()
