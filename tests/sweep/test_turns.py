"""Operations that are driven in one Spark take turns, and one that fails holds up none of the others."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest
from pyspark.sql import SparkSession

from recovery import Recovery, operations
from recovery.engine import Resources
from recovery.errors import SweepFailed
from recovery.operations import OperationRequest
from recovery.records import Operation, OperationState, Phase
from recovery.retry.own_work import SPARK_JOB
from recovery.settings import Settings
from recovery.sweep import drive
from recovery.sweep.drive import Driver
from recovery.sweep.job import Work, Worked
from recovery.worker import operating as driving
from recovery.worker.operating import Driving
from tests.sweep.database import SOON, Database
from tests.sweep.shapes import finished
from tests.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("session")]
PROCESSES = 40


@pytest.fixture
def resources(settings: Settings, database: Database) -> Resources:
    for _ in range(PROCESSES):
        database.add(finished)
    return Resources.connect(settings)


@pytest.fixture
def driver(resources: Resources) -> Driver:
    return Driver(SparkSession.builder.getOrCreate().sparkContext, resources, "driver")


def ask(resources: Resources, **more: Any) -> Operation:
    return operations.start(
        resources, OperationRequest("check", everything=True, spark=True, here=True, **more), "a test"
    )


def state(resources: Resources, operation: Operation) -> OperationState:
    return operations.find(resources, operation.id).state


class Lifeline:
    """As much of a worker's as its driving needs."""

    class worker:
        id = "a worker"


