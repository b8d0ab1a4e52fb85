"""What calls that are tried again log, and how long they wait between two tries."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from recovery.retry import BestEffort, Classified, ErrorCode, ServerCall, reason_of
from recovery.retry.breaker import CircuitBreaker, State
from recovery.retry.in_place import call, guarded
from tests.clock import Clock

NODE = reason_of("NODE_NOT_AVAILABLE")
PASSES = ErrorCode(27001, "PASSES", "It passes")


class Unavailable(Exception):
    """An answer of a server that asks to be left alone for 60 s."""

    status, headers = 503, {"Retry-After": "60"}


def failing(*errors: Exception) -> Callable[[], str]:
    """A step that fails with these errors, one after the other, and then is done."""
    left = list(errors)

    def step() -> str:
        if left:
            raise left.pop(0)
        return "done"

    return step


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(record.levelname, record.getMessage()) for record in caplog.records]


def test_the_first_retry_and_the_end_of_a_call_are_warnings_and_the_other_retries_are_not(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr("recovery.retry.in_place.time", clock)
    caplog.set_level(logging.INFO, "recovery.retry")

    def wait(_seconds: float) -> None:
        clock.now += 1.25

    step = failing(ConnectionRefusedError("not  there"), ConnectionRefusedError("still not"))
    assert call(step, ServerCall("ask", BestEffort()), wait=wait) == "done"
    assert lines(caplog) == [
        ("WARNING", "ask: retry 1 in 0.001 s (NODE_NOT_AVAILABLE, 21001): not there"),
        ("INFO", "ask: retry 2 in 0.002 s (NODE_NOT_AVAILABLE, 21001): still not"),
        ("WARNING", "ask: done after 2.5 s, retries: 2"),
    ]
    done = vars(caplog.records[-1])
    assert (done["retry_attempts"], done["retry_seconds"]) == (2, 2.5)
    assert [vars(record)["retry_code"] for record in caplog.records[:-1]] == [21001, 21001]


def test_a_call_that_is_done_at_once_logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "recovery.retry")
    assert call(failing(), ServerCall("ask", BestEffort())) == "done"
    assert caplog.records == []


@pytest.mark.parametrize(
    ("pause", "waited"), [(0.5, 60.0), (90.0, 90.0)], ids=["the server asks for more", "the strategy asks for more"]
)
def test_the_longer_of_what_the_strategy_and_the_server_ask_for_is_waited(pause: float, waited: float) -> None:
    waits: list[float] = []
    request = ServerCall("ask", BestEffort(lambda _: pause))
    assert call(failing(Unavailable()), request, wait=waits.append) == "done"
    assert waits == [waited]


@pytest.mark.parametrize(("seconds", "ends"), [(60.0, True), (60.5, False)])
def test_a_call_ends_if_the_server_asks_for_all_the_time_that_is_left(seconds: float, ends: bool) -> None:
    waits: list[float] = []
    request = ServerCall("ask", BestEffort(), seconds=seconds, clock=lambda: 7.0)
    if ends:
        with pytest.raises(Unavailable):
            call(failing(Unavailable()), request, wait=waits.append)
    else:
        assert call(failing(Unavailable()), request, wait=waits.append) == "done"
    assert waits == [60.0]


def test_a_call_that_fails_after_its_deadline_ends_without_a_wait() -> None:
    clock, waits = Clock(), list[float]()

    def late() -> None:
        clock.now += 9.0
        raise ConnectionRefusedError

    with pytest.raises(ConnectionRefusedError):
        call(late, ServerCall("ask", BestEffort(), seconds=2.0, clock=clock.monotonic), wait=waits.append)
    assert waits == [0.0]


def test_an_error_is_what_the_callers_catalogues_say(caplog: pytest.LogCaptureFixture) -> None:
    def classified(_error: BaseException) -> Classified:
        return Classified(PASSES, NODE, retry_after=3.0)

    waits: list[float] = []
    breaker = CircuitBreaker("Redis", failures=1, clock=lambda: 7.0)
    request = ServerCall("ask", BestEffort(), seconds=2.0, clock=lambda: 7.0)
    with pytest.raises(KeyError):
        call(failing(KeyError("x")), request, classified=classified, breaker=breaker, wait=waits.append)
    assert breaker.state is State.OPEN, "the breaker goes by the same"
    assert waits == [2.0]
    assert "ask: retry 1 in 0.001 s (NODE_NOT_AVAILABLE, 27001): 'x'" in [told for _, told in lines(caplog)]


def test_a_call_behind_an_open_breaker_waits_until_there_may_be_a_trial(caplog: pytest.LogCaptureFixture) -> None:
    clock, waits = Clock(), list[float]()
    breaker = CircuitBreaker("Redis", failures=1, pause=4.0, clock=clock.monotonic)
    with pytest.raises(ConnectionRefusedError):
        breaker.call(failing(ConnectionRefusedError()))

    def wait(seconds: float) -> None:
        waits.append(seconds)
        clock.now += seconds

    assert call(failing(), ServerCall("ask", BestEffort()), breaker=breaker, wait=wait) == "done"
    assert waits == [4.0]
    told = "ask: retry 1 in 0.001 s (CIRCUIT_BREAKER_OPEN, 20001): Redis: not called, because it failed (1 in a row)"
    assert ("WARNING", told) in lines(caplog)


def test_a_call_that_has_to_be_sent_goes_past_an_open_breaker() -> None:
    breaker = CircuitBreaker("Redis", failures=1)
    with pytest.raises(ConnectionRefusedError):
        guarded(failing(ConnectionRefusedError()), breaker)
    assert guarded(failing(), breaker, always=True) == "done"


def test_an_error_that_is_no_exception_is_not_retried() -> None:
    def stops() -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        call(stops, ServerCall("ask", BestEffort(), idempotent=True))
