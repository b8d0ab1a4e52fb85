"""Creating the collections: again, by many at once, and over an older version's."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.database import Database
from pymongo.errors import OperationFailure, WriteError

from recovery.settings import Settings
from recovery.store import Store, definitions, layout, schema

TOGETHER = 8


@pytest.fixture
def store(settings: Settings) -> Iterator[Store]:
    yield Store(settings)


def indexes(store: Store) -> dict[str, set[str]]:
    return {name: set(store.database[name].index_information()) for name in definitions.VALIDATORS}


def test_every_collection_is_named() -> None:
    assert tuple(definitions.KINDS) == schema.ALL


def test_twice_changes_nothing(store: Store) -> None:
    layout.create(store.database)
    first = indexes(store)
    assert {"_id_", "deadline", "customId", "deadlineMissing", "unsuccessful"} <= first["processes"]
    layout.create(store.database)
    assert indexes(store) == first


def test_a_live_record_without_a_deadline_is_refused(store: Store) -> None:
    layout.create(store.database)
    with pytest.raises(WriteError):
        store.database["processes"].insert_one({"_id": "p", "state": "running"})


def test_an_older_validator_is_brought_up_to_date(store: Store) -> None:
    store.database.create_collection("processes", validator={"state": "running"})
    layout.create(store.database)
    store.database["processes"].insert_one({"_id": "p", "state": "finished"})


def test_the_order_of_conditions_means_nothing(store: Store) -> None:
    """A version whose records have their fields in another order is not out of date, and changes nothing."""
    layout.create(store.database)
    wanted = definitions.VALIDATORS["operations"]
    turned = {**wanted, "$nor": wanted["$nor"][::-1]}
    store.database.command("collMod", "operations", validator=turned, validationLevel=definitions.LEVEL)
    assert list(layout.missing(store.database)) == []
    layout.create(store.database)
    (held,) = store.database.list_collections(filter={"name": "operations"})
    assert held["options"]["validator"] == turned
    store.database.command("collMod", "operations", validator={**wanted, "$nor": wanted["$nor"][1:]})
    assert list(layout.missing(store.database)) == ["validator of operations"]


@pytest.mark.thorough
@pytest.mark.parametrize("older", [False, True])
def test_many_at_once(settings: Settings, older: bool) -> None:
    """Workers that start together."""
    barrier = Barrier(TOGETHER)

    def create(database: Any) -> None:
        barrier.wait()
        layout.create(database)

    with MongoClient[dict[str, Any]](settings.mongo_uri) as client, ThreadPoolExecutor(TOGETHER) as pool:
        for _ in range(3):
            database = client[f"{settings.database}_{uuid.uuid4().hex[:6]}"]
            if older:
                for name in definitions.VALIDATORS:
                    database.create_collection(name, validator={"older": None})
            for done in [pool.submit(create, database) for _ in range(TOGETHER)]:
                done.result()
            client.drop_database(database)


def test_a_client_is_first(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first insert makes a collection, after somebody who is about to create it has looked."""
    list_collections = Database.list_collections

    def before_the_insert(database: Database[Any], *args: Any, **options: Any) -> Any:
        monkeypatch.setattr(Database, "list_collections", list_collections)
        found = list(database.list_collections(*args, **options))
        store.database[schema.TASKS].insert_one({"_id": "p/t", "actor": "a", "args": "[[], {}]"})
        return found

    store.database.client.drop_database(store.database)
    monkeypatch.setattr(Database, "list_collections", before_the_insert)
    layout.create(store.database)
    assert layout.missing(store.database) == []


def test_a_validator_is_not_changed_without_need(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Changing one is refused while an index is built, as another worker that starts with us may do."""
    layout.create(store.database)
    monkeypatch.setattr(layout, "_change_validator", lambda *_: pytest.fail("changed"))
    layout.create(store.database)


def test_a_change_waits_for_an_index_build(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.database.create_collection("processes", validator={"state": "running"})
    command, refusals = Database.command, iter([OperationFailure("index build", 12587)] * 2)

    def busy(self: Any, name: Any, *args: Any, **options: Any) -> Any:
        if name == "collMod" and (refusal := next(refusals, None)):
            raise refusal
        return command(self, name, *args, **options)

    monkeypatch.setattr(Database, "command", busy)
    layout.create(store.database)
    assert next(refusals, None) is None
    store.database["processes"].insert_one({"_id": "p", "state": "finished"})


def test_a_validator_that_is_wrong_is_told(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    layout.create(store.database)
    monkeypatch.setitem(definitions.VALIDATORS, "tasks", {"$nonsense": 1})
    with pytest.raises(OperationFailure):
        layout.create(store.database)


def test_an_index_that_has_records_removed_is_told(store: Store) -> None:
    """As somebody makes it who wants an audit log to be empty: there is no right to remove from it."""
    layout.create(store.database)
    audit, processes = store.database[schema.AUDIT_LOG], store.database[schema.PROCESSES]
    assert store.layout.different() == {}
    processes.create_index("mine")
    assert store.layout.different() == {}, "who makes others has his reasons"
    audit.create_index("why", expireAfterSeconds=0)
    changed = {"name": "old", "expireAfterSeconds": 1}
    store.database.command("collMod", schema.AUDIT_LOG, index=changed)
    assert store.layout.different() == {
        "auditLog.old": "db.auditLog.dropIndex('old')",
        "auditLog.why_1": "db.auditLog.dropIndex('why_1')",
    }
