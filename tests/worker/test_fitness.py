"""When a slot counts as unfit, and what its worker makes of it."""

from __future__ import annotations

import pytest

from recovery.errors import DamagedRecord, RecordInvalid, StoreDenied
from recovery.retry.own_work import UNFIT_WORKER
from recovery.worker.slots import fitness
from recovery.worker.slots.fitness import LIMIT, Fitness

ERROR = FileNotFoundError(2, "no folder")


def fail(slots: Fitness, *tasks: str) -> None:
    for task in tasks:
        slots.was_not_done(task, f"pass of {task}", ERROR)


def test_a_slot_is_unfit_after_tasks_in_a_row_that_it_could_not_run() -> None:
    slots = Fitness()
    fail(slots, "a", "b")
    slots.was_done()
    fail(slots, "c", "d", "d")
    assert not slots.is_unfit, "one task that fails again and again may be to blame itself"
    fail(slots, "e")
    slots.was_not_done("e", None, ERROR)  # noted once more, by who does not know its pass
    assert slots.is_unfit
    assert slots.take_unrun() == {"c": "pass of c", "d": "pass of d", "e": "pass of e"}
    assert not slots.is_unfit and slots.take_unrun() == {}


def test_what_a_server_or_a_record_is_to_blame_for_does_not_count() -> None:
    slots = Fitness()
    for number, error in enumerate(
        [DamagedRecord("Decision", "p/t", "odd"), RecordInvalid("refused"), StoreDenied("no")]
    ):
        slots.was_not_done(str(number), None, error)
    assert not slots.is_unfit


def test_what_may_not_be_given_back_is_left_to_its_deadline() -> None:
    slots = Fitness()
    for number in range(LIMIT):
        slots.was_not_done(str(number), None, ERROR)
    assert slots.is_unfit and slots.take_unrun() == {}


def test_a_worker_pauses_after_the_second_slot_in_a_row_and_longer_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(fitness.time, "monotonic", lambda: now)
    slots = Fitness()
    slots.ended_unfit()
    assert slots.may_take()
    for pause in (2.0, 4.0, 8.0):
        slots.ended_unfit()
        assert not slots.may_take()
        now += pause - 0.1
        assert not slots.may_take()
        now += 0.2
        assert slots.may_take()
    for _ in range(300):
        slots.ended_unfit()
    now += UNFIT_WORKER.policy.maximum
    assert slots.may_take()
    slots.was_done()
    slots.ended_unfit()
    assert slots.may_take(), "a task was done in between"


def test_it_is_reported_until_tasks_are_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(fitness.time, "monotonic", lambda: now)
    slots = Fitness()
    assert slots.report() is None
    fail(slots, "a", "b", "c")
    slots.ended_unfit()
    now += 10 * fitness.RECENT
    report = slots.report()
    assert report is not None and report.in_a_row == 1 and report.reason.endswith("no folder")
    slots.was_done()
    assert slots.report() is None
