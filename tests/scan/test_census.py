"""The census: one worker counts for all, seldom, and what it counted is told."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from recovery.errors import StoreUnavailable
from recovery.metrics.collectors import ServerCollector
from recovery.queue import Broker
from recovery.records import Census, Process, ProcessState, ProcessTypePreferences
from recovery.scan import census
from recovery.scan.census import CensusTaker
from recovery.settings import Settings
from recovery.store import Store, schema
from recovery.store.views.metric_counts import THE_ONE, Censuses
from tests.store.writing import put


@pytest.fixture
def store(emptied: Settings) -> Store:
    return Store(emptied)


def make(store: Store, process_type: str, state: ProcessState, count: int) -> None:
    deadline = store.now() + timedelta(hours=1) if state is ProcessState.RUNNING else None
    named = (f"{process_type}{state}{number}" for number in range(count))
    put(
        store,
        *(
            Process(id=name, type=process_type, args="[]", start_task="s", state=state, recovery_time=deadline)
            for name in named
        ),
    )


def told(store: Store, emptied: Settings, metric: str) -> dict[tuple[str, ...], float]:
    """{values of its labels: value}"""
    return {
        tuple(sample.labels.values()): sample.value
        for family in ServerCollector(store, Broker(emptied.broker_url)).collect()
        if family.name == metric
        for sample in family.samples
    }


def postponed(store: Store, **by: Any) -> None:
    """As if so much time had passed."""
    past = {name: {"$subtract": [f"${name}", timedelta(**by) // timedelta(milliseconds=1)]} for name in TIMES}
    store.database[schema.CENSUS].update_many({}, [{"$set": past}])


TIMES = ("takenAt", "nextAt")


def test_processes_by_type_and_state(store: Store, emptied: Settings) -> None:
    make(store, "order", ProcessState.RUNNING, 3)
    make(store, "order", ProcessState.BROKEN, 2)
    make(store, "refund", ProcessState.FINISHED, 4)
    store.process_types.save([ProcessTypePreferences(id="order"), ProcessTypePreferences(id="refund")])
    assert told(store, emptied, "recovery_processes") == {}, "nobody has counted"
    assert CensusTaker(store).take_if_due()
    assert told(store, emptied, "recovery_processes") == {
        ("order", "broken"): 2,
        ("order", "running"): 3,
        ("refund", "broken"): 0,
        ("refund", "running"): 0,
    }


def test_what_nobody_would_look_at_takes_no_census(store: Store, emptied: Settings) -> None:
    make(store, "order", ProcessState.RUNNING, 2)
    assert set(told(store, emptied, "recovery_live_without_deadline").values()) == {0}
    updates = [{"q": {}, "u": {"$unset": {"recoveryTime": ""}}, "multi": True}]
    store.database.command("update", schema.PROCESSES, updates=updates, bypassDocumentValidation=True)
    assert told(store, emptied, "recovery_live_without_deadline")[(schema.PROCESSES,)] == 2


def test_one_worker_counts_for_all(store: Store) -> None:
    assert [CensusTaker(store).take_if_due() for _ in range(3)] == [True, False, False]
    postponed(store, seconds=census.EVERY + 1)
    assert [CensusTaker(store).take_if_due() for _ in range(3)] == [True, False, False]


def test_a_worker_asks_seldom(store: Store) -> None:
    taker = CensusTaker(store)
    assert taker.take_if_due()
    postponed(store, hours=1)
    assert not taker.take_if_due()


def test_one_that_was_killed_in_the_middle_is_followed(store: Store) -> None:
    assert store.censuses.begin(60)
    assert not CensusTaker(store).take_if_due()
    postponed(store, seconds=61)
    assert CensusTaker(store).take_if_due()


def test_one_that_took_too_long_overwrites_none(store: Store) -> None:
    begun = store.censuses.begin(60)
    assert begun is not None
    postponed(store, seconds=61)
    make(store, "order", ProcessState.RUNNING, 1)
    assert CensusTaker(store).take_if_due()
    assert not store.censuses.save(Census(id=THE_ONE), begun, 60)
    last = store.censuses.last(60)
    assert last is not None and [line.count for line in last.processes] == [1]


def test_a_clock_that_ran_ahead_keeps_nobody_from_counting(store: Store) -> None:
    assert store.censuses.begin(365 * 86_400)
    assert CensusTaker(store).take_if_due()


def test_a_slow_one_is_followed_by_a_long_pause(store: Store) -> None:
    """It takes a fiftieth of the time."""
    clock = iter([1000.0, 1000.0, 1000.0, 1002.0])
    assert CensusTaker(store, lambda: next(clock)).take_if_due()
    postponed(store, seconds=99)
    assert not CensusTaker(store).take_if_due()
    postponed(store, seconds=2)
    assert CensusTaker(store).take_if_due()


def test_what_is_old_is_not_told(store: Store, emptied: Settings) -> None:
    make(store, "order", ProcessState.RUNNING, 1)
    assert CensusTaker(store).take_if_due()
    postponed(store, seconds=1000)
    assert told(store, emptied, "recovery_processes") == {}


def test_a_database_that_is_away(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(_: Any) -> None:
        raise StoreUnavailable("away")

    monkeypatch.setattr(Censuses, "count", away)
    assert not CensusTaker(store).take_if_due()


def test_types_without_end_are_cut(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another program may write anything: the largest stay, and what is no text is one type."""
    monkeypatch.setattr("recovery.store.views.metric_counts.TYPES", 2)
    for number in range(4):
        make(store, f"type{number}", ProcessState.RUNNING, number + 1)
    updates = [{"q": {"type": "type3"}, "u": {"$set": {"type": 7}}, "multi": True}]
    store.database.command("update", schema.PROCESSES, updates=updates, bypassDocumentValidation=True)
    assert [(line.type, line.count) for line in store.censuses.count()] == [("", 4), ("type2", 3)]


def test_running_processes_are_counted_from_the_index_alone(store: Store) -> None:
    make(store, "order", ProcessState.RUNNING, 50)
    make(store, "order", ProcessState.FINISHED, 50)
    store.database.command("profile", 2)
    Censuses(store.database).count()
    store.database.command("profile", 0)
    (running,) = store.database["system.profile"].find({"command.hint": "running"})
    assert (running["docsExamined"], running["keysExamined"]) == (0, 50)
