"""What scanners ask costs what is overdue, not what exists: by MongoDB's own count of what a query examined."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from recovery.settings import load
from recovery.stack import Stack
from recovery.store import Store, layout
from recovery.store.raw_pages import raw_pages

OTHERS = 20_000
ODD = 7


@pytest.fixture(scope="module")
def store(stack: Stack) -> Iterator[Store]:
    """Of decisions, graphs and processes each: many that are at rest or healthy, and seven of each odd kind."""
    store = Store(load(mongo_uri=stack.mongo_uri, broker_url=stack.broker_url, database=f"t_{uuid.uuid4().hex[:9]}"))
    layout.create(store.database)
    now = store.now()
    past, soon = now - timedelta(hours=1), now + timedelta(days=1)
    graph: dict[str, Any] = {"links": {}, "finished": [], "failed": {}, "version": 0}
    kinds: dict[str, tuple[list[dict[str, Any]], list[dict[str, Any]]]] = {
        "decisions": (
            [
                {"state": "finished"},
                {"state": "waiting"},
                {"state": "queued", "recoveryTime": soon},
                {"state": "working", "recoveryTime": soon, "worker": "healthy#1"},
                {"state": "working", "recoveryTime": soon, "worker": "dead2#1"},
            ],
            [
                {"state": "working", "recoveryTime": past, "worker": "late#1"},
                {"state": "working", "recoveryTime": soon, "worker": "dead#1"},
                {"state": "queued"},
            ],
        ),
        "graphs": (
            [{**graph, "notFinished": {}}, {**graph, "notFinished": {"t": now}, "recoveryTime": soon}],
            [{**graph, "notFinished": {"t": now}, "recoveryTime": past}],
        ),
        "processes": (
            [{"state": "finished"}, {"state": "broken"}, {"state": "running", "recoveryTime": soon}],
            [{"state": "running", "recoveryTime": past}, {"state": "running"}],
        ),
    }
    for name, (others, odd) in kinds.items():
        documents = [{"_id": f"o{n}/t", "actor": "a", "epoch": 0, **others[n % len(others)]} for n in range(OTHERS)]
        documents += [
            {"_id": f"{kind}-{n}/t", "actor": "a", "epoch": 0, **odd[kind]}
            for kind in range(len(odd))
            for n in range(ODD)
        ]
        store.database[name].insert_many(documents, ordered=False, bypass_document_validation=True)
    yield store
    store.database.client.drop_database(store.database.name)


CASES: list[tuple[str, str, Callable[[Store], list[Any]]]] = [
    ("decisions", "deadline", lambda store: next(store.decisions.overdue_pages(1000))),
    (
        "decisions",
        "deadline",
        lambda store: next(store.decisions.overdue_pages(1000, within=1e9, since=datetime(2020, 1, 1, tzinfo=UTC))),
    ),
    ("decisions", "deadlineMissing", lambda store: store.decisions.without_deadline(1000)),
    ("decisions", "worker", lambda store: store.decisions.held_by(["dead"], 1000)),
    ("decisions", "worker", lambda store: store.decisions.held_by(["dead#1", "nobody", "nobody#2"], 1000)),
    ("graphs", "deadline", lambda store: store.graphs.overdue(1000)),
    ("processes", "deadline", lambda store: store.processes.overdue(1000)),
    ("processes", "deadlineMissing", lambda store: store.processes.without_deadline(1000)),
    ("decisions", "_id", lambda store: [*store.pending.still_waiting("a", [f"2-{n}" for n in range(ODD)])]),
]
KEYS = {"deadline": "recoveryTime", "deadlineMissing": "state", "worker": "worker", "_id": "_id"}


@pytest.mark.parametrize(("collection", "index", "ask"), CASES)
def test_examines_only_what_it_gives(
    store: Store, collection: str, index: str, ask: Callable[[Store], list[Any]]
) -> None:
    store.database.command("profile", 2)
    found = ask(store)
    store.database.command("profile", 0)
    assert len(found) == ODD
    query = {"ns": f"{store.database.name}.{collection}", "op": "query"}
    (asked,) = store.database["system.profile"].find(query).sort("ts", -1).limit(1)
    assert asked["docsExamined"] == ODD
    assert asked["keysExamined"] <= 2 * ODD + 2
    assert f"{{ {KEYS[index]}: 1 }}" in asked["planSummary"]
    assert "COLLSCAN" not in asked["planSummary"]


def test_the_longest_overdue_come_first_and_no_more_than_asked_for(store: Store) -> None:
    ids = [f"0-{n}/t" for n in range(ODD)]
    for place, one in enumerate(reversed(ids)):
        store.database["decisions"].update_one(
            {"_id": one}, {"$set": {"recoveryTime": store.now() - timedelta(hours=10 - place)}}
        )
    for wanted, found in [
        (ids[::-1], store.decisions.overdue_pages(3)),
        (ids[4::-1], store.decisions.overdue_pages(3, within=8.5 * 3600)),
        (ids[2::-1], store.decisions.overdue_pages(3, since=store.now() - timedelta(hours=6.5))),
    ]:
        pages = [[decision.id for decision in page.records] for page in found]
        assert pages == [wanted[first : first + 3] for first in range(0, len(wanted), 3)]
    assert len(store.decisions.without_deadline(3)) == len(store.decisions.held_by(["dead"], 3)) == 3


@pytest.mark.parametrize("collection", ["decisions", "graphs", "processes"])
def test_the_index_of_deadlines_holds_only_what_is_live(store: Store, collection: str) -> None:
    found = store.database[collection].find({"recoveryTime": {"$exists": True}}, {"_id": True}).hint("deadline")
    examined = found.explain()["executionStats"]["totalKeysExamined"]
    assert examined == store.database[collection].count_documents({"recoveryTime": {"$type": "date"}})
    assert examined < OTHERS * 0.7


@pytest.mark.parametrize("pages", ["overdue", "raw"])
def test_pages_that_are_dropped_half_way_wait_for_no_lock_of_the_driver(store: Store, pages: str) -> None:
    """The garbage collector, which drops them, may run while pymongo holds it."""
    decisions = store.database["decisions"]
    found: Iterator[Any] = store.decisions.overdue_pages(2) if pages == "overdue" else raw_pages(decisions, {}, 2)
    next(found)
    read = [found]
    del found

    def drop() -> None:
        with store.database.client._topology._lock:
            read.clear()

    dropping = threading.Thread(target=drop, daemon=True)
    dropping.start()
    dropping.join(5)
    assert not dropping.is_alive()
