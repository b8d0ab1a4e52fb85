"""What waits for a worker is told from the decisions, by actor; and costs the actors, not what waits."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from recovery.records import ActorPreferences, Decision, DecisionState, Process, ProcessState, Worker
from recovery.settings import Settings
from recovery.store import ActorQueue, Store, layout, schema
from recovery.store.views import pending
from recovery.store.views.pending import ToCome
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
    assert found["served"].to_come == ToCome(), "not counted"
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


def running(store: Store, *ids: str, state: ProcessState = ProcessState.RUNNING) -> None:
    put(store, *(Process(id=key, type="x", args="", state=state, recovery_time=store.now()) for key in ids))


@pytest.mark.parametrize("is_known", [True, False])
def test_what_is_to_come_waits_for_nobody_too(store: Store, is_known: bool) -> None:
    """Whether a worker ever told of the actor or not."""
    if is_known:
        told(store, "a", "b")
    worker(store, "served")
    running(store, "p")
    decisions(store, "a", "delayed", "delayed", "working")
    decisions(store, "b", "waiting")
    found = store.waiting.by_actor(count_served=False)
    assert {name: found[name].waits_for_nobody for name in ("a", "b")} == {"a": True, "b": True}
    assert (found["a"].to_come.delayed, found["b"].to_come) == (2, ToCome(after_others=1))
    worker(store, "a", "b")
    served = store.waiting.by_actor()
    assert not any(served[name].waits_for_nobody for name in ("a", "b"))


def test_what_waits_for_others_in_a_process_that_broke_waits_for_an_operator(store: Store) -> None:
    running(store, "p")
    running(store, "broken", state=ProcessState.BROKEN)
    decisions(store, "a", "waiting", "waiting", process="broken")
    found = store.waiting.by_actor()["a"]
    assert (found.to_come, found.waits_for_nobody) == (ToCome(of_broken=2), False)
    decisions(store, "a", "waiting")
    found = store.waiting.by_actor()["a"]
    assert (found.to_come, found.waits_for_nobody) == (ToCome(after_others=1, of_broken=2), True)


def test_of_too_many_no_process_is_looked_up(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending, "MAX_LOOKED_UP", 3)
    decisions(store, "a", *["waiting"] * 4, process="broken")
    assert store.waiting.by_actor()["a"].to_come == ToCome(after_others=4)


def asked(store: Store, *, count_served: bool) -> list[dict[str, Any]]:
    """What one look asks of the decisions, as the server tells it."""
    store.database.command("profile", 2)
    store.waiting.by_actor(count_served=count_served)
    store.database.command("profile", 0)
    ours = {"ns": f"{store.database.name}.{schema.DECISIONS}", "op": "command"}
    found = list(store.database["system.profile"].find(ours))
    store.database["system.profile"].drop()
    return found


def test_what_waits_is_not_read(store: Store) -> None:
    """Neither what is live nor what is at rest: a seek for each actor, and what is counted from the index alone."""
    told(store, "served")
    worker(store, "served")
    decisions(store, "served", *(["queued", "finished", "delayed", "waiting"] * 300))
    decisions(store, "alone", *["queued"] * 5)
    found = asked(store, count_served=False)
    assert sum(entry["docsExamined"] for entry in found) == 0
    assert max(entry["keysExamined"] for entry in found) < 20 and len(found) <= 7


def test_while_all_are_served_nothing_is_counted(store: Store) -> None:
    """Of a wide graph that is healthy, say."""
    worker(store, "served")
    decisions(store, "served", *(["queued", "waiting"] * 300))
    found = asked(store, count_served=False)
    assert (len(found), sum(entry["docsExamined"] for entry in found)) == (3, 0)
    assert sum(entry["keysExamined"] for entry in found) < 10


def test_of_what_is_held_up_only_that_is_read(store: Store) -> None:
    worker(store, "served")
    running(store, "p")
    decisions(store, "served", *(["queued", "delayed", "waiting"] * 100))
    decisions(store, "alone", *["delayed"] * 30, *["waiting"] * 5)
    found = asked(store, count_served=False)
    assert sum(entry["docsExamined"] for entry in found) <= 2 * 5, "to tell whether their processes run"
    assert sum(entry["keysExamined"] for entry in found) < 80


def test_without_its_index_the_same_is_told(settings: Settings) -> None:
    """But for what has no deadline, which only they read who must not overlook it."""
    own = Store(settings)
    layout.create(own.database)
    own.database[schema.DECISIONS].drop_index("pending")
    decisions(own, "a", "queued", "queued", "working", "delayed", "waiting")
    found = own.waiting.by_actor()["a"]
    assert (found.tasks, found.to_come.delayed) == (2, 1)
    assert own.pending.undecided("a") == {"queued": 2, "working": 1, "delayed": 1, "waiting": 1}


def test_which_of_them_a_process_waits_for(store: Store) -> None:
    decisions(store, "a", "queued", "queued")
    decisions(store, "b", "working")
    decisions(store, "c", "queued", process="other")
    decisions(store, "d", "delayed")
    decisions(store, "e", "waiting")
    assert store.pending.actors_of("p", ["a", "b", "c", "d", "e"]) == {"a", "d", "e"}


def test_what_is_undecided(store: Store) -> None:
    decisions(store, "a", "queued", "queued", "working", "delayed", "waiting", "finished")
    decisions(store, "a", "delayed", process="other")
    decisions(store, "a", "waiting", process="fourth")
    decisions(store, "b", "queued", process="third")
    assert store.pending.undecided("a") == {"queued": 2, "working": 1, "delayed": 2, "waiting": 2}
    assert store.pending.processes_of("a") == ["fourth", "other", "p"]
    assert store.pending.undecided("c") == {}
