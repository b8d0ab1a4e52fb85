"""Every field of every collection with every type that it can't have, past the validators: the process beside it ends
in time, no scan fails, nobody writes a trace, and what is damaged is named by all who look."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import patch

import pytest
from bson import Binary, Code, Decimal128, MaxKey, MinKey, ObjectId, Regex, Timestamp

from recovery import Settings
from recovery.health import examine, look
from recovery.health.model import Cause
from recovery.queue import Broker
from recovery.records import ProcessState, shapes_of
from recovery.records.shapes import Shape
from recovery.repair import look_around
from recovery.rules import Rule
from recovery.store import definitions, schema
from recovery.store.views.ranges import Range
from recovery.survey import Look, RangeCounts, wrong_in
from tests.waiting import wait_until
from tests.world import World, by_message_only

pytestmark = pytest.mark.thorough

OF_PROCESSES = (schema.PROCESSES, schema.GRAPHS, schema.DECISIONS, schema.TASKS)
WRONG: dict[str, Any] = {
    "double": 1.5,
    "nan": float("nan"),
    "string": "2026",
    "object": {"$gt": ""},
    "array": [1, {"a": "b"}],
    "binary": Binary(b"\xff\xfe"),
    "id": ObjectId("0123456789abcdef01234567"),
    "bool": True,
    "date": datetime(2026, 1, 1, tzinfo=UTC),
    "regex": Regex("^a"),
    "code": Code("f()"),
    "int": 7,
    "timestamp": Timestamp(1, 1),
    "decimal": Decimal128("1.5"),
    "min": MinKey(),
    "max": MaxKey(),
}


def fits(kind: str, shape: Shape) -> bool:
    """Whether a value may stand there."""
    if not shape.types:
        return True
    return (kind in shape.types and not shape.choices) or (kind in ("double", "nan") and "bool" in shape.types)


UNREAD = (
    *("processes.args", "processes.result", "processes.error.stack", "tasks.", "decisions.attempts"),
    *("decisions.claimedAt", "decisions.call", "decisions.outcome.value", "decisions.outcome.error.stack"),
    *(f"decisions.children.0.{field}" for field in ("args", "deps", "dependents", "unlocks")),
)
"""What no scanner reads: a sweep and a check name it, and whoever needs it."""


def paths(shape: dict[str, Shape], root: str = "") -> Iterator[tuple[str, Shape]]:
    """(path in a document, what may stand there), nested ones included."""
    for key, one in shape.items():
        if key == "_id" and not root:
            continue  # another record
        yield root + key, one
        inner = one.entry if one.entry is not None else one
        yield from paths(dict(inner.parts), f"{root}{key}.0." if one.entry is not None else f"{root}{key}.")


CASES = [
    (collection, path, kind)
    for collection, record in definitions.KINDS.items()
    for path, shape in paths(dict(shapes_of(record)))
    for kind in WRONG
    if not fits(kind, shape)
]


ABSURD: dict[str, Any] = {
    "most": 2**63 - 1,
    "least": -(2**63),
    "large": 1e15,
    "largest": 1.7e308,
    "negative": -1e20,
}
"""Numbers where numbers may stand, that no date and no count can be told from."""
NUMBERS = [
    (collection, path, kind)
    for collection in OF_PROCESSES
    for path, shape in paths(dict(shapes_of(definitions.KINDS[collection])))
    for kind in ABSURD
    if "double" in shape.types and "bool" not in shape.types
]


@pytest.fixture
def world(emptied: Settings) -> World:
    made = World(emptied, apply_timeout=0.2, message_timeout=0.3, idle_timeout=0.4)
    add = made.app.actor("add")(lambda a, b: a + b)
    made.app.process("order")(lambda: add.schedule(add.schedule(1, 2), 3))
    made.tell()
    return made


def start(world: World) -> str:
    """A process whose first task is finished, whose second is queued, and whose third waits."""
    process_id = world.start("order")
    with by_message_only():
        world.take_one("order")
    return process_id


def spoil(world: World, process_id: str, collection: str, path: str, kind: str) -> Any:
    """Put something else there, in the record of a collection that has most in it; the record's id."""
    found: dict[str, Any] = {"_id": {"$regex": f"^{process_id}"}} if collection in OF_PROCESSES else {}
    records = list(world.store.database[collection].find(found))
    first, _, rest = path.partition(".")
    record = next((one for one in records if first in one and (not rest or isinstance(one[first], dict | list))), None)
    if record is None:
        record = records[-1] if records and not rest else None
    if record is None:
        return None
    update = {"q": {"_id": record["_id"]}, "u": {"$set": {path: (WRONG | ABSURD)[kind]}}}
    world.store.database.command("update", collection, updates=[update], bypassDocumentValidation=True)
    return record["_id"]


def overdue(world: World, process_id: str) -> None:
    """Whatever can be looked at is looked at now."""
    past = {"$set": {"recoveryTime": world.store.now() - timedelta(hours=1)}}
    for name in OF_PROCESSES[:3]:
        live = {"_id": {"$regex": f"^{process_id}"}, "recoveryTime": {"$type": "date"}}
        update = {"q": live, "u": past, "multi": True}
        world.store.database.command("update", name, updates=[update], bypassDocumentValidation=True)


