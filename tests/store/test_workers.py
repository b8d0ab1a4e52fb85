"""What workers tell: that they live, what they polled, how their actors are set."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from bson import DatetimeMS, MaxKey

from recovery.limits import LONGEST, LONGEST_SILENCE, SILENCE_FAR_OFF
from recovery.records import QueueStatistics, ScannerRun, Worker
from recovery.store import Store
from recovery.store.views.overview import Overview
from tests.store.writing import is_close

WORKER = Worker(id="w1", name="$$NOW", host="h1", pid=1, pid_started=2, queues=("add", "$x"))


def test_a_beat_moves_the_deadline_and_keeps_the_start(store: Store) -> None:
    store.workers.beat(WORKER, 6)
    (first,) = store.workers.all()
    assert first.evolve(started_at=None, recovery_time=None) == WORKER
    assert is_close(first.started_at, store.now())
    assert is_close(first.recovery_time, store.now() + timedelta(seconds=6))
    store.workers.beat(WORKER, 60)
    (second,) = store.workers.all()
    assert second.started_at == first.started_at
    assert is_close(second.recovery_time, store.now() + timedelta(seconds=60))


FAR = datetime(9999, 12, 31, tzinfo=UTC)
DEADLINES: list[tuple[Any, bool]] = [
    (1, True), (LONGEST_SILENCE, True), (-1, False), (SILENCE_FAR_OFF + 60, False), (FAR, False),
    (DatetimeMS(2**63 - 1), False), (DatetimeMS(-(2**63)), False), ("9999", False), (None, False),
    (float("nan"), False), (MaxKey(), False), ([FAR], False),
]  # fmt: skip


@pytest.mark.parametrize(("deadline", "alive"), DEADLINES, ids=str)
def test_who_lives(store: Store, deadline: Any, alive: bool) -> None:
    """Everybody says the same: whose deadline is to come, and may be a worker's."""
    store.workers.beat(WORKER, 60)
    written = store.now() + timedelta(seconds=deadline + 0.9) if isinstance(deadline, int) else deadline
    store.database["workers"].update_one({}, {"$set": {"recoveryTime": written}}, bypass_document_validation=True)
    said = {
        "overview": bool(Overview(store.database).workers_alive()),
        "waiting": store.waiting.by_actor()["add"].workers == ("$$NOW",) if alive else bool(store.waiting.by_actor()),
        "not silent": not store.workers.silent(10),
    }
    assert said == dict.fromkeys(said, alive)
    seen = store.heartbeat_view.look("").deadlines
    found = store.workers.unchanged(seen)
    assert [*(worker.id for worker in found.records), *(damage.record for damage in found.damaged)] == ["w1"]
    store.workers.beat(WORKER, 60)
    assert len(store.workers.unchanged(seen)) == 0


@pytest.mark.parametrize("ran_at", [datetime.min.replace(tzinfo=UTC), DatetimeMS(-(2**63))], ids=str)
def test_a_scan_before_all_years_was_long_ago(store: Store, ran_at: Any) -> None:
    store.database["scanners"].insert_one({"_id": "graphs", "ranAt": ran_at})
    assert store.heartbeat_view.look("").scanned_ago == LONGEST
    store.database["scanners"].insert_one({"_id": "decisions", "ranAt": store.now()})
    assert 0 <= store.heartbeat_view.look("").scanned_ago < 60


def test_silence_is_told(store: Store) -> None:
    store.workers.beat(WORKER, -1)
    store.workers.beat(WORKER.evolve(id="w2", host="h2"), 60)
    assert [worker.id for worker in store.workers.silent(10)] == ["w1"]
    assert [worker.id for worker in store.heartbeat_view.look("h2").neighbours] == ["w2"]
    store.workers.remove(["w1", "none"])
    assert [worker.id for worker in store.workers.all()] == ["w2"]
    store.workers.beat(WORKER, 60)
    assert len(store.workers.all()) == 2, "a worker that was taken for dead comes back"


def test_the_youngest_message_taken_stays_known(store: Store) -> None:
    def taken(moment: datetime | None) -> datetime | None:
        store.queues.polled({"add": moment, "sum": None})
        statistics = store.queues.all()
        assert is_close(statistics["add"].polled_at, store.now())
        assert statistics["sum"].taken_queued_at is None
        return statistics["add"].taken_queued_at

    old, young = store.now() - timedelta(days=1), store.now()
    assert taken(None) is None
    assert taken(old) == old
    assert taken(young) == young
    assert taken(old) == taken(None) == young
    store.queues.polled({})


