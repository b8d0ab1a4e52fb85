"""The overview's counts are right, and cost what is live."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from recovery.errors import StoreTimeout
from recovery.settings import Settings, load
from recovery.stack.server_process import free_port
from recovery.store import Store
from recovery.store.views.overview import APPLYING, AT_REST, Overview, time_limit
from tests.emptied import without_index

AT_REST_COUNT = 500
"""Records that no count may read."""


@pytest.fixture
def store(emptied: Settings) -> Store:
    store = Store(emptied)
    past, soon = datetime.now(UTC) - timedelta(seconds=60), datetime.now(UTC) + timedelta(days=1)
    store.database["processes"].insert_many(
        [
            *({"_id": f"f{n}", "state": "finished"} for n in range(AT_REST_COUNT)),
            {"_id": "r1", "state": "running", "recoveryTime": soon},
            {"_id": "r2", "state": "running", "recoveryTime": past},
            {"_id": "b1", "state": "broken"},
            {"_id": "a1", "state": "aborted"},
            {"_id": "a2", "state": "aborted"},
        ]
    )
    store.database["decisions"].insert_many(
        [
            *({"_id": f"p/f{n}", "actor": "x", "state": "finished"} for n in range(AT_REST_COUNT)),
            {"_id": "p/w", "actor": "x", "state": "waiting"},
            {"_id": "p/a", "actor": "x", "state": "finished", "recoveryTime": soon},
            {"_id": "p/q1", "actor": "x", "state": "queued", "recoveryTime": soon},
            {"_id": "p/q2", "actor": "x", "state": "queued", "recoveryTime": past},
            {
                "_id": "p/k",
                "actor": "x",
                "state": "working",
                "worker": "w#1",
                "recoveryTime": past + timedelta(seconds=30),
            },
        ]
    )
    return store


def test_counts(store: Store) -> None:
    overview = Overview(store.database)
    assert overview.processes() == {"finished": AT_REST_COUNT, "running": 1 + 1, "broken": 1, "aborted": 2}
    assert overview.decisions() == {
        "delayed": 0, "queued": 2, "working": 1, APPLYING: 1, AT_REST: AT_REST_COUNT + 1,
    }  # fmt: skip
    assert overview.overdue() == {"decisions": 2, "graphs": 0, "processes": 1, "schedules": 0}
    assert 60 <= overview.oldest_overdue("decisions") < 120
    assert overview.oldest_overdue("graphs") == 0
    assert overview.collections()["processes"] == AT_REST_COUNT + 5


def test_counts_without_the_index_of_what_waits(store: Store) -> None:
    """Rather dear than not told: `doctor` tells of the index."""
    before = Overview(store.database).decisions()
    with without_index(store, "decisions", "pending"):
        assert Overview(store.database).decisions() == before


def test_doctor_says_of_how_many_it_speaks(store: Store) -> None:
    overview = Overview(store.database)
    assert overview.are_more_live(2, ["processes", "decisions"]) and not overview.are_more_live(2, ["processes"])
    assert not overview.are_more_live(4, ["decisions"])
    assert overview.without_deadline(1)["graphs"] == 0


def test_a_null_for_a_deadline_is_overdue_and_has_no_age(store: Store) -> None:
    """Another program wrote it."""
    broken = {"_id": "p/n", "actor": "x", "state": "working", "recoveryTime": None}
    store.database["decisions"].insert_one(broken, bypass_document_validation=True)
    overview = Overview(store.database)
    assert overview.overdue()["decisions"] == 3
    assert 60 <= overview.oldest_overdue("decisions") < 120


@pytest.mark.parametrize("ask", [Overview.processes, Overview.decisions, Overview.overdue])
def test_what_is_at_rest_is_not_read(store: Store, ask: Callable[[Overview], Any]) -> None:
    store.database.command("profile", 2)
    ask(Overview(store.database))
    store.database.command("profile", 0)
    asked = list(store.database["system.profile"].find({"op": {"$in": ["query", "command"]}}))
    examined = [entry.get("keysExamined", 0) + entry.get("docsExamined", 0) for entry in asked]
    assert asked
    assert max(examined) < 20


def test_a_server_that_does_not_answer_is_not_waited_for() -> None:
    away = Overview(Store(load(mongo_uri=f"mongodb://127.0.0.1:{free_port()}")).database)
    with time_limit(0.2), pytest.raises(StoreTimeout):
        away.workers_alive()