def empty(world: World) -> None:
    for name in world.store.database.list_collection_names():
        world.store.database[name].delete_many({})
    world.redis.flushdb()
    world._told = 0
    world.tell()


def check(world: World, caplog: pytest.LogCaptureFixture, collection: str, path: str, kind: str) -> None:
    empty(world)
    spoilt, sound = start(world), start(world)
    key = spoil(world, spoilt, collection, path, kind)
    caplog.clear()
    if key is None:
        return
    around = look_around(world.app.resources)
    surveyed = wrong_in(world.store, Look(around, thorough=True), Range(), RangeCounts())
    reported = [finding for _, findings in surveyed for finding in findings]
    if collection in OF_PROCESSES:
        told = [finding.record for finding in reported if finding.rule is Rule.RECORD_DAMAGED]
        assert told == [key], (collection, path, kind, reported)
        (finding,) = (f for f in look(world.app.resources, spoilt).findings if f.rule is Rule.RECORD_DAMAGED)
        assert f"its {path.partition('.')[0]} is " in finding.evidence
    overdue(world, spoilt)

    def is_done() -> bool:
        world.scan()
        world.pump()
        return world.process(sound).state is ProcessState.FINISHED

    wait_until(is_done, 5, f"the end of the sound one, beside {collection}.{path} as {kind}")
    assert world.app.result(sound, timeout=0) == 6
    assert "Traceback" not in caplog.text and not [one for one in caplog.records if one.exc_info], caplog.text
    if collection in OF_PROCESSES and not f"{collection}.{path}".startswith(UNREAD):
        assert str(key) in caplog.text, f"{collection}.{path} as {kind} is not named"
    with patch.object(Broker, "workers_answering", lambda *_: []):  # none is there, for whose answer it would wait
        checks = {one.name: one for one in examine(world.app.resources)}
    assert not [one for one in checks.values() if "could not be asked" in one.found], checks
    if collection not in OF_PROCESSES:
        assert checks["damage"].cause is Cause.RECORDS_DAMAGED
        assert f" {key}: its {path.partition('.')[0]} is " in checks["damage"].found, (path, kind, checks["damage"])


def test_a_field_that_is_something_else(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """One wrong type for a twelfth of all fields, by chance; all of them in a long run."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    by_path: dict[tuple[str, str], list[str]] = {}
    for collection, path, kind in CASES:
        by_path.setdefault((collection, path), []).append(kind)
    with caplog.at_level(logging.INFO):
        for (collection, path), kinds in chance.sample(sorted(by_path.items()), len(by_path) // 12):
            check(world, caplog, collection, path, chance.choice(kinds))


def check_number(world: World, collection: str, path: str, kind: str) -> None:
    """With every task of it delayed in turn, which is when most of its times count."""
    empty(world)
    spoilt, sound = start(world), start(world)
    if spoil(world, spoilt, collection, path, kind) is None:
        return
    later = {"$set": {"state": "delayed", "recoveryTime": world.store.now() + timedelta(days=30)}}
    of_it = {"_id": {"$regex": f"^{spoilt}"}, "state": {"$in": ["queued", "waiting"]}}
    for changes in ({}, later):
        world.store.database["decisions"].update_many(of_it, changes or {"$set": {"odd": 1}})
        for thorough in (True, False):
            for chosen in (None, [spoilt, sound]):
                seen = wrong_in(
                    world.store, Look(look_around(world.app.resources), chosen, thorough), Range(), RangeCounts()
                )
                assert all(isinstance(finding.evidence, str) for _, findings in seen for finding in findings)
        overdue(world, spoilt)

        def is_done() -> bool:
            world.scan()
            world.pump()
            return world.process(sound).state is ProcessState.FINISHED

        wait_until(is_done, 5, f"the end of the sound one, beside {collection}.{path} as {ABSURD[kind]}")


def test_a_number_that_is_absurd(world: World) -> None:
    """One for a third of all fields that have a number, by chance; all of them in a long run."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    by_path: dict[tuple[str, str], list[str]] = {}
    for collection, path, kind in NUMBERS:
        by_path.setdefault((collection, path), []).append(kind)
    for (collection, path), kinds in chance.sample(sorted(by_path.items()), len(by_path) // 3):
        check_number(world, collection, path, chance.choice(kinds))


@pytest.mark.soak
def test_every_number_that_is_absurd(world: World) -> None:
    for collection, path, kind in NUMBERS:
        check_number(world, collection, path, kind)


@pytest.mark.soak
@pytest.mark.parametrize("collection", list(definitions.KINDS))
def test_every_field_with_every_type(world: World, caplog: pytest.LogCaptureFixture, collection: str) -> None:
    with caplog.at_level(logging.INFO):
        for name, path, kind in CASES:
            if name == collection:
                check(world, caplog, name, path, kind)
