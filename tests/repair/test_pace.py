"""After an outage everything is overdue at once: an actor's `requeue_rate` spreads it, and nothing is forgotten."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest

from recovery.records import Decision, DecisionState
from recovery.records.ids import new_process_id, record_id
from recovery.repair.pace import Pace
from recovery.rules import Finding, Repair, Rule
from recovery.scan import DecisionScanner
from tests.queues import polled_and_empty
from tests.rules.surroundings import around
from tests.store.writing import put
from tests.world import World


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def findings(actor: str, count: int) -> list[Finding]:
    made = (Decision(id=f"p/{actor}{n:05d}", actor=actor) for n in range(count))
    return [Finding(Rule.WORK_TIMEOUT, one.id, Repair.REQUEUE, "", one) for one in made]


def test_without_a_rate_all_is_done_now() -> None:
    wanted = findings("free", 1000)
    assert Pace().split(wanted, around()) == (wanted, [])


def test_what_is_over_the_rate_is_put_off_in_the_order_of_need() -> None:
    clock = Clock()
    pace, limited = Pace(clock=clock), around(actor={"requeue_rate": 10.0})
    wanted = findings("add", 35)
    now, (later,) = pace.split(wanted, limited)
    assert now == wanted[:10]
    assert later.ids == [one.record for one in wanted[10:]]
    assert (later.least, later.most) == (0.0, 2.5)
    # Another page of the same storm comes after those.
    now, (after,) = pace.split(findings("add", 20), limited)
    assert (now, after.least, after.most) == ([], 2.5, 4.5)
    clock.now = 2.0
    now, (rest,) = pace.split(findings("add", 11), limited)
    assert (len(now), rest.least) == (10, 2.5), "what two seconds brought, but no more than one's at once"


def test_a_rate_below_one_lets_one_through_at_a_time() -> None:
    clock = Clock()
    pace, limited = Pace(clock=clock), around(actor={"requeue_rate": 0.1})
    counts = []
    for clock.now in range(0, 31, 5):
        counts.append(len(pace.split(findings("add", 3), limited)[0]))
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
                id=record_id(process_id, f"{actor}{n}"), actor=actor, state=state, pass_key="old", attempts=1,
                worker=worker, queued_at=past, recovery_time=past,
            )
            for actor in ("slow", "free") for n in range(60)
        ),
    )  # fmt: skip
    world.tell()
    polled_and_empty(world.store, "slow", "free")
    scanner = DecisionScanner(world.app.resources, world.app.applier)
    began = world.store.now()
    assert scanner.run_once().repaired == {rule: 80}
    left = list(world.store.database["decisions"].find({"pass": "old"}))
    assert Counter(one["actor"] for one in left) == {"slow": 40}
    assert {one["state"] for one in left} == {state}
    spread = sorted((one["recoveryTime"] - began).total_seconds() for one in left)
    assert spread[0] >= 0 and spread[-1] < 2.5 and spread[-1] - spread[0] > 0.5, spread
    assert scanner.run_once().looked_at < 40, "none before its time"
    assert world.redis.llen("slow") <= 20 + 20
