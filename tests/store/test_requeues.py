"""The compare-and-sets on batches: of decisions in every condition, those of the right one change, no others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import product
from typing import Any

import pytest

from recovery.limits import LONGEST
from recovery.records import ActorPreferences, Decision, DecisionState, ErrorInfo
from recovery.store import Queued, Store
from tests.store.writing import contents, get, is_about, is_close, put

PASS = "the batch's"
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
DELAYED, QUEUED, WORKING = DecisionState.DELAYED, DecisionState.QUEUED, DecisionState.WORKING
ERROR = ErrorInfo(kind="WorkTimeout", message="late", actor="add")


@dataclass(frozen=True)
class Guard:
    """An update of a batch, and the condition of a decision that it is made for."""

    run: Callable[[Store, Sequence[str]], Any]
    wanted: Callable[[Decision, datetime], bool]


def past(decision: Decision, now: datetime) -> bool:
    return decision.recovery_time is not None and decision.recovery_time <= now


GUARDS: dict[str, Guard] = {
    "enqueue_ready": Guard(
        lambda s, ids: s.requeues.enqueue_ready(ids, PASS), lambda d, _: d.state is DecisionState.WAITING
    ),
    "enqueue_due": Guard(
        lambda s, ids: s.requeues.enqueue_due(ids, PASS), lambda d, now: d.state is DELAYED and past(d, now)
    ),
    "timed_out": Guard(
        lambda s, ids: s.requeues.timed_out(ids, PASS), lambda d, now: d.state is WORKING and past(d, now)
    ),
    "requeue_worker_lost": Guard(
        lambda s, ids: s.requeues.requeue_worker_lost(ids, ["a#1", "c#1"], PASS),
        lambda d, _: d.state is WORKING and d.worker == "a#1",
    ),
    "requeue_given_back": Guard(
        lambda s, ids: s.requeues.requeue_given_back(ids, ["a#1"], PASS),
        lambda d, _: d.state is WORKING and d.worker == "a#1",
    ),
    # The one that claimed it, and whose message is used up.
    "not_run": Guard(
        lambda s, ids: [one for key in ids for one in s.requeues.requeue_unrun({key: "old"}, "a#1", PASS)],
        lambda d, _: d.state is QUEUED or (d.state is WORKING and d.worker == "a#1"),
    ),
    "not_run, under another pass": Guard(
        lambda s, ids: [one for key in ids for one in s.requeues.requeue_unrun({key: "later"}, "a#1", PASS)],
        lambda _, __: False,
    ),
    # A decision that is queued without a time has no message either.
    "requeue_message_lost": Guard(
        lambda s, ids: s.requeues.requeue_message_lost(ids, s.now() - HOUR, PASS),
        lambda d, now: d.state is QUEUED and (d.queued_at is None or d.queued_at <= now - HOUR),
    ),
    "requeue_message_lost, none of which has a time": Guard(
        lambda s, ids: s.requeues.requeue_message_lost(ids, None, PASS),
        lambda d, _: d.state is QUEUED and d.queued_at is None,
    ),
    "postpone_waiting": Guard(
        lambda s, ids: s.task_deadlines.postpone_waiting(ids), lambda d, now: d.state is QUEUED and past(d, now)
    ),
    "stamp": Guard(
        lambda s, ids: s.task_deadlines.stamp(ids),
        lambda d, _: d.state in (DELAYED, QUEUED, WORKING) and d.recovery_time is None,
    ),
    "postpone": Guard(lambda s, ids: s.task_deadlines.postpone(ids, 60, 120), lambda d, now: past(d, now)),
    "postpone_idle": Guard(lambda s, ids: s.task_deadlines.postpone_idle(ids), lambda d, now: past(d, now)),
    # A deadline that is nearer stays.
    "taken_up": Guard(
        lambda s, _: s.task_deadlines.taken_up("actor1"),
        lambda d, now: d.state is QUEUED and d.actor == "actor1" and d.recovery_time is not None and not past(d, now),
    ),
    "fail": Guard(
        lambda s, ids: s.task_ends.fail(ids, ERROR, PASS), lambda d, now: d.state is WORKING and past(d, now)
    ),
    "fail what is held": Guard(
        lambda s, ids: s.task_ends.fail(ids, ERROR, PASS, ["a#1"]),
        lambda d, _: d.state is WORKING and d.worker == "a#1",
    ),
}
COUNTS_A_TIMEOUT = {"timed_out", "requeue_worker_lost", "fail", "fail what is held"}


def every_condition(store: Store) -> list[Decision]:
    """Decisions in every state, with every kind of deadline, holder and time of queueing."""
    now = store.now()
    conditions = product(DecisionState, [now - DAY, now + DAY, None], ["a#1", "a#12", None], [now - DAY, now, None])
    made = [
        Decision(
            id=f"p/{number}", actor=f"actor{number % 2}", state=state, pass_key="old", timeouts=number % 3,
            recovery_time=deadline, worker=worker, queued_at=queued_at,
        )
        for number, (state, deadline, worker, queued_at) in enumerate(conditions)
    ]  # fmt: skip
    put(store, *made)
    return made


@pytest.mark.parametrize("name", GUARDS)
def test_of_a_batch_in_every_condition_only_the_right_ones_change(store: Store, name: str) -> None:
    made, guard, now = every_condition(store), GUARDS[name], store.now()
    before = contents(store, "decisions")
    wanted = {d.id for d in made if guard.wanted(d, now)}
    told = guard.run(store, [d.id for d in made])
    after = contents(store, "decisions")
    assert {key for key in after if after[key] != before[key]} == wanted
    if isinstance(told, int):
        assert told == len(wanted)
    else:
        assert {one.id if isinstance(one, Queued) else one for one in told} == wanted
    for decision in made:
        counted = 1 if name in COUNTS_A_TIMEOUT and decision.id in wanted else 0
        assert after[decision.id].get("timeouts", 0) == decision.timeouts + counted
    guard.run(store, [d.id for d in made])
    assert contents(store, "decisions") == after, "the second time none is in the condition any more"


@pytest.mark.parametrize(
    "name",
    ["enqueue_ready", "enqueue_due", "timed_out", "requeue_worker_lost", "requeue_given_back", "requeue_message_lost"],
)
def test_one_alone_is_as_one_of_many(store: Store, name: str) -> None:
    made, guard, now = every_condition(store), GUARDS[name], store.now()
    for decision in made:
        told = guard.run(store, [decision.id])
        assert [one.id for one in told] == [decision.id] * guard.wanted(decision, now)


@pytest.mark.parametrize(
    "name",
    ["enqueue_ready", "enqueue_due", "timed_out", "requeue_worker_lost", "requeue_given_back", "requeue_message_lost"],
)
@pytest.mark.parametrize("together", [1, 2])
def test_what_comes_back_is_what_the_message_needs(store: Store, name: str, together: int) -> None:
    made, guard, now = every_condition(store), GUARDS[name], store.now()
    ids = [d.id for d in made if guard.wanted(d, now)][:together]
    told = guard.run(store, ids)
    assert len(told) == together
    for one in told:
        found = get(store, one.id)
        first = name not in ("enqueue_ready", "enqueue_due", "timed_out")
        assert one == Queued(found.id, found.actor, PASS, found.queued_at or now, first=first)
        assert (found.state, found.pass_key) == (QUEUED, PASS)
        assert is_close(found.queued_at, now)
        assert is_close(found.recovery_time, now + timedelta(seconds=10))
        assert found.worker is None or name == "enqueue_ready"


def profiled(store: Store, work: Callable[[], Any]) -> tuple[Any, list[dict[str, Any]]]:
    """What comes of it, and what MongoDB was asked of decisions."""
    store.database["system.profile"].drop()
    store.database.command("profile", 2)
    done = work()
    store.database.command("profile", 0)
    asked = {"ns": f"{store.database.name}.decisions", "op": {"$in": ["query", "update", "command"]}}
    return done, [*store.database["system.profile"].find(asked)]


KNOWING: dict[str, Callable[[Store, Sequence[str], dict[str, Decision]], list[Queued]]] = {
    "enqueue_due": lambda s, ids, known: s.requeues.enqueue_due(ids, PASS, known),
    "timed_out": lambda s, ids, known: s.requeues.timed_out(ids, PASS, known),
    "requeue_message_lost": lambda s, ids, known: s.requeues.requeue_message_lost(ids, s.now() - HOUR, PASS, known),
}


WHEN = ("queuedAt", "enqueuedAt", "recoveryTime")


def differing(made: Sequence[Decision], now: datetime) -> list[Decision]:
    """Of each several, that are alike and that are not."""
    changes: list[dict[str, Any]] = [
        {"enqueued_at": now - DAY}, {"in_batch": True, "enqueued_at": now - DAY}, {"timeouts": 2, "losses": 3},
        {"losses": 5}, {"losses": 8}, {"actor": "limited", "enqueued_at": now - DAY}, {"alone": True},
    ]  # fmt: skip
    return [one.evolve(id=f"{one.id}-{n}", **change) for one in made for n, change in enumerate([{}, *changes])]


@pytest.mark.parametrize("name", KNOWING)
@pytest.mark.parametrize("all_change", [True, False])
def test_what_was_read_before_makes_no_difference(store: Store, name: str, all_change: bool) -> None:
    """Be all of the batch changed, or was somebody first at some: in both ways the same comes of each."""
    guard, now = GUARDS[name], store.now()
    store.actors.save([ActorPreferences(id="limited", task_timeout=60.0)])
    made = differing(every_condition(store), now)
    store.database["decisions"].delete_many({})
    batch = [d for d in made if guard.wanted(d, now)] if all_change else made
    ids, found = [d.id for d in batch], list[dict[str, Any]]()
    for known in (None, {d.id: d for d in batch}):
        put(store, *batch)
        told = guard.run(store, ids) if known is None else KNOWING[name](store, ids, known)
        assert {one.id for one in told} == {d.id for d in batch if guard.wanted(d, now)} and len(told) > 10
        for one in told:
            record = get(store, one.id)
            assert one == Queued(
                record.id, record.actor, PASS, record.queued_at or now, first=name == "requeue_message_lost"
            )
        found += [contents(store, "decisions")]
        store.database["decisions"].delete_many({})
    for key, anyhow in found[0].items():
        alike, times = found[1][key], [time for time in WHEN if time in anyhow]
        assert {**alike, **dict.fromkeys(times)} == {**anyhow, **dict.fromkeys(times)}
        assert all(is_close(alike[time], anyhow[time]) for time in times if anyhow[time])


@pytest.mark.parametrize("name", KNOWING)
def test_what_is_alike_is_not_read_back(store: Store, name: str) -> None:
    made, guard, now = every_condition(store), GUARDS[name], store.now()
    wanted = [d for d in made if guard.wanted(d, now)]
    told, asked = profiled(store, lambda: KNOWING[name](store, [d.id for d in wanted], {d.id: d for d in wanted}))
    assert len(told) == len(wanted) > 1
    assert [one["op"] for one in asked] == ["update"]


def test_what_changed_since_it_was_read(store: Store) -> None:
    made, now = every_condition(store), store.now()
    known = {d.id: d for d in made if GUARDS["timed_out"].wanted(d, now)}
    alive, ended, together, told, *_ = known
    changes: dict[str, dict[str, Any]] = {
        alive: {"recoveryTime": now + DAY}, ended: {"state": "finished"}, together: {"inBatch": True},
        told: {"enqueuedAt": now - DAY},
    }  # fmt: skip
    for key, change in changes.items():
        store.database["decisions"].update_one({"_id": key}, {"$set": change})
    assert {one.id for one in store.requeues.timed_out([*known], PASS, known)} == {*known} - {alive, ended}
    assert (get(store, together).timeouts, get(store, together).alone) == (known[together].timeouts, True)
    assert get(store, told).enqueued_at == now - DAY


@pytest.mark.parametrize("broken", [None, "many", float("nan"), -3])
@pytest.mark.parametrize(("name", "field"), [("timed_out", "timeouts"), ("requeue_message_lost", "losses")])
def test_what_another_program_wrote_for_a_count(
    store: Store, name: str, field: str, broken: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """It is requeued as the others are, without being told as one that can't be written."""
    made, now = every_condition(store), store.now()
    known = {d.id: d for d in made if GUARDS[name].wanted(d, now)}
    odd = [*known][::2]
    change = {"$set": {field: broken}}
    store.database["decisions"].update_many({"_id": {"$in": odd}}, change, bypass_document_validation=True)
    assert {one.id for one in KNOWING[name](store, [*known], known)} == {*known}
    assert {getattr(get(store, key), field) for key in odd} == {1}
    assert not caplog.records


