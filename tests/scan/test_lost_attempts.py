"""What follows a lost attempt: another one at once, then after growing delays, or as the actor's strategy says."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from recovery.metrics.registry import ACTOR_WORK_TIMEOUTS
from recovery.records import Decision, DecisionState, LostAttempt, ProcessState, RetryState
from recovery.repair import lost_attempts
from recovery.retry import Backoff, Request, RetryAction
from recovery.retry.reasons import Reason
from recovery.scan import rescue
from tests.scan.making import overdue, process_of, scanner, start_of
from tests.store import single
from tests.world import World

WORKING, QUEUED, DELAYED = DecisionState.WORKING, DecisionState.QUEUED, DecisionState.DELAYED
NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)
KILLED = LostAttempt(attempt=4, how="was ended by signal 9 (SIGKILL)")


def make(world: World, **settings: Any) -> None:
    world.app.actors.clear()
    world.app.process("add", **settings)(lambda: "added")
    world.tell()
    world.store.preferences.invalidate()


def get(world: World, number: int = 0) -> Decision:
    found = world.store.decisions.get(start_of(number))
    assert found is not None
    return found


def delay(world: World, number: int = 0) -> float:
    """Seconds from now until a delayed task is due."""
    decision = get(world, number)
    assert decision.state is DELAYED and decision.recovery_time is not None
    assert decision.eta == decision.recovery_time and decision.worker is None
    return (decision.recovery_time - world.store.now()).total_seconds()


def counted() -> float:
    return float(ACTOR_WORK_TIMEOUTS.labels("add")._value.get())


class Strategy:
    """Answers the same each time, and notes what it was asked."""

    def __init__(self, action: RetryAction) -> None:
        self.action = action
        self.asked: list[tuple[int, bool, str]] = []

    async def retry_after(self, request: Request, reason: Reason) -> RetryAction:
        self.asked.append((request.retry_attempts, request.idempotent, reason.name))
        return self.action


def test_the_first_loss_is_followed_by_another_attempt_at_once(world: World) -> None:
    make(world)
    overdue(world, WORKING)
    scanner(world, "decisions").run_once()
    assert (get(world).state, get(world).timeouts) == (QUEUED, 1)


@pytest.mark.parametrize(("timeouts", "seconds"), [(1, 1), (2, 2), (3, 4), (4, 8), (5, 16), (6, 30), (8, 30)], ids=str)
def test_further_losses_are_followed_by_growing_delays(world: World, timeouts: int, seconds: float) -> None:
    make(world)
    overdue(world, WORKING, timeouts=timeouts)
    before, was = counted(), get(world).pass_key
    scanner(world, "decisions").run_once()
    assert seconds - 1 < delay(world) <= seconds
    assert get(world).timeouts == timeouts + 1
    assert get(world).pass_key != was, "a late result of the lost attempt has an old pass"
    assert counted() == before + 1


def test_an_actor_sets_the_delays(world: World) -> None:
    make(world, lost_initial=10, lost_coefficient=3, lost_maximum="1m")
    for number, timeouts in enumerate((1, 2, 3)):
        overdue(world, WORKING, timeouts=timeouts, first=number)
    scanner(world, "decisions").run_once()
    assert [round(delay(world, number)) for number in range(3)] == [10, 30, 60]


def test_the_count_begins_anew_when_an_attempt_ends(world: World) -> None:
    failures: list[BaseException] = [ConnectionRefusedError(111, "away")]
    world.app.actors.clear()

    @world.app.process("add", retry=Backoff(initial=1, jitter=(0, 0)))
    def add() -> str:
        if failures:
            raise failures.pop()
        return "added"

    process_id = world.start(add)
    key = f"{process_id}/start"
    world.store.database["decisions"].update_one({"_id": key}, {"$set": {"timeouts": 3, "workersLost": 2}})
    world.pump()
    decision = world.store.decisions.get(key)
    assert decision is not None
    assert (decision.state, decision.timeouts, decision.workers_lost) == (DELAYED, 0, None)


def test_a_loss_with_the_whole_worker_does_not_count(world: World) -> None:
    """Nobody saw its process end: the machine is gone."""
    make(world)
    overdue(world, WORKING, timeouts=1, worker="gone#1")
    before = counted()
    rescue(world.app.resources, scanner(world, "decisions").repairer, ["gone"])
    decision = get(world)
    assert (decision.state, decision.timeouts, decision.workers_lost) == (QUEUED, 1, 1)
    assert counted() == before


def test_a_loss_of_its_process_alone_counts(world: World) -> None:
    make(world)
    overdue(world, WORKING, timeouts=1, worker="parent#1", attempts=4, lost_attempt=KILLED)
    rescue(world.app.resources, scanner(world, "decisions").repairer, ["parent#1"])
    assert 0 < delay(world) <= 1
    assert (get(world).timeouts, get(world).workers_lost) == (2, None)


def test_a_task_that_ends_its_machine_each_time_has_an_end(world: World) -> None:
    make(world, max_work_timeouts=2)
    overdue(world, WORKING, worker="gone#1", workers_lost=5)
    rescue(world.app.resources, scanner(world, "decisions").repairer, ["gone"])
    error = world.process(process_of(0)).error
    assert error is not None
    assert (error.message, error.reason) == (
        "add was lost with 6 workers (3 for each of max_work_timeouts)", "WORKER_LOST",
    )  # fmt: skip


def test_of_a_batch_one_loss_is_counted(world: World) -> None:
    """One of its tasks had begun, and nobody knows which."""
    make(world)
    overdue(world, WORKING, 5, worker="gone#1", in_batch=True)
    before = counted()
    rescue(world.app.resources, scanner(world, "decisions").repairer, ["gone"])
    assert {get(world, number).state for number in range(5)} == {QUEUED}
    assert {get(world, number).timeouts for number in range(5)} == {0}
    assert counted() == before + 1


@pytest.mark.parametrize(
    ("lost", "reason"), [({}, "WORK_TIMEOUT"), ({"attempts": 4, "lost_attempt": KILLED}, "WORKER_LOST")]
)
def test_the_actors_strategy_is_asked_about_further_losses(world: World, lost: dict[str, Any], reason: str) -> None:
    strategy = Strategy(RetryAction(50))
    make(world, retry=strategy)
    overdue(world, WORKING, timeouts=2, **lost)
    scanner(world, "decisions").run_once()
    assert strategy.asked == [(2, True, reason)]
    assert 49 < delay(world) <= 50


def test_it_is_told_of_retries_before(world: World) -> None:
    strategy = Strategy(RetryAction.no_retry())
    make(world, retry=strategy)
    retry = RetryState(
        count=4, cycle=4, since=NEW_YEAR, until=NEW_YEAR, failed_at=NEW_YEAR, attempt=1, pass_key="older", code=21001,
        reason="NODE_NOT_AVAILABLE", kind="ConnectionRefusedError", message="away",
    )  # fmt: skip
    overdue(world, WORKING, timeouts=2, retry=retry)
    scanner(world, "decisions").run_once()
    assert strategy.asked == [(6, True, "WORK_TIMEOUT")]


def test_it_is_not_asked_about_the_first(world: World) -> None:
    strategy = Strategy(RetryAction(50))
    make(world, retry=strategy)
    overdue(world, WORKING)
    scanner(world, "decisions").run_once()
    assert (strategy.asked, get(world).state) == ([], QUEUED)


def test_a_strategy_that_wants_no_retry_ends_the_task(world: World) -> None:
    make(world, retry=Strategy(RetryAction.no_retry()))
    overdue(world, WORKING, timeouts=2)
    scanner(world, "decisions").run_once()
    error = world.process(process_of(0)).error
    assert error is not None
    assert error.message == "add lost 3 attempts, and the strategy Strategy wants no retry"
    assert (error.code, error.reason) == (40001, "WORK_TIMEOUT")


@pytest.mark.parametrize("action", [RetryAction(50), RetryAction(0), RetryAction.no_retry()])
def test_what_is_not_to_be_run_again_goes_through_the_strategy_too(world: World, action: RetryAction) -> None:
    strategy = Strategy(action)
    make(world, retry=strategy, restart_after_work_timeout=False, idempotent=False)
    overdue(world, WORKING)
    scanner(world, "decisions").run_once()
    assert strategy.asked == [(0, False, "WORK_TIMEOUT")]
    if action.duration is None:
        assert world.process(process_of(0)).state is ProcessState.BROKEN
    else:
        assert get(world).state is (DELAYED if action.duration else QUEUED)


def test_without_a_strategy_it_ends(world: World) -> None:
    make(world, restart_after_work_timeout=False)
    overdue(world, WORKING)
    scanner(world, "decisions").run_once()
    error = world.process(process_of(0)).error
    assert error is not None and error.reason == "WORK_TIMEOUT"


def test_a_strategy_of_the_task_itself_is_asked(world: World) -> None:
    strategy = world.app.strategy("mine", Strategy(RetryAction(50)))
    make(world)
    process_id = world.start(world.app.actors["add"].options(retry=strategy))
    key = f"{process_id}/start"
    single.claim(world.store, "add", key, str(world.store.decisions.get(key).pass_key), "w#1", 60)  # type: ignore[union-attr]
    past = world.store.now() - timedelta(seconds=5)
    world.store.database["decisions"].update_one({"_id": key}, {"$set": {"timeouts": 1, "recoveryTime": past}})
    scanner(world, "decisions").run_once()
    assert strategy.asked == [(1, True, "WORK_TIMEOUT")]  # type: ignore[attr-defined]


def test_a_strategy_that_hangs_does_not_stop_the_scanner(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is left to itself after a while, and not asked again while it hangs; the settings decide."""
    monkeypatch.setattr(lost_attempts, "ASK_TIMEOUT", 0.1)
    released = threading.Event()

    class Hangs:
        async def retry_after(self, request: Request, reason: Reason) -> RetryAction:
            del request, reason
            released.wait(30)  # not `await`: nothing can cancel it
            return RetryAction(50)

    make(world, retry=Hangs())
    overdue(world, WORKING, timeouts=1)
    running = scanner(world, "decisions")
    running.run_once()
    assert 0 < delay(world) <= 1
    assert "retry strategies did not answer within 0.1 s: 1 lost attempts are judged by their settings" in caplog.text
    overdue(world, WORKING, timeouts=1, first=1)
    running.run_once()
    assert 0 < delay(world, 1) <= 1
    assert "a retry strategy still hangs" in caplog.text
    released.set()
