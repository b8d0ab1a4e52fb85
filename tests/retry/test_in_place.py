"""Calls that are tried again where they stand, and the breaker that leaves a server alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recovery.retry import BestEffort, Call, Reason, Request, RetryAction
from recovery.retry.breaker import CircuitBreaker, CircuitOpen, State
from recovery.retry.in_place import call
from recovery.retry.strategies import Until, stop_after_attempts


def failing(times: int, error: Exception) -> Callable[[], str]:
    left = [error] * times

    def step() -> str:
        if left:
            raise left.pop()
        return "done"

    return step


def test_what_passes_is_tried_again_and_waits_as_the_strategy_says() -> None:
    waited: list[float] = []
    request = Call("ask", BestEffort())
    assert call(failing(3, ConnectionRefusedError()), request, wait=waited.append) == "done"
    assert (waited, request.retry_attempts) == ([0.001, 0.002, 0.004], 3)


@pytest.mark.parametrize(
    ("error", "request_"),
    [
        (ValueError("wrong"), Call("ask", BestEffort(), idempotent=True)),
        (ConnectionResetError(), Call("write", BestEffort())),
        (ConnectionRefusedError(), Call("ask", Until(stop_after_attempts(0), BestEffort()))),
    ],
    ids=["does not pass", "in flight, and not idempotent", "the strategy stops"],
)
def test_what_is_not_tried_again_is_raised(error: Exception, request_: Call) -> None:
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
        call(step, Call("ask", BestEffort(lambda _: 9.0), remaining=2.5), wait=waited.append)
    assert (waited, sent) == ([2.5], [1])


def test_what_a_server_asks_to_wait_is_not_waited_past_the_deadline() -> None:
    class Unavailable(Exception):
        status, headers = 503, {"Retry-After": "60"}

    waited: list[float] = []
    with pytest.raises(Unavailable):
        call(failing(1, Unavailable()), Call("ask", BestEffort(), remaining=2.5), wait=waited.append)
    assert waited == [2.5]


def test_a_call_that_is_wrong_does_not_open_the_breaker() -> None:
    breaker = CircuitBreaker("MongoDB", failures=1)
    with pytest.raises(ValueError):
        call(failing(1, ValueError("wrong")), Call("ask", BestEffort()), breaker=breaker)
    assert breaker.state is State.CLOSED


def test_a_strategy_may_do_io_and_the_caller_may_have_a_loop() -> None:
    class Asks(BestEffort):
        async def retry_after(self, request: Request, reason: Reason) -> RetryAction:
            await asyncio.sleep(0)
            return await super().retry_after(request, reason)

    def ask() -> str:
        return call(failing(1, ConnectionRefusedError()), Call("ask", Asks()), wait=lambda _: None)

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
    with pytest.raises(CircuitOpen, match="MongoDB: not asked, since it failed 2 times in a row"):
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
        "MongoDB: circuit breaker open for 1 s: 2 failures",
        "MongoDB: circuit breaker open for 1 s: 3 failures",
        "MongoDB: circuit breaker closed: it answers",
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

    assert call(step, Call("push", BestEffort()), breaker=breaker, wait=wait) == "done"
    assert len(sent) == 2 and sent[1] >= 0.01


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
