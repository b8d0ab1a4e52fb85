"""Time as a whole: stamped when it begins, kept in every deadline, and ended only where it is over."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import product

import pytest

from recovery.records import (
    ActorPreferences,
    Decision,
    DecisionState,
    ErrorInfo,
    Process,
    ProcessState,
    RetryState,
    TaskLimit,
)
from recovery.store import Store
from tests.store import single
from tests.store.writing import contents, get, is_close, put

WAITING, DELAYED, QUEUED = DecisionState.WAITING, DecisionState.DELAYED, DecisionState.QUEUED
WORKING, FINISHED = DecisionState.WORKING, DecisionState.FINISHED
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
ERROR = ErrorInfo(kind="TaskTimeout", message="$late", actor="add")
LIMIT, FORCED = TaskLimit(3600, forced=False), TaskLimit(3600, forced=True)


@pytest.fixture
def limited(store: Store) -> Store:
    """A store in which tasks of `add` have three seconds, those of `sum` as long as they like."""
    store.actors.save([ActorPreferences(id="add", task_timeout=3), ActorPreferences(id="sum")])
    return store


def decision(key: str, state: DecisionState, **fields: object) -> Decision:
    return Decision(id=key, actor="add", state=state, pass_key="old").evolve(**fields)


def test_stamped_when_it_could_first_be_taken(store: Store) -> None:
    now = store.now()
    put(
        store,
        decision("p/ready", WAITING),
        decision("p/delayed", WAITING, delay=60.0),
        decision("p/due", DELAYED, recovery_time=now - HOUR),
        decision("p/again", WORKING, recovery_time=now - HOUR, enqueued_at=now - DAY),
        decision("p/taken", WAITING),
    )
    store.requeues.enqueue_ready(["p/ready", "p/delayed"], "new")
    store.requeues.enqueue_due(["p/due"], "new")
    store.requeues.timed_out(["p/again"], "new")
    taken = single.claim_ready(store, "add", "p/taken", 0, "new", "w", 60)
    store.decisions.insert_queued([decision("p/start", WAITING, queued_at=now, pass_key="new")], 10, {})
    assert is_close(get(store, "p/ready").enqueued_at, now)
    assert get(store, "p/delayed").enqueued_at is None
    assert is_close(get(store, "p/due").enqueued_at, now)
    assert get(store, "p/again").enqueued_at == now - DAY, "kept across requeues"
    assert taken is not None and taken.enqueued_at == taken.queued_at is not None
    assert get(store, "p/start").enqueued_at == now


@pytest.mark.parametrize("others", [(), ("p/other",)], ids=["alone", "with another"])
def test_stamped_with_a_claim_on_the_spot(store: Store, others: tuple[str, ...]) -> None:
    put(store, *(Decision(id=key, actor="add") for key in ("p/next", *others)))
    limit = TaskLimit(2, forced=True)
    claimed = store.decisions.claim_ready("add", ["p/next", *others], 0, "new", "w", 60, limit)
    assert {one.id for one in claimed} == {"p/next", *others}
    for one in claimed:
        assert one.enqueued_at is not None
        assert one.recovery_time == one.enqueued_at + timedelta(seconds=2)


def test_what_is_queued_is_looked_at_when_its_time_is_over(limited: Store) -> None:
    now, past = limited.now(), limited.now() - timedelta(seconds=1)
    for actor in ("add", "sum"):
        put(
            limited,
            decision(f"{actor}/ready", WAITING, actor=actor),
            decision(f"{actor}/requeued", WORKING, actor=actor, recovery_time=past, enqueued_at=past),
            decision(f"{actor}/waits", QUEUED, actor=actor, recovery_time=past, enqueued_at=past, queued_at=past),
        )
    limited.requeues.enqueue_ready(["add/ready", "sum/ready"], "new")
    limited.requeues.timed_out(["add/requeued", "sum/requeued"], "new")
    limited.task_deadlines.postpone_waiting(["add/waits", "sum/waits"])
    starts = [
        decision(f"{actor}/start", WAITING, actor=actor, queued_at=now, pass_key="new") for actor in ("add", "sum")
    ]
    limited.decisions.insert_queued(starts, 10, {"add": 3})
    for key, document in contents(limited, "decisions").items():
        after = (document["recoveryTime"] - document["enqueuedAt"]).total_seconds()
        assert after == 3 if key.startswith("add/") else after >= 10, key


@pytest.mark.parametrize("limit", [None, LIMIT, FORCED])
def test_the_deadline_of_an_attempt(store: Store, limit: TaskLimit | None) -> None:
    """Only a limit that is forced ends what runs."""
    first_queued = store.now() - timedelta(seconds=3590)
    put(store, decision("p/t", QUEUED, enqueued_at=first_queued))
    claimed = single.claim(store, "add", "p/t", "old", "w", 60, limit)
    assert claimed is not None
    forced = first_queued + HOUR
    assert is_close(claimed.recovery_time, store.now() + timedelta(seconds=60)) != (limit is FORCED)
    assert (claimed.recovery_time == forced) == (limit is FORCED)
    assert store.decisions.extend("p/t", "old", 90, limit)
    assert (get(store, "p/t").recovery_time == forced) == (limit is FORCED)


SECONDS = TaskLimit(3, forced=True)
NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)
RETRY = RetryState(
    count=1, cycle=1, since=NEW_YEAR, until=NEW_YEAR + DAY, failed_at=NEW_YEAR, attempt=1, pass_key="old", code=21001,
    reason="NODE_NOT_AVAILABLE", kind="ConnectionRefusedError", message="away",
)  # fmt: skip
SET: dict[str, Callable[[Store], object]] = {
    "requeue_worker_lost": lambda store: store.requeues.requeue_worker_lost(["p/working"], ["w"], "new"),
    "requeue_given_back": lambda store: store.requeues.requeue_given_back(["p/working"], ["w"], "new"),
    "timed_out": lambda store: store.requeues.timed_out(["p/overdue"], "new"),
    "postpone_waiting": lambda store: store.task_deadlines.postpone_waiting(["p/queued"]),
    "advance_deadline": lambda store: store.task_deadlines.advance_deadline("add", SECONDS),
    "extend": lambda store: store.decisions.extend("p/working", "old", 90, SECONDS),
    "retry": lambda store: store.decisions.retry_later(get(store, "p/working"), RETRY, 60, SECONDS),
    "advance_deadline of processes": lambda store: store.processes.advance_deadline("order", 3.0),
}


@pytest.mark.parametrize("name", SET)
def test_what_is_over_its_time_is_overdue_at_once(limited: Store, name: str) -> None:
    now = limited.now()
    late, process = {"enqueued_at": now - DAY, "queued_at": now - DAY, "worker": "w"}, processes(limited)["late"]
    put(
        limited,
        decision("p/working", WORKING, recovery_time=now + DAY, **late),
        decision("p/overdue", WORKING, recovery_time=now - HOUR, **late),
        decision("p/queued", QUEUED, recovery_time=now - HOUR, **late),
    )
    limited.database["processes"].update_one({"_id": process.id}, {"$set": {"recoveryTime": now + DAY}})
    before = contents(limited, "decisions") | contents(limited, "processes")
    SET[name](limited)
    after = contents(limited, "decisions") | contents(limited, "processes")
    changed = [one["recoveryTime"] for key, one in after.items() if one != before[key]]
    assert changed and all(moment <= limited.now() for moment in changed)


@pytest.mark.parametrize("limit", [LIMIT, FORCED])
def test_what_is_over_is_not_handed_out(store: Store, limit: TaskLimit) -> None:
    put(store, decision("p/t", QUEUED, enqueued_at=store.now() - HOUR))
    before = contents(store, "decisions")
    assert single.claim(store, "add", "p/t", "old", "w", 60, limit) is None
    assert contents(store, "decisions") == before


@pytest.mark.parametrize("limit", [LIMIT, FORCED])
def test_out_of_time_in_every_condition(store: Store, limit: TaskLimit) -> None:
    now = store.now()
    conditions = list(product(DecisionState, [now - DAY, now, None], [now - DAY, now + DAY], ["add", "sum"]))
    made = [
        decision(f"p/{n}", state, enqueued_at=first, recovery_time=deadline, actor=actor)
        for n, (state, first, deadline, actor) in enumerate(conditions)
    ]
    put(store, *made)
    before = contents(store, "decisions")
    ended = store.task_ends.out_of_time([one.id for one in made], "add", limit, ERROR, "new")
    wanted = {
        one.id
        for one in made
        if one.actor == "add"
        and one.enqueued_at == now - DAY
        and (
            one.state in (QUEUED, DELAYED)
            or (one.state is WORKING and (limit.forced or one.recovery_time == now - DAY))
        )
    }
    assert set(ended) == wanted and wanted
    after = contents(store, "decisions")
    assert {key: d for key, d in after.items() if key not in wanted} == {
        key: d for key, d in before.items() if key not in wanted
    }
    for key in wanted:
        found = get(store, key)
        assert (found.state, found.timeouts) == (FINISHED, 0)
        assert found.outcome is not None and found.outcome.error == ERROR and found.outcome.pass_key == "new"
        assert is_close(found.recovery_time, now)
    assert store.task_ends.out_of_time([one.id for one in made], "add", limit, ERROR, "newer") == []


def processes(store: Store) -> dict[str, Process]:
    now = store.now()
    made = {
        "late": Process(id="late", type="order", args="", started_at=now - DAY, recovery_time=now - HOUR),
        "young": Process(id="young", type="order", args="", started_at=now, recovery_time=now - HOUR),
        "other": Process(id="other", type="refund", args="", started_at=now - DAY, recovery_time=now - HOUR),
        "over": Process(id="over", type="order", args="", started_at=now - DAY, state=ProcessState.FINISHED),
    }
    put(store, *made.values())
    return made


def test_a_process_is_counted_once(store: Store) -> None:
    ids = list(processes(store))
    before = contents(store, "processes")
    assert store.processes.note_timeouts(ids, "order", 3600) == 1
    late = store.processes.get("late")
    assert late is not None and late.state is ProcessState.RUNNING and is_close(late.timed_out_at, store.now())
    assert store.processes.note_timeouts(ids, "order", 3600) == 0
    assert store.processes.break_late(ids, "order", 3600, ERROR) == 0, "what was counted goes on"
    assert {key for key, d in contents(store, "processes").items() if d != before[key]} == {"late"}


def test_a_process_is_broken_once(store: Store) -> None:
    ids = list(processes(store))
    before = contents(store, "processes")
    assert store.processes.break_late(ids, "order", 3600, ERROR) == 1
    late = store.processes.get("late")
    assert late is not None and (late.state, late.error, late.recovery_time) == (ProcessState.BROKEN, ERROR, None)
    assert is_close(late.timed_out_at, store.now()) and is_close(late.ended_at, store.now())
    assert store.processes.break_late(ids, "order", 3600, ERROR) == 0
    assert {key for key, d in contents(store, "processes").items() if d != before[key]} == {"late"}


def test_a_process_that_was_set_running_since_it_was_seen_is_not_broken(store: Store) -> None:
    ids = list(processes(store))
    assert store.processes.break_late(ids, "order", 3600, ERROR, 1) == 0
    store.database["processes"].update_one({"_id": "late"}, {"$set": {"reopened": 1}})
    assert store.processes.break_late(ids, "order", 3600, ERROR) == 0
    assert store.processes.break_late(ids, "order", 3600, ERROR, 1) == 1


def test_a_process_is_looked_at_when_its_time_is_over(store: Store) -> None:
    made, now = processes(store), store.now()
    week = 7 * 86400.0
    store.processes.postpone_idle(list(made), {"order": week / 6, "another": 1.0})
    found = contents(store, "processes")
    started = made["late"].started_at
    assert started is not None
    assert found["late"]["recoveryTime"] == started + timedelta(seconds=week / 6), "else in a day"
    assert now + timedelta(seconds=50) <= found["young"]["recoveryTime"] < now + HOUR
    assert now + DAY / 2 <= found["other"]["recoveryTime"] <= now + 2 * DAY
    store.database["processes"].update_many({}, {"$set": {"recoveryTime": now - HOUR}})
    store.processes.postpone_idle(list(made), {"order": 3600.0})
    assert contents(store, "processes")["late"]["recoveryTime"] >= now + DAY / 2, "it is past already"
