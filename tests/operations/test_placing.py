"""Where operations run: what is big is left to Spark if a worker serves it, and nobody waits for one that is gone."""

from __future__ import annotations

from datetime import timedelta

import pytest

from recovery import InputError
from recovery.operations import advance
from recovery.records import Operation, OperationState, Worker
from recovery.settings import Settings
from tests.operations.ordering import Ordering, adds_up
from tests.waiting import wait_until


@pytest.fixture
def world(emptied: Settings) -> Ordering:
    return Ordering(emptied.model_copy(update={"spark_from": 3}))


def serve_spark(world: Ordering, timeout: float = 60.0) -> None:
    """A worker that drives Spark tells that it lives."""
    world.store.workers.beat(Worker(id="spark", name="spark", host="", pid=1, pid_started=1, spark=True), timeout)


def begun(world: Ordering, operation: Operation) -> Operation:
    """After a worker has looked at it."""
    world.worker().run_once(5)
    return world.now(operation)


def test_what_is_big_is_left_to_spark(world: Ordering) -> None:
    world.orders(4)
    serve_spark(world)
    left = begun(world, world.ask("check"))
    assert (left.driven, left.state) == (True, OperationState.PLANNING), "no recovery worker took it"
    by_selection = begun(world, world.ask("check", "type:order"))
    assert by_selection.driven
    world.refunds(2)
    for more in ({"spark": False}, {"selection": "type:refund"}):
        assert world.bring_on(world.ask("check", **more)).state is OperationState.FINISHED, more


def test_without_a_worker_for_spark_workers_do_it(world: Ordering) -> None:
    world.orders(4)
    serve_spark(world, timeout=-1.0)  # one that is gone
    done = world.bring_on(world.ask("check"))
    assert done.state is OperationState.FINISHED and not done.driven
    with pytest.raises(InputError, match="no live worker serves the queue spark: start one"):
        world.ask("check", spark=True)


def test_what_nobody_in_spark_works_at_workers_go_on_with(world: Ordering, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not while a range is leased: then somebody is at it, and is noted down."""
    world.orders(4)
    serve_spark(world)
    operation = begun(world, world.ask("abort", "type:order", apply=True))
    assert operation.driven
    assert not advance._is_left_alone(world.app.resources, operation), "it has only begun"
    ranges = world.store.operation_ranges
    leased = ranges.lease(operation.id, operation.phase, "token", "executor", 60.0)
    assert leased is not None
    monkeypatch.setattr(advance, "LEFT_ALONE", timedelta(0))
    assert not advance._is_left_alone(world.app.resources, operation)
    wait_until(lambda: world.now(operation).attended_at, 5, "that somebody was seen")
    ranges.give_back(leased, None)
    wait_until(lambda: advance._is_left_alone(world.app.resources, world.now(operation)), 5, "nobody is at it")
    world.store.database["operations"].update_one({"_id": operation.id}, {"$set": {"recoveryTime": world.store.now()}})
    done = world.bring_on(operation, OperationState.FINISHED)
    assert done.spark is False and done.applied is not None and done.applied.done == 4
    adds_up(world, done)


def test_an_executor_ends_no_phase(world: Ordering) -> None:
    """What it has done last is for its driver to sum up, and to write."""
    world.orders(4)
    serve_spark(world)
    operation = begun(world, world.ask("check", spark=True))
    ranges, executor = world.store.operation_ranges, world.worker("driver")
    while ranges.how_many_open(operation.id, operation.phase):
        executor.work_once(operation.id)
    assert world.now(operation).state is OperationState.PLANNING


def test_one_driver_at_a_time(world: Ordering) -> None:
    """Whoever saves the operation meanwhile leaves it to him."""
    operation, stored = world.ask("check"), world.store.operations
    assert stored.drive(operation.id, "one", 60.0) and stored.drive(operation.id, "one", 60.0)
    assert not stored.drive(operation.id, "other", 60.0)
    assert stored.save(operation, 5.0) is not None, "as it was before anybody drove it"
    assert not stored.drive(operation.id, "other", 60.0)
    assert stored.drive(operation.id, "one", -1.0), "over, as if he was killed a minute ago"
    assert stored.drive(operation.id, "other", 60.0) and not stored.drive(operation.id, "one", 60.0)


@pytest.mark.parametrize(
    ("kind", "more", "told"),
    [
        ("abort", {"thorough": True}, "--thorough: is for check and repair; abort looks for no damage"),
        ("abort", {"parquet": "/found", "spark": True}, "--parquet /found: is for a check or repair in Spark"),
        ("check", {"parquet": "/found"}, "--parquet /found: is for a check or repair in Spark: give --spark"),
        ("check", {"parquet": "found", "spark": True}, "--parquet found: give the whole path"),
    ],
)
def test_what_can_not_be(world: Ordering, kind: str, more: dict[str, object], told: str) -> None:
    serve_spark(world)
    with pytest.raises(InputError, match=told):
        world.ask(kind, **more)
    assert world.store.operations.newest(1) == []
