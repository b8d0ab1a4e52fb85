"""Where a worker begins to look for what is overdue."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from bson.datetime_ms import DatetimeMS

from recovery.errors import StoreUnavailable
from recovery.scan import DecisionScanner, lookout
from recovery.scan.lookout import FULL, MARGIN, Lookout
from recovery.store import schema
from tests.world import World

LATE = timedelta(hours=1)


@pytest.fixture(autouse=True)
def chance(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What chance gives next, again and again; 0 is a look at all."""
    given = [1]
    monkeypatch.setattr(lookout.random, "randrange", lambda most: given[0] % most)
    return given


@pytest.fixture(autouse=True)
def delayed(world: World) -> str:
    """A task that is due in an hour."""

    @world.app.process()
    def order() -> Any:
        return later.options(delay=3600.0).schedule()

    later = world.app.actor("later")(lambda: None)
    process_id = world.start(order)
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


@pytest.mark.parametrize("given", range(FULL))
def test_what_had_been_late_before_is_found_by_one_look_in_so_many(
    world: World, chance: list[int], delayed: str, given: int
) -> None:
    looks = Lookout(world.store.due)
    looks.look()
    late, chance[0] = fall_overdue(world, delayed, LATE), given
    assert (schema.DECISIONS in looks.look().overdue) == (given == 0)
    assert (looks.since(schema.DECISIONS) == late - MARGIN) == (given == 0)


@pytest.mark.parametrize("odd", [0, "soon", datetime(1, 1, 1, tzinfo=UTC), DatetimeMS(-(10**15))], ids=repr)
def test_by_what_another_program_wrote_nothing_is_known(world: World, delayed: str, odd: Any) -> None:
    world.store.database["decisions"].update_one(
        {"_id": delayed}, {"$set": {"recoveryTime": odd}}, bypass_document_validation=True
    )
    looks = Lookout(world.store.due)
    assert schema.DECISIONS in looks.look().overdue
    assert looks.since(schema.DECISIONS) is None
    assert looks.since(schema.GRAPHS) is not None


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
