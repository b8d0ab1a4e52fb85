"""Where a worker begins to look for what is overdue."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from recovery.errors import StoreUnavailable
from recovery.scan import DecisionScanner, lookout
from recovery.scan.lookout import FROM_THE_BEGINNING_EVERY, MARGIN, Lookout
from recovery.store import schema
from tests.clock import Clock
from tests.world import World

LATE = timedelta(hours=1)


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(lookout, "time", clock)
    return clock


@pytest.fixture
def delayed(world: World) -> str:
    """A task that is due in an hour."""

    @world.app.process()
    def order() -> Any:
        return later.options(delay=3600.0).schedule()

    later = world.app.actor("later")(lambda: None)
    process_id = world.app.start(order)
    world.pump()
    world.store.database["decisions"].update_many({"state": {"$ne": "delayed"}}, {"$unset": {"recoveryTime": ""}})
    return next(one.id for one in world.decisions(process_id).values() if one.state == "delayed")


def fall_overdue(world: World, decision_id: str, by: timedelta) -> None:
    world.store.database["decisions"].update_one(
        {"_id": decision_id}, {"$set": {"recoveryTime": world.store.now() - by}}
    )


def test_it_begins_where_nothing_was_overdue(world: World, delayed: str) -> None:
    looks = Lookout(world.store.due)
    assert looks.since(schema.DECISIONS) is None
    first = looks.look()
    assert schema.DECISIONS not in first.overdue
    assert looks.since(schema.DECISIONS) == first.at - MARGIN
    fall_overdue(world, delayed, timedelta(seconds=1))
    assert schema.DECISIONS in looks.look().overdue
    assert looks.since(schema.DECISIONS) == first.at - MARGIN, "it is known no better while something is overdue"


@pytest.mark.parametrize("later", [0.5, 1.0])
def test_what_had_been_late_before_is_found_after_a_while(
    world: World, clock: Clock, delayed: str, later: float
) -> None:
    looks = Lookout(world.store.due)
    looks.look()
    fall_overdue(world, delayed, LATE)
    clock.now += later * FROM_THE_BEGINNING_EVERY
    assert (schema.DECISIONS in looks.look().overdue) == (later == 1.0)
    assert (looks.since(schema.DECISIONS) is None) == (later == 1.0)


def test_an_error_has_it_begin_anew(world: World, delayed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = Lookout(world.store.due)
    looks.look()
    fall_overdue(world, delayed, LATE)
    with monkeypatch.context() as away:
        away.setattr(world.store.due, "look", lambda _: (_ for _ in ()).throw(StoreUnavailable("away")))
        with pytest.raises(StoreUnavailable):
            looks.look()
    assert looks.since(schema.DECISIONS) is None
    assert schema.DECISIONS in looks.look().overdue


def test_a_scan_begins_there(world: World, delayed: str) -> None:
    fall_overdue(world, delayed, LATE)
    scanner = DecisionScanner(world.app.resources, world.app.applier)
    scanner.since = world.store.now() - LATE / 2
    assert scanner.run_once().looked_at == 0
    scanner.since = world.store.now() - 2 * LATE
    assert scanner.run_once().looked_at == 1
