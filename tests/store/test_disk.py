"""What processes take on the disk: of few records exactly, of many about, and for the same cost."""

from __future__ import annotations

from typing import Any

import pytest

from recovery.settings import Settings
from recovery.store import layout, schema
from recovery.store.views import disk_use
from recovery.store.views.disk_use import DiskUse, Use
from tests.operations.exported import bring, made
from tests.world import World

LARGE = f'[["{"x" * 3000}"],{{}}]'


@pytest.fixture
def world(emptied: Settings) -> World:
    return World(emptied)


def fill(world: World, small: int, large: int) -> None:
    """Processes with a graph, a task and a decision each; those of one type with large arguments."""
    lines = [made(number) for number in range(small)]
    bring(world.store, [*lines, *(made(small + number, type="large", args=LARGE) for number in range(large))])


def stored(world: World, *names: str, among: range | None = None) -> dict[str, int]:
    """{collection: the bytes of all of its documents, or of those of some processes}."""
    keys = {"$in": [{"$substrBytes": ["$_id", 0, 32]}, [f"{n:032x}" for n in among or ()]]}
    match: list[dict[str, Any]] = [{"$match": {"$expr": keys}}] if among is not None else []
    pipeline = [*match, {"$group": {"_id": None, "bytes": {"$sum": {"$bsonSize": "$$ROOT"}}}}]
    found = {}
    for name in names:
        documents = world.store.database[name].aggregate(pipeline).to_list()
        found[name] = documents[0]["bytes"] if documents else 0
    return found


def total(found: DiskUse, what: str) -> Any:
    return sum(getattr(use, what) for use in found.types.values())


def test_of_few_it_is_exact(world: World) -> None:
    fill(world, 20, 10)
    world.store.database["processes"].update_one({"_id": f"{3:032x}"}, {"$set": {"type": 5}}, True, True)
    found = world.store.disk.use(1000)
    assert (found.drawn, found.estimated) == (30, False)
    assert {kind: (use.processes, use.records) for kind, use in found.types.items()} == {
        "order": (pytest.approx(19), pytest.approx(76)),
        "large": (pytest.approx(10), pytest.approx(40)),
        None: (pytest.approx(1), pytest.approx(4)),
    }
    assert total(found, "bytes") == pytest.approx(sum(stored(world, *schema.OF_PROCESSES).values()))
    assert found.types["large"].bytes > 10 * 3000
    assert total(found, "disk") > 0 and found.others.disk and found.free is not None


def test_of_more_than_the_sample_it_is_exact_as_long_as_they_are_few(world: World) -> None:
    bring(world.store, [made(n) for n in range(400)])
    found = world.store.disk.use(100)
    assert (found.drawn, found.estimated) == (400, False)
    assert (found.types["order"].processes, found.types["order"].records) == (400, 1600)
    assert found.types["order"].bytes == sum(stored(world, *schema.OF_PROCESSES).values())


def test_what_is_left_of_a_removed_process_is_of_no_known_type(world: World) -> None:
    bring(world.store, [made(n) for n in range(2)])
    world.store.database["processes"].delete_one({"_id": f"{1:032x}"})
    world.store.database["graphs"].insert_one({"_id": 5}, bypass_document_validation=True)
    found = world.store.disk.use(100)
    assert (found.types[None].processes, found.types[None].records) == (0, 3)


def test_of_none_it_is_nothing(settings: Settings) -> None:
    world = World(settings)  # in a database of its own, since it drops a collection
    layout.create(world.store.database)
    assert world.store.disk.use(1000).types == {}
    world.store.database["decisions"].drop()
    found = world.store.disk.use(1000)
    assert (found.types, found.estimated) == ({}, False)


@pytest.mark.parametrize("turns", [False, True], ids=["one type after the other", "in turns"])
def test_of_many_it_is_about_so(world: World, monkeypatch: pytest.MonkeyPatch, turns: bool) -> None:
    """A fifth of 5,000 by 200 of them: six standard deviations are 17 points."""
    monkeypatch.setattr(disk_use, "COUNTED", 10_000)
    large = range(0, 5000, 5) if turns else range(4000, 5000)
    bring(world.store, (made(n, **({"type": "large", "args": LARGE} if n in large else {})) for n in range(5000)))
    world.store.database.command("profile", 2)
    found = world.store.disk.use(200)
    world.store.database.command("profile", 0)
    assert found.estimated and 140 < found.drawn < 270
    assert found.types["large"].processes == pytest.approx(1000, abs=850)
    of_type = stored(world, *schema.OF_PROCESSES, among=large)
    assert found.types["large"].bytes == pytest.approx(sum(of_type.values()), rel=0.85)
    assert total(found, "processes") == pytest.approx(5000)
    assert total(found, "records") == pytest.approx(20_000)
    assert total(found, "bytes") == pytest.approx(sum(stored(world, *schema.OF_PROCESSES).values()))
    seen = world.store.database["system.profile"].find({"docsExamined": {"$exists": True}}).to_list()
    world.store.database["system.profile"].drop()
    assert sum(one["docsExamined"] for one in seen) <= 4 * found.drawn, "of what is not drawn nothing but keys"


def test_a_use_of_which_nothing_may_be_known() -> None:
    use = Use()
    use.add(0.5, 0.5, Use(records=10, bytes=100, disk=None))
    assert (use.records, use.bytes, use.disk) == (5, 50, None)