def test_a_time_that_is_still_to_come_is_not_believed_nor_kept(store: Store) -> None:
    """Somebody forged a message's id, or his clock was ahead; or an earlier version believed one."""
    now, queues = store.now(), store.database["queues"]
    for stored, told, kept in [
        (None, FAR, None), (FAR, FAR, None), (FAR, now, now), (now, FAR, now), ("9999", now, now),
    ]:  # fmt: skip
        spoilt = {"takenQueuedAt": stored, "foundEmptyAt": stored, "seenEmptyAt": stored}
        queues.replace_one({"_id": "add"}, spoilt, True, bypass_document_validation=True)
        store.queues.polled({"add": told})
        for _ in range(2):
            store.queues.seen_empty(["add"], told, timedelta())
        (found,) = queues.find({}, {"_id": False, "polledAt": False})
        assert found == dict.fromkeys(("takenQueuedAt", "foundEmptyAt", "seenEmptyAt"), kept), (stored, told)
    queues.replace_one({"_id": "add"}, {"takenQueuedAt": FAR})
    store.queues.polled({"add": None})
    assert queues.find_one({}, {"_id": False, "polledAt": False}) == {"takenQueuedAt": None}


@pytest.mark.parametrize("moment", [FAR, DatetimeMS(2**63 - 1), "9999", 7, {"$gt": 1}], ids=str)
def test_nor_is_one_that_stands_there(store: Store, moment: object) -> None:
    """Or what is no time at all: it hides no other queue, either."""
    odd = dict.fromkeys(("polledAt", "takenQueuedAt", "foundEmptyAt", "seenEmptyAt", "lostBefore"), moment)
    spoilt = [{"_id": "add", **odd}, {"_id": {"a": 1}}]
    store.database["queues"].insert_many(spoilt, bypass_document_validation=True)
    store.queues.polled({"sum": None})
    found = store.queues.all()
    assert found.keys() == {"add", "sum"}
    assert found["add"] == QueueStatistics(id="add")
    assert store.queues.polled_again(["sum", "add"], 10, "w") == ["add"]
    assert is_close(store.queues.all()["add"].polled_at, store.now())


def test_a_time_by_a_clock_that_is_a_little_ahead_is_read(store: Store) -> None:
    """What is written while a query waits is later than the query."""
    soon = store.now() + timedelta(seconds=0.9)
    store.database["queues"].insert_one({"_id": "add", "polledAt": soon})
    assert store.queues.all()["add"].polled_at == soon


def test_a_scanner_has_not_run_in_the_future(store: Store) -> None:
    store.scanners.note(ScannerRun(id="graphs", seconds=0.5), by_beat=False)
    assert is_close(store.scanners.all()["graphs"].ran_at, store.now())
    store.database["scanners"].update_many({}, {"$set": {"ranAt": FAR}})
    assert store.scanners.all() == {"graphs": ScannerRun(id="graphs", seconds=0.5)}


def test_a_queue_that_was_seen_empty_is_found_so_by_who_looks_later(store: Store) -> None:
    """When nothing that was taken from it by then can be in hand any more; however many look in between, and how
    often."""
    hand, first = timedelta(seconds=1), store.now() - timedelta(days=1)

    def known(moment: datetime) -> tuple[datetime | None, datetime | None]:
        store.queues.seen_empty(["add"], moment, hand)
        statistics = store.queues.all()["add"]
        assert statistics.polled_at is None, "nobody polls it for that"
        return statistics.found_empty_at, statistics.seen_empty_at

    assert known(first) == (None, first)
    for part in (0.0, 0.3, 0.6, 0.999):
        assert known(first + part * hand) == (None, first), "it would never come to be believed"
    second = first + hand
    assert known(second) == (first, second)
    assert known(second) == (first, second), "as another says who looked in the same moment"
    third = second + 10 * hand
    assert known(third) == (second, third)
    assert known(first) == (second, third), "as one says who was held up for long"
    assert known(store.now() + timedelta(hours=1)) == (second, third), "or asked a primary whose clock was ahead"
    store.queues.polled({"add": None})
    store.queues.seen_empty([], third + hand, hand)
    statistics = store.queues.all()["add"]
    assert (statistics.found_empty_at, statistics.seen_empty_at) == (second, third)
