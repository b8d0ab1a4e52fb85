"""Sweeps by the clock: each interval one, whoever asks for it and however often."""

from __future__ import annotations

from datetime import timedelta

import pytest

from recovery import InputError, sweep
from recovery.records import Operation, OperationState, Worker
from recovery.settings import Settings
from recovery.sweep import order_if_due
from tests.operations.ordering import Ordering

HOUR = 3600.0


@pytest.fixture
def world(emptied: Settings) -> Ordering:
    made = Ordering(emptied)
    made.orders(1)
    made.store.workers.beat(Worker(id="spark", name="spark", host="", pid=1, pid_started=1, spark=True), 60.0)
    return made


def ordered(world: Ordering) -> Operation | None:
    """As by a beat that was started a moment ago."""
    return order_if_due(world.app.resources, HOUR, repair=True)


def asked_before(world: Ordering, operation: Operation, seconds: float) -> None:
    at = world.store.now() - timedelta(seconds=seconds)
    world.store.database["operations"].update_one({"_id": operation.id}, {"$set": {"askedAt": at}})


def test_one_each_interval_however_often_beats_begin(world: Ordering) -> None:
    first = ordered(world)
    assert first is not None and (first.who, first.apply_at_once, first.spark) == (sweep.SCHEDULED, True, True)
    assert [ordered(world) for _ in range(3)] == [None] * 3
    world.store.operations.save(first.evolve(state=OperationState.FINISHED), None)
    assert ordered(world) is None, "it is over, but an hour is not"
    asked_before(world, first, HOUR)
    second = ordered(world)
    assert second is not None and second.id == first.id + 1


def test_none_beside_the_last_one(world: Ordering) -> None:
    first = ordered(world)
    assert first is not None
    asked_before(world, first, 2 * HOUR)
    assert ordered(world) is None, "it is under way"


def test_two_beats_at_once_order_one(world: Ordering, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both have seen that the last one is over; the other one orders first."""
    real, found = sweep.ask, list[Operation | None]()

    def paused(*given: object, **more: object) -> Operation:
        if not found:
            found.append(None)
            found[0] = ordered(world)
        return real(*given, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(sweep, "ask", paused)
    late = ordered(world)
    assert late is not None and found[0] is not None and late.id == found[0].id
    assert len(world.store.operations.newest(5)) == 1


def test_what_others_order_does_not_count(world: Ordering) -> None:
    world.ask("check")
    assert ordered(world) is not None


def test_without_a_worker_for_spark(world: Ordering) -> None:
    world.store.database["workers"].delete_many({})
    with pytest.raises(InputError, match="no live worker serves the queue spark"):
        ordered(world)
