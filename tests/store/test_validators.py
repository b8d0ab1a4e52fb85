"""MongoDB itself refuses a live record without a deadline, whoever writes it and how."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pymongo.errors import WriteError

from recovery.store import Store
from tests.records.test_names import NAMES, NONE, RESERVED

NOW = datetime.now(UTC)

PROCESS, DECISION = {"type": "order", "args": "[]"}, {"actor": "a"}
LIVE: list[tuple[str, dict[str, Any]]] = [
    ("processes", {**PROCESS, "state": "running"}),
    *(("decisions", {**DECISION, "state": state}) for state in ("delayed", "queued", "working")),
    ("graphs", {"notFinished": {"start": NOW}, "failed": {}}),
    ("workers", {"name": "w", "host": "h", "pid": 1, "pidStarted": 1}),
]
AT_REST: list[tuple[str, dict[str, Any]]] = [
    *(("processes", {**PROCESS, "state": state}) for state in ("finished", "broken", "aborted")),
    *(("decisions", {**DECISION, "state": state}) for state in ("waiting", "finished")),
    ("graphs", {"notFinished": {}, "failed": {}}),
    ("graphs", {"notFinished": {"start": NOW}, "failed": {"start": True}}),
    ("graphs", {"notFinished": {"start": NOW}, "failed": {}, "aborted": True}),
]


@pytest.mark.parametrize(("collection", "record"), LIVE)
@pytest.mark.parametrize("deadline", [{}, {"recoveryTime": None}, {"recoveryTime": "tomorrow"}])
def test_live_without_a_deadline_is_not_inserted(
    store: Store, collection: str, record: dict[str, Any], deadline: dict[str, Any]
) -> None:
    with pytest.raises(WriteError, match="Document failed validation"):
        store.database[collection].insert_one({"_id": "p", **record, **deadline})
    assert store.database[collection].count_documents({}) == 0


@pytest.mark.parametrize(("collection", "record"), LIVE)
def test_a_live_record_keeps_its_deadline(store: Store, collection: str, record: dict[str, Any]) -> None:
    store.database[collection].insert_one({"_id": "p", **record, "recoveryTime": NOW})
    for update in ({"$unset": {"recoveryTime": ""}}, [{"$unset": "recoveryTime"}]):
        with pytest.raises(WriteError, match="Document failed validation"):
            store.database[collection].update_one({"_id": "p"}, update)
        with pytest.raises(WriteError, match="Document failed validation"):
            store.database[collection].update_many({}, update)
    assert "recoveryTime" in (store.database[collection].find_one() or {})


@pytest.mark.parametrize(("collection", "record"), LIVE[:-1])
def test_a_record_at_rest_does_not_come_to_life_without_one(
    store: Store, collection: str, record: dict[str, Any]
) -> None:
    resting = next(rest for name, rest in AT_REST if name == collection)
    store.database[collection].insert_one({"_id": "p", **resting})
    with pytest.raises(WriteError, match="Document failed validation"):
        store.database[collection].update_one({"_id": "p"}, {"$set": record})


@pytest.mark.parametrize(("collection", "record"), AT_REST)
@pytest.mark.parametrize("deadline", [{}, {"recoveryTime": NOW}])
def test_at_rest_is_taken(store: Store, collection: str, record: dict[str, Any], deadline: dict[str, Any]) -> None:
    store.database[collection].insert_one({"_id": "p", **record, **deadline})
    store.database[collection].update_one({"_id": "p"}, {"$unset": {"recoveryTime": ""}})
    assert "recoveryTime" not in (store.database[collection].find_one() or {"recoveryTime"})


def test_an_unknown_state_is_refused(store: Store) -> None:
    with pytest.raises(WriteError):
        store.database["decisions"].insert_one({"_id": "p/t", "state": "lost", "recoveryTime": NOW})


NAMED = [
    ("processes", "type", {"state": "finished", "args": "[]"}),
    ("tasks", "actor", {"args": "[]"}),
    ("decisions", "actor", {"state": "waiting"}),
]


@pytest.mark.parametrize(("collection", "field", "record"), NAMED)
def test_a_name_that_is_of_another_list_in_redis_is_refused(
    store: Store, collection: str, field: str, record: dict[str, Any]
) -> None:
    """A worker would push a message into that list."""
    into = store.database[collection]
    for place, name in enumerate(NAMES):
        into.insert_one({"_id": f"{place}", **record, field: name})
    for name in [*RESERVED, *NONE]:
        with pytest.raises(WriteError, match="Document failed validation"):
            into.insert_one({"_id": "p", **record, field: name})
    with pytest.raises(WriteError, match="Document failed validation"):
        into.update_one({"_id": "0"}, {"$set": {field: "celery"}})
    assert into.count_documents({}) == len(NAMES)
