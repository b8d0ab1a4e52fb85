"""What waits for a worker is told from the decisions, by actor; and costs the actors, not what waits."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from recovery.records import ActorPreferences, Decision, DecisionState, Worker
from recovery.settings import Settings
from recovery.store import ActorQueue, Store, schema
from tests.store.writing import put

MINUTE = timedelta(minutes=1)


def decisions(store: Store, actor: str, *states: str, waited: timedelta = MINUTE, process: str = "p") -> None:
    now = store.now()
    put(
        store,
        *(
            Decision(
                id=f"{process}/{actor}-{state}-{place}",
                actor=actor,
                state=DecisionState(state),
                queued_at=now - waited * (place + 1),
                recovery_time=now + MINUTE,
            )
            for place, state in enumerate(states)
        ),
    )


def worker(store: Store, *queues: str, name: str = "w", timeout: float = 60.0) -> None:
    store.workers.beat(Worker(id=name, name=name, host="", pid=1, pid_started=1, queues=queues), timeout)


def told(store: Store, *actors: str) -> None:
    store.actors.save(ActorPreferences(id=actor) for actor in actors)


def polled(store: Store, actor: str, ago: timedelta) -> None:
    store.database[schema.QUEUES].insert_one({"_id": actor, "polledAt": store.now() - ago})


def test_nothing_waits(store: Store) -> None:
    assert store.waiting.by_actor() == {}
    told(store, "a")
    worker(store, "a")
    assert store.waiting.by_actor() == {
        "a": ActorQueue("a", None, 0, ("w",), is_served=True, blocked_seconds=None, is_known=True)
    }


def test_what_waits_by_actor(store: Store) -> None:
    told(store, "served", "alone")
    worker(store, "served")
    worker(store, "served", name="v")
    decisions(store, "served", "queued", "queued", "working", "finished", "delayed", "waiting")
    decisions(store, "alone", "queued")
    decisions(store, "new", "queued", "queued", "queued")
    found = store.waiting.by_actor()
    assert {name: queue.tasks for name, queue in found.items()} == {"alone": 1, "new": 3, "served": 2}
    assert {name: queue.waits_for_nobody for name, queue in found.items()} == {
        "alone": True, "new": True, "served": False,
    }  # fmt: skip
    assert {name: queue.is_known for name, queue in found.items()} == {"alone": True, "new": False, "served": True}
    assert found["served"].workers == ("v", "w")
    assert 180 <= (found["new"].waiting_seconds or 0) < 190


@pytest.mark.parametrize(
    ("heartbeat", "ago", "waits_for_nobody"),
    [
        pytest.param(60.0, None, False, id="lives"),
        pytest.param(-1.0, None, True, id="its heartbeat is overdue"),
        pytest.param(-1.0, 2, False, id="away for a moment, to restart"),
        pytest.param(-1.0, 30, True, id="away for long"),
        pytest.param(60.0, 30, False, id="lives and is busy"),
    ],
)
def test_who_serves(store: Store, heartbeat: float, ago: float | None, waits_for_nobody: bool) -> None:
    worker(store, "a", timeout=heartbeat)
    if ago is not None:
        polled(store, "a", timedelta(seconds=ago))
    decisions(store, "a", "queued")
    assert store.waiting.by_actor()["a"].waits_for_nobody is waits_for_nobody


def test_what_is_blocked_waits_for_an_operator(store: Store) -> None:
    told(store, "a", "b")
    worker(store, "a")
    store.actors.block("a")
    store.actors.block("b")
    decisions(store, "a", "queued")
    decisions(store, "b", "queued")
    for queue in store.waiting.by_actor().values():
        assert queue.waits_for_operator and not queue.waits_for_nobody
        assert queue.blocked_seconds is not None and 0 <= queue.blocked_seconds < 10


def test_of_what_is_served_only_the_age_is_told_to_who_asks_all_the_time(store: Store) -> None:
    told(store, "served", "blocked", "idle")
    worker(store, "served", "blocked", "idle")
    store.actors.block("blocked")
    for actor in ("served", "blocked", "alone"):
        decisions(store, actor, "queued", "queued")
    found = store.waiting.by_actor(count_served=False)
    assert {name: queue.tasks for name, queue in found.items()} == {
        "alone": 2, "blocked": 2, "idle": 0, "served": None,
    }  # fmt: skip
    assert (found["served"].waiting_seconds or 0) >= 120


def test_records_of_other_programs(store: Store) -> None:
    odd: list[dict[str, Any]] = [
        {"_id": "q/1", "state": "queued", "recoveryTime": store.now()},
        {"_id": "q/2", "state": "queued", "actor": None},
        {"_id": "q/3", "state": "queued", "actor": 7},
        {"_id": "q/4", "state": "queued", "actor": "a"},
        {"_id": "q/5", "state": "queued", "actor": "b", "queuedAt": store.now() + timedelta(days=1)},
        {"_id": "q/6", "state": "queued", "actor": "c", "queuedAt": "yesterday"},
    ]
    day = timedelta(days=1)
    others: dict[str, list[dict[str, Any]]] = {
        schema.DECISIONS: odd,
        schema.WORKERS: [
            {"_id": "1", "recoveryTime": store.now() + day},
            {"_id": "2", "recoveryTime": store.now() + day, "name": 7, "queues": ["a"]},
            {"_id": "3", "recoveryTime": store.now() + day, "name": "w", "queues": 7},
            {"_id": "4", "recoveryTime": store.now() + day, "name": "w", "queues": [7, {"a": 1}]},
            {"_id": "5", "recoveryTime": "soon", "name": "w", "queues": ["b"]},
        ],
        schema.QUEUES: [
            {"_id": "a", "polledAt": "just now"},
            {"_id": "b", "polledAt": store.now() + day},
            {"_id": 7, "polledAt": store.now()},
        ],
        schema.ACTORS: [{"_id": 7}, {"_id": {"c": 1}, "blockedAt": store.now()}],
    }
    for name, documents in others.items():
        store.database[name].insert_many(documents, bypass_document_validation=True)
    found = store.waiting.by_actor()
    assert all(queue.waits_for_nobody for queue in found.values())
    assert {name: (queue.tasks, queue.waiting_seconds) for name, queue in found.items()} == {
        "a": (1, 0.0), "b": (1, 0.0), "c": (1, 0.0),
    }  # fmt: skip


def test_what_waits_is_not_read(store: Store) -> None:
    """Neither what is live nor what is at rest: a seek for each actor, and what is counted from the index alone."""
    told(store, "served")
    worker(store, "served")
    decisions(store, "served", *["queued"] * 300, *["finished"] * 300)
    decisions(store, "alone", *["queued"] * 5)
    store.database.command("profile", 2)
    store.waiting.by_actor(count_served=False)
    store.database.command("profile", 0)
    ours = {"ns": f"{store.database.name}.{schema.DECISIONS}", "op": "command"}
    asked = list(store.database["system.profile"].find(ours))
    store.database["system.profile"].drop()
    assert len(asked) == 2
    assert sum(entry["docsExamined"] for entry in asked) == 0
    assert max(entry["keysExamined"] for entry in asked) < 20


def test_without_its_index_the_same_is_told(settings: Settings) -> None:
    own = Store(settings)
    schema.create(own.database)
    own.database[schema.DECISIONS].drop_index("waiting")
    decisions(own, "a", "queued", "queued", "working")
    assert own.waiting.by_actor()["a"].tasks == 2


def test_which_of_them_a_process_waits_for(store: Store) -> None:
    decisions(store, "a", "queued", "queued")
    decisions(store, "b", "working")
    decisions(store, "c", "queued", process="other")
    assert store.waiting.actors_of("p", ["a", "b", "c"]) == {"a"}


def test_what_is_undecided(store: Store) -> None:
    decisions(store, "a", "queued", "queued", "working", "delayed", "waiting", "finished")
    decisions(store, "a", "delayed", process="other")
    decisions(store, "b", "queued", process="third")
    assert store.waiting.undecided("a") == {"queued": 2, "working": 1, "delayed": 2}
    assert list(store.waiting.processes_of("a")) == ["other", "p"]
    assert store.waiting.undecided("c") == {}