@pytest.fixture
def served(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The thread of a worker that serves the queue spark, in this process and its session."""
    monkeypatch.setattr(driving, "LOOK_EVERY", 0.05)
    monkeypatch.setattr(drive, "ATTEND_EVERY", 0.2)
    made = Driving(Recovery(settings), Lifeline())  # type: ignore[arg-type]
    made.start()
    yield made
    made.stop()


@pytest.mark.usefixtures("served")
def test_a_long_one_lets_others_have_their_turn(resources: Resources, monkeypatch: pytest.MonkeyPatch) -> None:
    """At two processes a second it takes 20 s; the others come in between, and none is left alone."""
    monkeypatch.setattr(drive, "TURN_SECONDS", 0.5)
    long = ask(resources, rate=2.0)
    short = [ask(resources) for _ in range(2)]
    wait_until(lambda: all(state(resources, one) is OperationState.FINISHED for one in short), 20, "the short ones")
    assert state(resources, long) is OperationState.PLANNING
    assert operations.find(resources, long.id).attended_at is not None
    operations.set_rate(resources, long.id, None)
    wait_until(lambda: state(resources, long) is OperationState.FINISHED, 20, "the long one")
    planned = operations.find(resources, long.id).planned
    assert planned is not None and planned.processes == PROCESSES


def test_one_that_fails_has_its_turn_later(
    resources: Resources, served: Driving, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Driver.step

    def step(self: Driver, number: int, *, others_wait: bool = False) -> bool:
        if number == 1:
            raise SweepFailed("a test")
        return real(self, number, others_wait=others_wait)

    monkeypatch.setattr(Driver, "step", step)
    failing, other = ask(resources), ask(resources)
    assert failing.id == 1
    wait_until(lambda: state(resources, other) is OperationState.FINISHED, 20, "the other one")
    assert served._driver is not None, "in the same session"
    assert served._waiting() == []
    monkeypatch.setattr(driving, "OPERATION_IN_SPARK", SOON)
    monkeypatch.undo()
    served._later.clear()
    wait_until(lambda: state(resources, failing) is OperationState.FINISHED, 20, "the one that failed")


def test_what_others_have_leased_is_waited_for(
    resources: Resources, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may take their time; but nobody waits for ranges that nobody works at."""
    monkeypatch.setattr(drive, "SPARK_JOB", SOON)
    operation = ask(resources)
    while not operations.find(resources, operation.id).ready:
        assert driver.step(operation.id)
    ranges, leased = resources.store.operation_ranges, []
    while one := ranges.lease(operation.id, Phase.PLAN, "token", "another", 60.0):
        leased.append(one)
    for _ in range(SPARK_JOB.tries + 1):
        assert driver.step(operation.id)
    for one in leased:
        ranges.give_back(one, "no disk", 60.0)
    with pytest.raises(SweepFailed, match="operation 1 was interrupted: no disk"):
        for _ in range(SPARK_JOB.tries + 1):
            driver.step(operation.id)


def test_what_executors_had_that_are_gone_is_free_at_once(
    resources: Resources, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the end of the job: not after half a minute."""
    operation, real = ask(resources), drive.run

    def run(_cluster: Any, _tasks: int, work: Work) -> list[Worked]:
        ranges = resources.store.operation_ranges
        assert ranges.lease(operation.id, Phase.PLAN, "token", work.name, 600.0)
        monkeypatch.setattr(drive, "run", real)
        raise SweepFailed("the executor is gone")

    while not operations.find(resources, operation.id).ready:
        assert driver.step(operation.id)
    monkeypatch.setattr(drive, "run", run)
    monkeypatch.setattr(drive, "SPARK_JOB", SOON)
    driver.drive(operation.id)
    assert state(resources, operation) is OperationState.FINISHED


def test_a_job_without_executors_is_left_alone(
    resources: Resources, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody is told to attend to it, nor to what waits behind it, as long as no range is leased."""
    monkeypatch.setattr(drive, "ATTEND_EVERY", 0.02)
    began, come = threading.Event(), threading.Event()

    def run(*_: Any) -> list[Any]:
        began.set()
        assert come.wait(30)
        return []

    monkeypatch.setattr(drive, "run", run)
    monkeypatch.setattr(drive, "SPARK_JOB", SOON)
    operation, waits = ask(resources), ask(resources)
    while not operations.find(resources, operation.id).ready:
        assert driver.step(operation.id)
    ticks = counted_ticks(driver, monkeypatch)
    with drive.attended(resources, driver, lambda: [waits.id]):
        thread = threading.Thread(target=driver.step, args=[operation.id])
        thread.start()
        try:
            assert began.wait(10)
            # A look that was under way when it began may still hold it. Those before found nobody at work.
            before = ticks.count(False)
            wait_until(lambda: ticks.count(False) > before, 10, "that it was looked at")
            resources.store.catch_up(10)  # what was told before that is not yet what a majority has
            held = operations.find(resources, operation.id).driven_until
            seen = operations.find(resources, waits.id).attended_at
            wait_until(lambda: ticks.count(False) > before + 3, 10, "that it was looked at three times more")
            assert operations.find(resources, operation.id).driven_until == held
            assert operations.find(resources, waits.id).attended_at == seen
            assert resources.store.operation_ranges.lease(operation.id, Phase.PLAN, "token", "an executor", 60.0)
            wait_until(lambda: operations.find(resources, waits.id).attended_at != seen, 10, "that somebody is at work")
            wait_until(lambda: operations.find(resources, operation.id).driven_until != held, 10, "that it is held")
        finally:
            come.set()
            thread.join(10)


def counted_ticks(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """What each look of the thread came to."""
    ticks, hold = list[bool](), driver.hold

    def held() -> bool:
        ticks.append(hold())
        return ticks[-1]

    monkeypatch.setattr(driver, "hold", held)
    return ticks


def test_who_drives_it_here_holds_it_while_he_writes(
    resources: Resources, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `recovery sweep --here` does, however long a step takes: another driver would write over it."""
    monkeypatch.setattr(drive, "ATTEND_EVERY", 0.1)
    monkeypatch.setattr(drive, "DRIVEN", 1.0)
    operation, taken = ask(resources), list[bool]()
    monkeypatch.setattr(drive.sums, "are_wanted", lambda *_: True)

    def save(*_: Any) -> None:
        until = resources.store.now() + timedelta(seconds=1.5)
        wait_until(lambda: resources.store.now() > until, 10, "longer than others leave it to him")
        taken.append(resources.store.operations.drive(operation.id, "another", 60.0))

    monkeypatch.setattr(drive.sums, "save", save)
    driver.drive(operation.id)
    assert taken == [False] and state(resources, operation) is OperationState.FINISHED


def test_what_another_driver_is_at_is_left_to_him(resources: Resources, driver: Driver) -> None:
    operation = ask(resources)
    assert resources.store.operations.drive(operation.id, "another", 60.0)
    assert driver.step(operation.id)
    assert operations.find(resources, operation.id).cuts is None, "not a step further"
    assert resources.store.operations.drive(operation.id, "another", 0.0)
    driver.drive(operation.id)
    assert state(resources, operation) is OperationState.FINISHED
