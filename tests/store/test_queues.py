"""What workers tell of queues: each in one record of its own, read as one, and kept when a worker is gone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from recovery.records import QueueStatistics, Worker
from recovery.store import Store

FAR = datetime(2999, 1, 1, tzinfo=UTC)


def told(queue: str, polled: datetime | None, taken: datetime | None = None) -> QueueStatistics:
    return QueueStatistics(id=queue, polled_at=polled, taken_queued_at=taken)


def poll(store: Store, name: str, queues: list[QueueStatistics]) -> None:
    store.workers.beat(Worker(id=name, name=name, host="", pid=1, pid_started=1, polls=tuple(queues)), 60)


@pytest.fixture
def now(store: Store) -> datetime:
    return store.now()


def test_the_latest_of_all_workers_and_of_the_record_counts(store: Store, now: datetime) -> None:
    old, older = now - timedelta(minutes=1), now - timedelta(minutes=2)
    store.queues.polled({"add": None})
    store.database["queues"].update_one({}, {"$set": {"polledAt": older, "takenQueuedAt": old}})
    store.queues.seen_empty(["add"], older, timedelta())
    poll(store, "one", [told("add", old, older), told("sum", older)])
    poll(store, "two", [told("sum", now, old)])
    assert store.queues.all() == {
        "add": QueueStatistics(id="add", polled_at=old, taken_queued_at=old, seen_empty_at=older),
        "sum": QueueStatistics(id="sum", polled_at=now, taken_queued_at=old),
    }
    assert store.queues.polled_within(30) == {"sum"}
    assert store.queues.polled_within(90) == {"add", "sum"}


def test_what_a_worker_tells_takes_the_place_of_what_it_told(store: Store, now: datetime) -> None:
    poll(store, "one", [told("add", now - timedelta(minutes=1))])
    poll(store, "one", [told("add", now)])
    assert store.queues.all() == {"add": told("add", now)}
    assert store.database["queues"].count_documents({}) == 0, "one write, whatever it polls"


def test_what_who_is_gone_told_is_kept(store: Store, now: datetime) -> None:
    old = now - timedelta(minutes=1)
    poll(store, "one", [told("add", old, old), told("sum", now)])
    poll(store, "two", [told("add", now)])
    before = store.queues.all()
    assert store.forget_workers(["one", "never"]) == 1
    assert store.queues.all() == before
    assert [one.id for one in store.workers.all()] == ["two"]


def test_a_time_to_come_is_neither_believed_nor_kept(store: Store, now: datetime) -> None:
    poll(store, "one", [told("add", now, FAR), told("sum", FAR, now)])
    expected = {"add": told("add", now), "sum": told("sum", None, now)}
    assert store.queues.all() == expected
    assert store.queues.polled_within(1e6) == {"add"}
    store.queues.fold(["one"])
    assert store.queues.all() == expected


@pytest.mark.parametrize("queues", [7, None, "x", [7, {"a": 1}, {"_id": 3}], {"_id": "x", "polledAt": "soon"}], ids=str)
def test_what_another_program_made_of_a_record(store: Store, now: datetime, queues: Any) -> None:
    poll(store, "one", [told("add", now)])
    spoilt = {"_id": "two", "polls": queues}
    store.database["workers"].insert_one(spoilt, bypass_document_validation=True)
    assert store.queues.all() == {"add": told("add", now)}
    assert store.queues.polled_within(10) == {"add"}
    store.forget_workers(["one", "two"])
    assert store.queues.all() == {"add": told("add", now)}


def test_polled_again_is_told_to_the_first_who_asks(store: Store, now: datetime) -> None:
    asleep = now - timedelta(minutes=1)
    poll(store, "one", [told("add", asleep), told("sum", asleep)])
    poll(store, "two", [told("sum", now)])
    assert store.queues.polled_again(["add", "sum", "never"], 10, "three") == ["add"]
    assert store.queues.polled_again(["add", "sum", "never"], 10, "three") == []


def test_a_forgotten_queue_is_told_of_no_more(store: Store, now: datetime) -> None:
    poll(store, "one", [told("add", now), told("sum", now)])
    store.queues.seen_empty(["add"], now, timedelta())
    store.queues.remove("add")
    assert store.queues.all().keys() == {"sum"}
