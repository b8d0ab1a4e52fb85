"""Calls that are tried again where they stand, and the breaker that leaves a server alone."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pymongo import errors as of_pymongo

from recovery.retry import BestEffort, Reason, Request, RetryAction, ServerCall
from recovery.retry.breaker import CircuitBreaker, CircuitOpen, State
from recovery.retry.in_place import call, guarded
from recovery.retry.strategies import Until, stop_after_attempts
from tests.waiting import wait_until


def failing(times: int, error: Exception) -> Callable[[], str]:
    left = [error] * times

    def step() -> str:
        if left:
            raise left.pop()
        return "done"

    return step


def test_what_passes_is_tried_again_and_waits_as_the_strategy_says() -> None:
    waited: list[float] = []
    request = ServerCall("ask", BestEffort())
    assert call(failing(3, ConnectionRefusedError()), request, wait=waited.append) == "done"
    assert (waited, request.retry_attempts) == ([0.001, 0.002, 0.004], 3)


@pytest.mark.parametrize(
    ("error", "request_"),
    [
        (ValueError("wrong"), ServerCall("ask", BestEffort(), idempotent=True)),
        (ConnectionResetError(), ServerCall("write", BestEffort())),
        (ConnectionRefusedError(), ServerCall("ask", Until(stop_after_attempts(0), BestEffort()))),
    ],
    ids=["does not pass", "in flight, and not idempotent", "the strategy stops"],
)
def test_what_is_not_tried_again_is_raised(error: Exception, request_: ServerCall) -> None:
    waited: list[float] = []
    with pytest.raises(type(error)):
        call(failing(1, error), request_, wait=waited.append)
    assert waited == []


def test_at_its_deadline_it_is_not_sent_again() -> None:
    waited: list[float] = []
    sent: list[int] = []

    def step() -> None:
        sent.append(1)
        raise ConnectionRefusedError

    with pytest.raises(ConnectionRefusedError):
        call(step, ServerCall("ask", BestEffort(lambda _: 9.0), seconds=2.5, clock=lambda: 7.0), wait=waited.append)
    assert (waited, sent) == ([2.5], [1])


def test_what_a_server_asks_to_wait_is_not_waited_past_the_deadline() -> None:
    class Unavailable(Exception):
        status, headers = 503, {"Retry-After": "60"}

    waited: list[float] = []
    with pytest.raises(Unavailable):
        call(
            failing(1, Unavailable()),
            ServerCall("ask", BestEffort(), seconds=2.5, clock=lambda: 7.0),
            wait=waited.append,
        )
    assert waited == [2.5]


def test_a_call_that_is_wrong_does_not_open_the_breaker() -> None:
    breaker = CircuitBreaker("MongoDB", failures=1)
    with pytest.raises(ValueError):
        call(failing(1, ValueError("wrong")), ServerCall("ask", BestEffort()), breaker=breaker)
    assert breaker.state is State.CLOSED


def test_a_strategy_may_do_io_and_the_caller_may_have_a_loop() -> None:
    class Asks(BestEffort):
        async def retry_after(self, request: Request, reason: Reason) -> RetryAction:
            await asyncio.sleep(0)
            return await super().retry_after(request, reason)

    def ask() -> str:
        return call(failing(1, ConnectionRefusedError()), ServerCall("ask", Asks()), wait=lambda _: None)

    async def within() -> str:
        return ask()

    assert ask() == asyncio.run(within()) == "done"


def test_a_breaker_opens_lets_one_try_and_closes(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    breaker = CircuitBreaker("MongoDB", failures=2, pause=1.0, clock=lambda: now[0])

    def fails() -> None:
        raise ConnectionRefusedError

    for _ in range(2):
        with pytest.raises(ConnectionRefusedError):
            breaker.call(fails)
    assert breaker.state is State.OPEN
    with pytest.raises(CircuitOpen, match=r"MongoDB: not called, because it failed \(2 in a row\)"):
        breaker.call(lambda: "unused")
    now[0] = 1.0
    with pytest.raises(ConnectionRefusedError):
        breaker.call(fails)
    assert breaker.state is State.OPEN, "its only try failed"
    now[0] = 2.0

    def second() -> str:
        with pytest.raises(CircuitOpen):
            breaker.call(lambda: "one is enough")
        return "done"

    assert breaker.call(second) == "done" and breaker.state is State.CLOSED
    told = [record.getMessage() for record in caplog.records]
    assert told == [
        "MongoDB: circuit breaker open for 1 s: failures in a row: 2",
        "MongoDB: circuit breaker closed after 2.0 s: it answers",
    ]


def test_a_call_behind_an_open_breaker_waits_for_it_though_it_is_not_idempotent() -> None:
    now = [0.0]
    breaker = CircuitBreaker("Redis", failures=1, pause=0.01, clock=lambda: now[0])
    sent: list[Any] = []

    def step() -> str:
        sent.append(now[0])
        if len(sent) == 1:
            raise ConnectionRefusedError
        return "done"

    def wait(seconds: float) -> None:
        now[0] += seconds

    assert call(step, ServerCall("push", BestEffort()), breaker=breaker, wait=wait) == "done"
    assert len(sent) == 2 and sent[1] >= 0.01


def test_the_pause_grows_with_each_trial_that_fails() -> None:
    now, changes = [0.0], list[State]()
    breaker = CircuitBreaker(
        "MongoDB", failures=1, pause=0.1, longest_pause=0.3, clock=lambda: now[0], changed=changes.append
    )
    for pause in (0.1, 0.2, 0.3, 0.3):
        with pytest.raises(ConnectionRefusedError):
            breaker.call(failing(1, ConnectionRefusedError()))
        with pytest.raises(CircuitOpen) as caught:
            breaker.call(lambda: "unused")
        assert caught.value.left == pytest.approx(pause)
        now[0] += pause
    assert breaker.call(lambda: "done") == "done"
    assert changes == [State.OPEN, State.CLOSED]


def test_a_trial_without_an_end_is_followed_by_another() -> None:
    now = [0.0]
    breaker = CircuitBreaker("MongoDB", failures=1, pause=1.0, trial=5.0, clock=lambda: now[0])
    with pytest.raises(ConnectionRefusedError):
        breaker.call(failing(1, ConnectionRefusedError()))
    now[0] = 1.0

    def hangs() -> str:
        now[0] = 5.9
        with pytest.raises(CircuitOpen):
            breaker.call(lambda: "too soon")
        now[0] = 6.0
        return breaker.call(lambda: "another")

    assert breaker.call(hangs) == "another"
    assert breaker.state is State.CLOSED


def test_a_failure_of_what_began_before_another_was_answered_does_not_count() -> None:
    now = [0.0]
    breaker = CircuitBreaker("MongoDB", failures=1, clock=lambda: now[0])

    def hung() -> None:
        now[0] = 10.0
        breaker.call(lambda: "answered")
        now[0] = 20.0
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        breaker.call(hung)
    assert breaker.state is State.CLOSED


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (of_pymongo.ServerSelectionTimeoutError("no primary"), State.OPEN),
        (of_pymongo.AutoReconnect("connection closed"), State.OPEN),
        (of_pymongo.NotPrimaryError("not primary"), State.OPEN),
        (of_pymongo.OperationFailure("shutting down", 11600), State.OPEN),
        (of_pymongo.WTimeoutError("waiting for replication timed out", 64), State.CLOSED),
        (of_pymongo.NetworkTimeout("a time limit of ours"), State.CLOSED),
        (of_pymongo.WaitQueueTimeoutError("our own pool"), State.CLOSED),
        (of_pymongo.OperationFailure("disk full", 14031), State.CLOSED),
        (of_pymongo.OperationFailure("not authorized", 13), State.CLOSED),
        (of_pymongo.DuplicateKeyError("there", 11000), State.CLOSED),
        (TypeError("wrong"), State.CLOSED),
    ],
)
def test_only_a_server_that_is_away_opens_it(error: Exception, state: State) -> None:
    breaker = CircuitBreaker("MongoDB", failures=1)
    with pytest.raises(type(error)):
        guarded(failing(1, error), breaker)
    assert breaker.state is state


def test_an_answer_that_is_a_refusal_closes_it_and_a_time_out_says_nothing() -> None:
    def opened() -> CircuitBreaker:
        breaker = CircuitBreaker("MongoDB", failures=1, pause=0.0)
        with pytest.raises(of_pymongo.AutoReconnect):
            guarded(failing(1, of_pymongo.AutoReconnect("closed")), breaker)
        return breaker

    breaker = opened()
    with pytest.raises(of_pymongo.OperationFailure):
        guarded(failing(1, of_pymongo.OperationFailure("conflict", 112)), breaker)
    assert breaker.state is State.CLOSED
    breaker = opened()
    with pytest.raises(of_pymongo.NetworkTimeout):
        guarded(failing(1, of_pymongo.NetworkTimeout("late")), breaker)
    assert breaker.state is State.HALF_OPEN
    assert guarded(lambda: "the next trial", breaker) == "the next trial"


def test_what_has_to_be_sent_is_though_it_is_open() -> None:
    breaker = CircuitBreaker("MongoDB", failures=1)
    with pytest.raises(ConnectionRefusedError):
        breaker.call(failing(1, ConnectionRefusedError()))
    assert breaker.call(lambda: "sent", always=True) == "sent"
    assert breaker.state is State.CLOSED


def test_of_many_threads_one_finds_out_and_the_others_follow() -> None:
    """Sixteen slots while the server is away: none but the trial is sent, and all are done soon after it is back."""
    away, sent, done = threading.Event(), list[float](), list[float]()
    away.set()
    breaker = CircuitBreaker("MongoDB", failures=1, pause=0.05, longest_pause=0.1)

    def step() -> None:
        sent.append(time.monotonic())
        if away.is_set():
            raise ConnectionRefusedError

    def slot() -> None:
        call(step, ServerCall("finish", BestEffort(lambda _: 0.05)), breaker=breaker)
        done.append(time.monotonic())

    slots = [threading.Thread(target=slot) for _ in range(16)]
    began = time.monotonic()
    for one in slots:
        one.start()
    wait_until(lambda: time.monotonic() > began + 1.0, 10, "a while")
    # At the start some were on their way already.
    assert len([at for at in sent if at > began + 0.2]) <= 0.8 / 0.1 + 1
    away.clear()
    back = time.monotonic()
    for one in slots:
        one.join(10)
    assert len(done) == 16 and max(done) < back + 1.0


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 2)), max_size=60))
def test_a_breaker_is_open_for_its_pause_and_no_longer(calls: list[tuple[bool, float]]) -> None:
    now, failed, opened = [0.0], 0, -10.0
    breaker = CircuitBreaker("server", failures=3, pause=1.0, clock=lambda: now[0])
    for fails, passed in calls:
        now[0] += passed
        may = failed < 3 or now[0] >= opened + 1.0
        try:
            breaker.call(lambda fails=fails: 1 / (not fails))  # type: ignore[misc]
        except CircuitOpen:
            assert not may
            continue
        except ZeroDivisionError:
            failed += 1
            opened = now[0] if failed >= 3 else opened
        else:
            failed = 0
        assert may