@pytest.mark.parametrize("seconds", [-60, 60])
def test_nothing_is_queued_by_a_time_that_does_not_hold(
    store: Store, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    """Between the answer what time it is and the update its process stood still, say, or the server is another one."""
    made, now = every_condition(store), store.now()
    known = {d.id: d for d in made if GUARDS["timed_out"].wanted(d, now)}
    monkeypatch.setattr(store.requeues, "_at_least", lambda: now + timedelta(seconds=seconds))
    told = store.requeues.timed_out([*known], PASS, known)
    assert {one.id for one in told} == {*known}
    assert all(is_close(one.queued_at, now) and one.queued_at >= now for one in told)


def test_what_somebody_else_was_first_at_costs_the_others_nothing(store: Store) -> None:
    made, now = every_condition(store), store.now()
    known = {d.id: d for d in made if GUARDS["timed_out"].wanted(d, now)}
    one, *others = known
    store.database["decisions"].update_one({"_id": one}, {"$set": {"recoveryTime": now + DAY}})
    told, asked = profiled(store, lambda: store.requeues.timed_out([*known], PASS, known))
    assert {one.id for one in told} == {*others}
    changed = [one.get("nModified", 0) for one in asked if one["op"] in ("update", "command")]
    assert sum(changed) == len(others)
    assert changed.count(0) == 1  # the one that is looked at for itself


@pytest.mark.parametrize("name", [name for name in GUARDS if name != "taken_up"])  # it is of all that an actor has
def test_a_batch_goes_by_its_ids(store: Store, name: str) -> None:
    """Whatever other index the guard could be answered by: the server takes twice as long where it tries them."""
    made = every_condition(store)
    _, asked = profiled(store, lambda: GUARDS[name].run(store, [d.id for d in made]))
    plans = {one["planSummary"] for one in asked if "planSummary" in one}
    assert plans and plans <= {"IXSCAN { _id: 1 }", "IDHACK"}


TIMES: list[tuple[str, float | None, float | None, float]] = [
    ("neither", None, None, 0),
    ("eta past", -60, None, 0),
    ("eta to come", 60, None, 60),
    ("delay", None, 60, 60),
    ("no delay", None, 0, 0),
    ("the later of both: eta", 90, 60, 90),
    ("the later of both: delay", 60, 90, 90),
    ("eta past, delay", -60, 60, 60),
]


@pytest.mark.parametrize(("eta", "delay", "starts"), [pytest.param(*times, id=what) for what, *times in TIMES])
@pytest.mark.parametrize("together", [1, 2])
def test_ready_becomes_delayed_while_its_time_is_to_come(
    store: Store, eta: float | None, delay: float | None, starts: float, together: int
) -> None:
    now = store.now()
    at = None if eta is None else now + timedelta(seconds=eta)
    ids = [f"p/{n}" for n in range(together)]
    put(store, *(Decision(id=key, actor="add", eta=at, delay=delay) for key in ids))
    queued = store.requeues.enqueue_ready(ids, PASS)
    assert [one.id for one in queued] == ([] if starts else ids)
    for key in ids:
        found = get(store, key)
        assert found.state is (DELAYED if starts else QUEUED)
        assert is_close(found.recovery_time, now + timedelta(seconds=starts or 10))


def test_a_failed_one_is_finished_and_due_to_be_applied_at_once(store: Store) -> None:
    put(store, Decision(id="p/t", actor="add", state=WORKING, recovery_time=store.now() - DAY, worker="a#1"))
    assert store.task_ends.fail(["p/t", "p/none"], ERROR, PASS) == ["p/t"]
    found = get(store, "p/t")
    assert found.state is DecisionState.FINISHED
    assert is_close(found.recovery_time, store.now())
    assert found.outcome is not None
    assert (found.outcome.pass_key, found.outcome.error, found.outcome.value) == (PASS, ERROR, None)
    assert is_close(found.outcome.finished_at, store.now())


@pytest.mark.parametrize(("age", "later"), [(1, 10), (60, 60), (3600, 300)])
def test_one_of_an_actor_with_a_pace_is_looked_for_when_it_is_twice_as_old(store: Store, age: int, later: int) -> None:
    now = store.now()
    queued_at = now - timedelta(seconds=age)
    put(store, Decision(id="p/t", actor="add", state=QUEUED, queued_at=queued_at, recovery_time=now - DAY))
    assert store.task_deadlines.postpone_waiting(["p/t"], paced=True) == 1
    assert is_about(get(store, "p/t").recovery_time, now, later)


def test_a_message_still_to_come_is_looked_for_in_a_day(store: Store) -> None:
    """That it is lost is known of its queue."""
    now = store.now()
    put(store, Decision(id="p/t", actor="add", state=QUEUED, queued_at=now, recovery_time=now - DAY))
    assert store.task_deadlines.postpone_waiting(["p/t"]) == 1
    assert is_about(get(store, "p/t").recovery_time, now, 86_400)


@pytest.mark.parametrize(("losses", "later"), [(None, 10), (1, 10), (5, 10), (6, 20), (8, 80), (9, 160), (1000, 300)])
def test_a_message_that_is_lost_again_and_again(store: Store, losses: int | None, later: int) -> None:
    """Its task is queued again each time, and after some times ever more rarely."""
    now = store.now()
    put(store, Decision(id="p/t", actor="add", state=QUEUED, queued_at=now - DAY, losses=losses, recovery_time=now))
    (queued,) = store.requeues.requeue_message_lost(["p/t"], now, "new")
    found = get(store, "p/t")
    assert (found.state, found.pass_key, found.losses) == (QUEUED, queued.pass_key, (losses or 0) + 1)
    assert is_close(found.recovery_time, now + timedelta(seconds=later))


def test_a_delay_that_no_date_can_hold_does_not_hold_up_the_batch(store: Store) -> None:
    """Another program wrote it."""
    for key, delay in (("p/t", 1e18), ("p/u", None)):
        put(store, Decision(id=key, actor="a", state=DecisionState.WAITING, delay=delay))
    assert [one.id for one in store.requeues.enqueue_ready(["p/t", "p/u"], PASS)] == ["p/u"]
    delayed = get(store, "p/t")
    assert delayed.state is DecisionState.DELAYED
    assert is_close(delayed.recovery_time, store.now() + timedelta(seconds=LONGEST))
    update = {"q": {"_id": "p/t"}, "u": {"$unset": {"recoveryTime": 1}}}
    store.database.command("update", "decisions", updates=[update], bypassDocumentValidation=True)
    assert store.task_deadlines.stamp(["p/t"]) == 1
    assert is_close(get(store, "p/t").recovery_time, store.now() + timedelta(seconds=LONGEST))
