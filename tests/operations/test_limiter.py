"""The limiter of an operation: what passes in all, however many ask, and while the rate is changed."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from recovery import operations
from recovery.operations.pages import Hold
from recovery.records import Operation, OperationState, Phase
from recovery.settings import Settings
from tests.operations.ordering import Ordering
from tests.waiting import wait_until

RUNNING = OperationState.RUNNING


@pytest.fixture
def world(emptied: Settings) -> Ordering:
    return Ordering(emptied)


@pytest.fixture
def slow(world: Ordering) -> Operation:
    """One that runs, at one process a second."""
    world.orders(3)
    operation = world.bring_on(world.ask("abort", "state:running"))
    operations.set_rate(world.app.resources, operation.id, 1.0)
    return operations.apply(world.app.resources, operation.id)


def turns(world: Ordering, operation: Operation, count: int) -> list[int]:
    found = [world.store.operations.take_turn(operation.id, RUNNING, 100) for _ in range(count)]
    return [round(turn.seconds) for turn in found if turn is not None]


def test_many_who_ask_wait_for_each_other(world: Ordering, slow: Operation) -> None:
    assert turns(world, slow, 4) == [0, 100, 200, 300]


def test_who_waits_for_a_slow_rate_feels_a_higher_one(world: Ordering, slow: Operation) -> None:
    assert turns(world, slow, 2) == [0, 100]
    operations.set_rate(world.app.resources, slow.id, 100.0)
    assert turns(world, slow, 3) == [0, 1, 2], "what was promised at the old rate is forgotten"


def test_whoever_saves_it_leaves_the_limiter_alone(world: Ordering, slow: Operation) -> None:
    """He may have read it before anybody asked the limiter."""
    before = world.now(slow)
    assert before.free_at is None
    assert turns(world, slow, 2) == [0, 100]
    assert world.store.operations.save(before, 5.0) is not None
    assert turns(world, slow, 1) == [200]


@pytest.mark.parametrize("rate", [1000.0, None])
def test_who_is_waiting_feels_another_rate(world: Ordering, slow: Operation, rate: float | None) -> None:
    while not world.now(slow).ready:
        world.advance(slow)
    leased = world.store.operation_ranges.lease(slow.id, Phase.APPLY, "token", "worker", 30.0)
    assert leased is not None and turns(world, slow, 1) == [0]
    ending = threading.Event()
    hold = Hold(world.app.resources, world.now(slow), leased, ending)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(hold.take_turn, 100)
        wait_until(lambda: turns(world, slow, 1)[0] >= 200, 5, "it to wait for 100 s")
        operations.set_rate(world.app.resources, slow.id, rate)
        try:
            assert waiting.result(timeout=10) == (rate or 0.0)
        finally:
            ending.set()


@pytest.mark.parametrize("kind", ["abort", "repair", "collect", "set_idle_timeout"])
def test_a_plan_is_made_as_fast_as_it_goes(world: Ordering, kind: str) -> None:
    """At one process a second it would take 40 s. The rate holds once the plan is applied."""
    world.orders(40)
    more = {"idle_timeout": 600.0} if kind == "set_idle_timeout" else {}
    operation = world.ask(kind, "type:order", rate=1.0, **more)
    began = world.store.now()
    planned = world.bring_on(operation)
    assert planned.planned is not None and planned.planned.processes == 40
    assert (world.store.now() - began).total_seconds() < 10
    assert planned.free_at is None or planned.free_at <= world.store.now(), "nobody waits for what was planned"


def test_a_repair_is_planned_by_ranges_whatever_its_rate(world: Ordering) -> None:
    operation = world.ask("repair", rate=1.0)
    assert operation.pace is None
    assert operation.evolve(phase=Phase.APPLY).pace == 1.0


def test_a_check_is_made_at_its_rate(world: Ordering) -> None:
    """It is nothing but its plan, so its rate is how an operator spares the database."""
    world.orders(3)
    operation = world.ask("check", rate=2.0)
    assert operation.pace == 2.0
    began = world.store.now()
    assert world.bring_on(operation).planned is not None
    assert (world.store.now() - began).total_seconds() >= 0.5
