"""What the actor does, and above all does not: kill."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from recovery.drill import canary_actor as canary
from recovery.drill.canary_actor import DECLINED, CanaryKind, Victim, canary_actor, order
from recovery.drill.flock import Flock
from recovery.drill.sightings import Canary
from recovery.records import Worker
from recovery.records.ids import CANARY
from recovery.repair import Repairer
from recovery.scan import rescue
from recovery.settings import Settings
from tests.faults import Died
from tests.world import World


class Hand:
    """A killer that notes what it is told to kill; whoever is killed dies."""

    def __init__(self) -> None:
        self.killed: list[Victim] = []
        self.can_not: str | None = None

    def declines(self, _: Victim) -> str | None:
        return self.can_not

    def kill(self, victim: Victim) -> None:
        self.killed.append(victim)
        raise Died


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(canary, "HOLD", 0.0)


@pytest.fixture
def hand() -> Hand:
    return Hand()


@pytest.fixture
def world(emptied: Settings, hand: Hand) -> Iterator[World]:
    made = World(emptied)
    made.app.actors[CANARY] = canary_actor(made.app, hand)
    made.tell()
    for name in ("w", "other"):
        made.store.workers.beat(Worker(id=name, name=name, pid=1, pid_started=1, host="h", queues=(CANARY,)), 60)
    yield made


def value(world: World, one: Canary) -> dict[str, Any]:
    flock = Flock(world.app.resources, "other")
    flock.canaries = [one]
    world.bring_to_end(one.id)
    world.store.catch_up(10)
    flock.look()
    assert one.ended and one.error is None
    return dict((one.values or {})["start"])


def kill(world: World, victim: Victim = Victim.WORKER) -> Canary:
    return Flock(world.app.resources, "d1").start(CanaryKind.KILL, victim, net=30.0)


@pytest.mark.parametrize("victim", Victim)
def test_the_first_attempt_kills_and_no_other(world: World, hand: Hand, victim: Victim) -> None:
    one = kill(world, victim)
    with pytest.raises(Died):
        world.pump("w#1")
    assert hand.killed == [victim]
    found = world.store.decisions.get(f"{one.id}/start")
    assert found is not None and found.recovery_time is not None and found.claimed_at is not None
    assert found.recovery_time - found.claimed_at > timedelta(seconds=29), (
        "it is found by its death, and not by its deadline"
    )
    rescue(world.app.resources, Repairer(world.app.resources, world.app.outbox), ["w#1"])
    assert DECLINED not in value(world, one)
    assert hand.killed == [victim]


def test_without_the_right_none_kills(world: World) -> None:
    world.app.actors[CANARY] = canary_actor(world.app, None)
    assert "RECOVERY_DRILL_KILL is off" in value(world, kill(world))[DECLINED]


def test_an_order_that_waited_for_long_is_not_obeyed(world: World, hand: Hand) -> None:
    one = kill(world)
    long_ago = world.store.now() - timedelta(seconds=31)
    world.store.database["processes"].update_one({"_id": one.id}, {"$set": {"startedAt": long_ago}})
    world.store.catch_up(10)
    assert "over 30 s ago" in value(world, one)[DECLINED]
    assert hand.killed == []


def test_the_last_worker_is_not_killed(world: World, hand: Hand) -> None:
    """Whatever there was when the drill began."""
    one = kill(world)
    world.store.database["workers"].delete_many({"_id": {"$ne": "w"}})
    world.store.catch_up(10)
    world.pump("w#1")
    assert hand.killed == []
    assert "no other worker that serves recovery.canary is alive" in value(world, one)[DECLINED]


def test_what_was_stopped_meanwhile_kills_nothing(world: World, hand: Hand, monkeypatch: pytest.MonkeyPatch) -> None:
    """The drill was ended by Ctrl-C, say, while the canary held its claim."""
    one, decisions = kill(world), type(world.store.decisions)
    extend, held = decisions.extend, list[bool]()

    def extend_and_stop(*arguments: Any) -> bool:
        extended = extend(*arguments)
        held.append(extended)
        world.app.abort(one.id, "stopped")
        world.store.catch_up(10)
        return extended

    monkeypatch.setattr(decisions, "extend", extend_and_stop)
    world.pump("w#1")
    assert held == [True], "it was about to"
    assert hand.killed == []


def test_a_process_that_no_drill_has_made_kills_nothing(world: World, hand: Hand) -> None:
    process_id = world.start(CANARY, order(CanaryKind.KILL, victim="worker", net=30.0))
    declined = value(world, Canary(process_id, CanaryKind.KILL, Victim.WORKER, {}))[DECLINED]
    assert declined == "it does not belong to a drill"
    assert hand.killed == []


def test_a_task_of_another_process_kills_nothing(world: World, hand: Hand) -> None:
    """Whoever can schedule tasks of it from an actor is not a drill."""

    @world.app.process()
    def other() -> Any:
        return world.app.actors[CANARY].schedule(order(CanaryKind.KILL, victim="worker", net=30.0))

    assert world.run(other)[DECLINED] == "no running canary orders it"
    assert hand.killed == []


def test_where_it_can_not_be_it_says_why(world: World, hand: Hand) -> None:
    hand.can_not = "its pool is of threads"
    assert value(world, kill(world))[DECLINED] == "its pool is of threads"


def test_a_canary_that_is_told_what_no_canary_knows_breaks(world: World) -> None:
    process_id = world.start(CANARY, {"kind": "dance"})
    assert world.bring_to_end(process_id).state == "broken"


def test_a_canary_that_fails_is_not_tried_again_for_a_day(world: World, hand: Hand, monkeypatch: Any) -> None:
    def declines(_: Victim) -> str | None:
        raise ConnectionRefusedError("it passes by itself, for all that a catalogue knows")

    monkeypatch.setattr(hand, "declines", declines)
    assert world.bring_to_end(kill(world).id).state == "broken"
