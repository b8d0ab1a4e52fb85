"""Retries that are due before the next scan: they wait in their slot, and are counted with the next write."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable
from threading import Event, Thread
from typing import Any

import couchbase.exceptions as sdk
import pytest

from recovery import Backoff, BestEffort
from recovery.engine.run.in_place import SlotWait
from recovery.records import Decision, DecisionState, ProcessState
from recovery.records.ids import new_pass
from tests.engine.test_retry import pass_by
from tests.faults import Died
from tests.waiting import wait_until
from tests.world import Mortal, World

ROUNDS = 5
"""Measurements at most: other programs may take the machine during one."""
NUMBERS = itertools.count()
LOCKED = sdk.DocumentLockedException(message="locked")
MOVED = sdk.CouchbaseException(message="moved", context=sdk.KeyValueErrorContext(status_code=0x07))


class Failing:
    """A function that raises an error a number of times, and notes when it was called and when it raised."""

    def __init__(self, times: int, error: BaseException) -> None:
        self.times, self.error = times, error
        self.called: list[float] = []
        self.raised: list[float] = []

    def __call__(self) -> str:
        self.called.append(time.monotonic())
        if len(self.called) <= self.times:
            self.raised.append(time.monotonic())
            raise self.error
        return "done"

    @property
    def waits(self) -> list[float]:
        """Seconds from each failure to the next call."""
        return [again - failed for failed, again in zip(self.raised, self.called[1:], strict=False)]


def start(world: World, function: Callable[[], Any], **settings: Any) -> str:
    """Start a process of one task, and run its first attempt."""

    def step() -> Any:
        return function()

    process_id = world.start(world.app.process("order", **settings)(step))
    world.pump()
    return process_id


def only(world: World, process_id: str) -> Decision:
    decision = world.store.decisions.get(f"{process_id}/start")
    assert decision is not None
    return decision


def test_a_retry_that_is_due_before_the_next_scan_waits_in_its_slot(world: World) -> None:
    failing = Failing(3, LOCKED)
    process_id = start(world, failing, retry=BestEffort())
    assert world.process(process_id).state is ProcessState.FINISHED, "without a scan"
    decision = only(world, process_id)
    assert decision.attempts == 1
    assert decision.retry is not None
    assert (decision.retry.count, decision.retry.cycle, decision.retry.code) == (3, 3, 26003)


CURVES = {
    "a calculator of its own": (LOCKED, BestEffort(lambda retries: 0.01 * (retries + 1)), [0.01, 0.02, 0.03]),
    "best effort": (LOCKED, BestEffort(), [0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.5, 0.5]),
    "controlled back-off": (MOVED, None, [0.001, 0.01, 0.05, 0.1, 0.5]),
}


@pytest.mark.parametrize("name", CURVES)
def test_the_delays_of_a_curve(world: World, name: str) -> None:
    """Never early. In the median late by at most a fifth of the delay or 5 ms, whichever is larger."""
    medians: list[float] = []
    while not medians or (min(medians) > 1 and len(medians) < ROUNDS):
        late = [share for _ in range(3) for share in lateness(world, name)]
        print("late, in what is allowed:", " ".join(f"{share:.2f}" for share in sorted(late)))
        medians.append(statistics.median(late))
    assert min(medians) <= 1, medians


def lateness(world: World, name: str) -> list[float]:
    """How late each retry of a curve was, in what is allowed."""
    error, strategy, delays = CURVES[name]
    failing = Failing(len(delays), error)
    actor = f"order{next(NUMBERS)}"
    process_id = world.start(world.app.process(actor, retry=strategy)(lambda: failing()))
    world.pump()
    assert world.process(process_id).state is ProcessState.FINISHED
    assert len(failing.waits) == len(delays)
    assert all(wait >= delay for wait, delay in zip(failing.waits, delays, strict=True)), failing.waits
    return [(wait - delay) / max(0.2 * delay, 0.005) for wait, delay in zip(failing.waits, delays, strict=True)]


def test_the_controlled_back_off_ends_at_a_second_which_waits_in_the_record(world: World) -> None:
    failing = Failing(100, MOVED)
    process_id = start(world, failing, retry=None)
    assert len(failing.called) == 6
    for _ in range(2):
        retry, due = only(world, process_id).retry, only(world, process_id).recovery_time
        assert retry is not None and due is not None
        assert 1 <= (due - retry.failed_at).total_seconds() < 1.5
        pass_by(world, 2)
        world.scan()
        world.pump()
    assert len(failing.called) == 8


def test_two_seconds_in_all_then_it_waits_in_its_record(world: World) -> None:
    failing = Failing(100, LOCKED)
    began = time.monotonic()
    process_id = start(world, failing, retry=BestEffort())
    assert 1.5 <= time.monotonic() - began < 3
    decision = only(world, process_id)
    assert decision.state is DecisionState.DELAYED
    assert decision.worker is None
    assert decision.retry is not None
    assert decision.retry.count == len(failing.called) == 12, "11 in its slot, and the one that waits"


def test_a_delay_of_a_scan_interval_waits_in_its_record(world: World) -> None:
    failing = Failing(1, LOCKED)
    interval = world.settings.scan_interval
    process_id = start(world, failing, retry=Backoff(initial=interval, coefficient=1, jitter=(0, 0), maximum=interval))
    assert (only(world, process_id).state, len(failing.called)) == (DecisionState.DELAYED, 1)


def test_an_error_that_is_always_retried_is_so_with_retry_off(world: World) -> None:
    process_id = start(world, Failing(2, MOVED), retry=None, idempotent=False)
    assert world.process(process_id).state is ProcessState.FINISHED
    retry = only(world, process_id).retry
    assert retry is not None and (retry.count, retry.reason) == (2, "KV_NOT_MY_VBUCKET")


def test_an_error_that_is_always_retried_is_exhausted_after_the_total_duration(world: World) -> None:
    process_id = start(world, Failing(100, MOVED), retry=None, retry_total="1s", retry_initial="1s")
    assert world.process(process_id).state is ProcessState.BROKEN
    error = world.process(process_id).error
    assert error is not None and (error.code, error.exhausted) == (40005, 26001)


def test_a_failure_after_retries_in_place_ends_the_task_with_their_count(world: World) -> None:
    errors: list[BaseException] = [LOCKED, LOCKED, ValueError("no")]

    def step() -> None:
        raise errors.pop(0)

    process_id = start(world, step, retry=BestEffort())
    assert world.process(process_id).state is ProcessState.BROKEN
    decision = only(world, process_id)
    assert decision.retry is not None and decision.retry.count == 2


def test_it_is_given_up_when_the_claim_is_lost(world: World) -> None:
    """Somebody else requeues the task while it waits. The heartbeat before the next call finds that out."""
    failing = Failing(1, LOCKED)

    def step() -> str:
        decisions = world.store.database["decisions"]
        if not failing.called:
            requeued = {"$set": {"state": "queued", "pass": new_pass()}, "$unset": {"worker": ""}}
            decisions.update_one({"actor": "order"}, requeued)
        return failing()

    process_id = start(world, step, retry=BestEffort(lambda _: 0.6))
    assert len(failing.called) == 1, "it was not called again under the claim that it lost"
    assert only(world, process_id).retry is None
    assert world.bring_to_end(process_id).state is ProcessState.FINISHED


def test_a_heartbeat_gives_the_next_call_its_time(world: World) -> None:
    """With a worker_timeout of a second each of the waits is followed by a heartbeat."""
    deadlines: list[Any] = []

    def step() -> str:
        deadlines.append(world.store.database["decisions"].find_one({"actor": "order"})["recoveryTime"])
        if len(deadlines) < 4:
            raise LOCKED
        return "done"

    process_id = start(world, step, retry=BestEffort(lambda _: 0.4), worker_timeout=1, auto_heartbeat=False)
    assert world.process(process_id).state is ProcessState.FINISHED
    assert deadlines == sorted(set(deadlines)), "each is later than the one before"


def test_a_function_that_fails_late_keeps_its_claim_while_it_waits(world: World) -> None:
    """Each call takes 0.7 s of a worker_timeout of a second, and each wait 0.6 s. A scanner looks all the time."""
    failing, over = Failing(3, LOCKED), Event()

    def step() -> str:
        begun = time.monotonic()
        wait_until(lambda: time.monotonic() > begun + 0.7, 10, "most of its time is over")
        return failing()

    def scan() -> None:
        while not over.wait(0.05):
            world.scan()

    scanner = Thread(target=scan)
    scanner.start()
    try:
        process_id = start(world, step, retry=BestEffort(lambda _: 0.6), worker_timeout=1)
    finally:
        over.set()
        scanner.join()
    assert world.process(process_id).state is ProcessState.FINISHED
    decision = only(world, process_id)
    assert (decision.attempts, decision.timeouts) == (1, 0)
    assert decision.retry is not None and decision.retry.count == 3


def test_a_kill_loses_only_the_count(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    failing = Failing(2, LOCKED)
    waits: list[float] = []

    def die(_self: SlotWait, delay: float, _failed_at: float) -> bool:
        waits.append(delay)
        if len(waits) == 2:
            raise Died
        return True

    monkeypatch.setattr(SlotWait, "wait", die)
    with pytest.raises(Died):
        start(world, failing, retry=BestEffort(lambda _: 0.3), worker_timeout=0.4)
    monkeypatch.undo()
    held = only(world, world.store.database["processes"].find_one()["_id"])
    assert (held.state, held.attempts, held.retry) == (DecisionState.WORKING, 1, None)
    assert world.bring_to_end(held.process_id).state is ProcessState.FINISHED


def test_a_worker_that_was_told_to_end_does_not_wait(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Mortal, "takes_more", False)
    process_id = start(world, Failing(1, LOCKED), retry=BestEffort(lambda _: 0.3))
    assert only(world, process_id).state is DecisionState.DELAYED
