"""Where a worker begins to look for what is overdue."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from recovery.errors import StoreUnavailable
from recovery.scan import DecisionScanner, lookout
from recovery.scan.lookout import LEAST, LOOKS, MARGIN, MOST, Lookout
from recovery.store import schema
from tests.clock import Clock
from tests.world import World

LATE = timedelta(hours=1)


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(lookout, "time", clock)
    return clock


@pytest.fixture(autouse=True)
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


def fall_overdue(world: World, decision_id: str, by: timedelta) -> datetime:
    """As if its deadline had been so long ago; that."""
    late: datetime = world.store.now() - by
    world.store.database["decisions"].update_one({"_id": decision_id}, {"$set": {"recoveryTime": late}})
    return late


def test_it_begins_where_nothing_was_overdue(world: World) -> None:
    looks = Lookout(world.store.due)
    assert looks.since(schema.DECISIONS) is None
    first = looks.look()
    assert schema.DECISIONS not in first.overdue
    assert looks.since(schema.DECISIONS) == first.at - MARGIN
    assert looks.since(schema.SCHEDULES) is None, "they are few"


def test_it_begins_with_the_first_that_is_overdue(world: World, delayed: str) -> None:
    looks = Lookout(world.store.due)
    looks.look()
    late = fall_overdue(world, delayed, timedelta(seconds=1))
    for _ in range(2):
        assert looks.look().overdue[schema.DECISIONS] == late
        assert looks.since(schema.DECISIONS) == late - MARGIN


@pytest.mark.parametrize(
    ("looked", "seconds", "is_found"),
    [(LOOKS, LEAST, True), (LOOKS, LEAST - 1, False), (LOOKS - 1, MOST - 1, False), (LOOKS - 1, MOST, True)],
)
def test_what_had_been_late_before_is_found_after_a_while(
    world: World, clock: Clock, delayed: str, looked: int, seconds: float, is_found: bool
) -> None:
    looks = Lookout(world.store.due)
    for _ in range(looked):
        looks.look()
    late = fall_overdue(world, delayed, LATE)
    clock.now += seconds
    assert (schema.DECISIONS in looks.look().overdue) == is_found
    assert (looks.since(schema.DECISIONS) == late - MARGIN) == is_found


def test_where_another_program_wrote_what_is_no_date_nothing_is_known(world: World, delayed: str) -> None:
    world.store.database["decisions"].update_one(
        {"_id": delayed}, {"$set": {"recoveryTime": 0}}, bypass_document_validation=True
    )
    looks = Lookout(world.store.due)
    assert looks.look().overdue[schema.DECISIONS] == 0
    assert looks.since(schema.DECISIONS) is None


def test_it_begins_anew_when_it_is_told_to(world: World, delayed: str) -> None:
    looks = Lookout(world.store.due)
    looks.look()
    fall_overdue(world, delayed, LATE)
    assert schema.DECISIONS not in looks.look().overdue
    looks.forget()
    assert schema.DECISIONS in looks.look().overdue


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
