"""After an outage everything is overdue at once: an actor's `requeue_rate` spreads it, and nothing is forgotten."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from recovery.records import Decision, DecisionState
from recovery.records.ids import child_task_id, new_process_id, record_id
from recovery.repair import look_around
from recovery.repair.requeue_pace import Later, RequeuePace
from recovery.rules import Finding, Repair, Rule, judge_decision
from recovery.scan import DecisionScanner
from tests.queues import polled_and_empty
from tests.rules.surroundings import around
from tests.store.writing import put
from tests.world import World


def findings(actor: str, count: int) -> list[Finding]:
    made = (Decision(id=f"p/{actor}{n:05d}", actor=actor) for n in range(count))
    return [Finding(Rule.WORK_TIMEOUT, one.id, Repair.REQUEUE, "", one) for one in made]


def pace(world: World) -> RequeuePace:
    return RequeuePace(world.store.requeue_rates)


def pass_by(world: World, seconds: float) -> None:
    """Have this time pass for all budgets, but not the moments that the test itself takes."""
    earlier = {"$subtract": ["$$NOW", round(1000 * seconds)]}
    world.store.database["queues"].update_many({}, [{"$set": {"pace.at": earlier}}])


def near(later: Later, least: float, most: float) -> bool:
    """Whether these are about the bounds: while a test runs, a budget earns a little."""
    return least - 0.3 <= later.least <= least and most - 0.3 <= later.most <= most


def test_without_a_rate_all_is_done_now(world: World) -> None:
    wanted = findings("free", 1000)
    assert pace(world).split(wanted, around()) == (wanted, [])
    assert world.store.database["queues"].find_one({"_id": "free"}) is None


def test_what_is_over_the_rate_is_put_off_in_the_order_of_need(world: World) -> None:
    limited = around(actor={"requeue_rate": 10.0})
    wanted = findings("add", 35)
    now, (later,) = pace(world).split(wanted, limited)
    assert now == wanted[:10]
    assert later.ids == [one.record for one in wanted[10:]]
    assert (later.least, later.most) == (0.0, 2.5)
    # Another page of the same storm comes after those.
    pass_by(world, 0)
    now, (after,) = pace(world).split(findings("add", 20), limited)
    assert now == [] and near(after, 2.5, 4.5)
    pass_by(world, 2.0)
    now, (rest,) = pace(world).split(findings("add", 11), limited)
    assert len(now) == 10 and near(rest, 2.5, 2.6), "what two seconds brought, but no more than one's at once"


def test_two_scanners_in_two_workers_have_one_budget(world: World) -> None:
    """With `requeue_rate=10/s` the cluster requeues 10 a second, not 20."""
    limited = around(actor={"requeue_rate": 10.0})
    one, other = pace(world), RequeuePace(World(world.settings).store.requeue_rates)
    done = []
    for _ in range(5):
        done.append(sum(len(each.split(findings("add", 100), limited)[0]) for each in (one, other)))
        pass_by(world, 1.0)
    assert done == [10, 10, 10, 10, 10]


def test_what_keeps_its_place_is_not_counted(world: World) -> None:
    limited = around(actor={"requeue_rate": 10.0})
    assert len(pace(world).split(findings("add", 500), limited, counts_left=False)[0]) == 10
    pass_by(world, 0)
    assert near(pace(world).split(findings("add", 10), limited)[1][0], 0.0, 1.0)


def test_a_budget_that_another_program_damaged_begins_anew(world: World) -> None:
    limited = around(actor={"requeue_rate": 10.0})
    for damaged in ("full", {"at": "now", "allowed": "many", "fresh": [1]}, {"allowed": float("nan")}):
        world.store.database["queues"].replace_one({"_id": "add"}, {"pace": damaged}, upsert=True)
        assert len(pace(world).split(findings("add", 35), limited)[0]) <= 10
        pass_by(world, 1)
        assert len(pace(world).split(findings("add", 35), limited)[0]) <= 10


def test_a_rate_below_one_lets_one_through_at_a_time(world: World) -> None:
    limited = around(actor={"requeue_rate": 0.1})
    counts = []
    for _ in range(7):
        counts.append(len(pace(world).split(findings("add", 3), limited)[0]))
        pass_by(world, 5)
    assert counts == [1, 0, 1, 0, 1, 0, 1]


@pytest.mark.parametrize(
    ("state", "rule"),
    [
        (DecisionState.WORKING, Rule.WORK_TIMEOUT),
        (DecisionState.DELAYED, Rule.DUE),
        (DecisionState.QUEUED, Rule.MESSAGE_LOST),
    ],
)
def test_a_storm_is_spread_and_all_are_requeued_once(world: World, state: DecisionState, rule: Rule) -> None:
    """Of attempts, of what was to begin meanwhile, and of messages: whatever was away, a rate is one for each second
    of what comes back."""
    world.app.actor("slow", requeue_rate=20.0)(lambda: None)
    world.app.actor("free")(lambda: None)
    past, process_id = world.store.now() - timedelta(days=1), new_process_id()
    worker = "w#1" if state is DecisionState.WORKING else None
    put(
        world.store,
        *(
            Decision(
                id=record_id(process_id, child_task_id(actor, 0, n)), actor=actor, state=state, pass_key="old",
                attempts=1, worker=worker, queued_at=past, recovery_time=past,
            )
            for actor in ("slow", "free") for n in range(60)
        ),
    )  # fmt: skip
    world.tell()
    polled_and_empty(world.store, "slow", "free")
    scanner = DecisionScanner(world.app.resources, world.app.outbox)
    began = world.store.now()
    assert scanner.run_once().repaired == {rule: 80}
    left = list(world.store.database["decisions"].find({"pass": "old"}))
    assert Counter(one["actor"] for one in left) == {"slow": 40}
    assert {one["state"] for one in left} == {state}
    spread = sorted((one["recoveryTime"] - began).total_seconds() for one in left)
    assert spread[0] >= 0 and spread[-1] < 2.5 and spread[-1] - spread[0] > 0.5, spread
    assert scanner.run_once().looked_at < 40, "none before its time"
    assert world.redis.llen("slow") <= 20 + 20


def postponed(found: list[Finding]) -> list[Finding]:
    """The same, of decisions that the pace has postponed until now."""
    due = datetime(2026, 1, 1, tzinfo=UTC)
    paced = (
        replace(one, decision=one.decision.evolve(recovery_time=due, paced_to=due)) for one in found if one.decision
    )
    return list(paced)


def test_what_was_postponed_comes_first_and_is_counted_once(world: World) -> None:
    limited = around(actor={"requeue_rate": 10.0})
    pace(world).split(findings("add", 1000), limited)
    pass_by(world, 1.0)
    mine, fresh = postponed(findings("add", 12)), findings("add", 30)
    now, (again, rest) = pace(world).split([*fresh, *mine], limited)
    assert now == mine[:10]
    assert again.ids == [one.record for one in mine[10:]]
    assert near(again, 0.0, 0.2), "a moment later, and not behind the other 980"
    assert near(rest, 98.0, 101.0)
    pass_by(world, 1.0)
    assert near(pace(world).split(findings("add", 11), limited)[1][0], 100.0, 100.1), "those had been counted"


PACED = 200


def test_a_storm_is_postponed_once(world: World) -> None:
    """Whatever else looks at it: that its messages are lost is seen by each scan, its queue is polled again, an
    operator takes it up, a check finds it."""
    world.app.actor("slow", requeue_rate=0.1)(lambda: None)
    past, process_id = world.store.now() - timedelta(days=1), new_process_id()
    made = [
        Decision(
            id=record_id(process_id, child_task_id("slow", 0, n)), actor="slow", state=DecisionState.QUEUED,
            pass_key="old", queued_at=past, recovery_time=past,
        )
        for n in range(PACED)
    ]  # fmt: skip
    put(world.store, *made)
    world.tell()
    polled_and_empty(world.store, "slow")
    resources, decisions = world.app.resources, world.store.database["decisions"]
    assert DecisionScanner(resources, world.app.outbox).run_once().looked_at >= PACED
    before = {one["_id"]: one["recoveryTime"] for one in decisions.find({"pass": "old"})}
    assert len(before) == PACED - 1
    assert max(before.values()) - world.store.now() > timedelta(seconds=1900), "ten seconds for each"
    soon = world.store.now() + timedelta(seconds=30)
    waiting = {key for key, at in before.items() if at > soon}
    for _ in range(3):
        DecisionScanner(resources, world.app.outbox).run_once()  # of another worker, too, which knows of no budget
        world.store.task_deadlines.taken_up("slow")
        world.store.task_deadlines.advance_lost("slow", world.store.now(), 600)
    after = {one["_id"]: one["recoveryTime"] for one in decisions.find({"_id": {"$in": list(waiting)}})}
    assert after == {key: before[key] for key in waiting}
    found = world.store.decisions.get(max(waiting))
    assert found is not None and judge_decision(found, look_around(resources, queues=["slow"])) is None


def test_what_has_its_turn_waits_no_more_than_a_moment(world: World) -> None:
    """Where more of it is due at once than the rate allows: it was counted, and is not sent to the end."""
    world.app.actor("slow", requeue_rate=0.1)(lambda: None)
    past, process_id = world.store.now() - timedelta(days=1), new_process_id()
    put(
        world.store,
        *(
            Decision(
                id=record_id(process_id, child_task_id("slow", 0, n)), actor="slow", state=DecisionState.QUEUED,
                pass_key="old", queued_at=past, recovery_time=past,
            )
            for n in range(PACED)
        ),
    )  # fmt: skip
    world.tell()
    polled_and_empty(world.store, "slow")
    scanner, decisions = DecisionScanner(world.app.resources, world.app.outbox), world.store.database["decisions"]
    scanner.run_once()
    due, keys = world.store.now(), [one["_id"] for one in decisions.find({"pass": "old"}).limit(5)]
    decisions.update_many({"_id": {"$in": keys}}, {"$set": {"recoveryTime": due, "pacedTo": due}})
    scanner.run_once()
    waits = [one["recoveryTime"] - due for one in decisions.find({"_id": {"$in": keys}})]
    assert max(waits) < timedelta(seconds=60), waits
