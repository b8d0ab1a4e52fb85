"""The database's time, known without asking each time."""

from __future__ import annotations

from datetime import timedelta
from itertools import count
from types import SimpleNamespace

import pytest

from recovery.store import Store, clock
from recovery.store.clock import VALID, DatabaseClock
from tests.clock import Clock
from tests.waiting import wait_until


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """What goes by here."""
    made = Clock()
    monkeypatch.setattr(clock, "time", SimpleNamespace(monotonic=made.monotonic))
    return made


@pytest.fixture
def database(store: Store) -> DatabaseClock:
    return DatabaseClock(store.database)


def test_it_goes_on_with_what_goes_by_here(database: DatabaseClock, here: Clock) -> None:
    told = database.now()
    assert database.at_least() == told
    here.now += 0.3
    assert database.at_least() == told + timedelta(seconds=0.3)


def test_it_is_a_whole_number_of_milliseconds_as_in_a_record(database: DatabaseClock, here: Clock) -> None:
    told = database.now()
    here.now += 0.0128
    assert database.at_least() == told + timedelta(milliseconds=12)


def test_it_is_asked_for_where_the_last_answer_is_old_or_there_was_none(database: DatabaseClock, here: Clock) -> None:
    before = database.now()
    for make in (lambda: database, lambda: DatabaseClock(database._database)):
        here.now += VALID + 60
        assert before <= make().at_least() < before + timedelta(seconds=30)


def test_an_answer_that_was_long_under_way_does_not_set_it_back(
    database: DatabaseClock, here: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clock, "VALID", 100.0)
    told = database.now()
    here.now += 90  # far more than the database's clock goes on until it answers
    assert database.now() < told + timedelta(seconds=90)
    assert database.at_least() == told + timedelta(seconds=90)


@pytest.mark.usefixtures("here")
def test_an_answer_that_came_sooner_sets_it_on(database: DatabaseClock) -> None:
    told = database.now()
    assert database.at_least() == told  # nothing has gone by here
    wait_until(lambda: database.now() > told, 5, "the database's clock goes on")
    assert database.at_least() > told


def test_an_answer_that_was_long_under_way_is_not_counted_on(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked for each time: 0.3 s go by here with each look at the clock."""
    looks = count(step=0.3)
    monkeypatch.setattr(clock, "time", SimpleNamespace(monotonic=lambda: next(looks)))
    database = DatabaseClock(store.database)
    for _ in range(3):
        before = database.now()
        assert before <= database.at_least() <= database.now()


def test_it_is_never_later_than_the_database_has_it(database: DatabaseClock) -> None:
    for _ in range(200):
        assert database.at_least() <= database.now()
