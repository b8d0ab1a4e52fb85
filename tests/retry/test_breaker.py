"""The circuit breaker by itself: when it opens, whom it lets through, for how long, and what it logs."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from recovery.retry.breaker import CircuitBreaker, CircuitOpen, State

START = 100.0


class Time:
    """A clock that is set by a test."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time() -> Time:
    return Time()


def fails() -> None:
    raise ConnectionRefusedError


def fail(breaker: CircuitBreaker, times: int = 1, *, always: bool = False) -> None:
    for _ in range(times):
        with pytest.raises(ConnectionRefusedError):
            breaker.call(fails, always=always)


def refused(breaker: CircuitBreaker) -> float:
    """Seconds until there may be a trial, as the refusal of a call says."""
    with pytest.raises(CircuitOpen) as raised:
        breaker.call(lambda: "unused")
    return raised.value.left


def raising(error: BaseException) -> Callable[[], None]:
    def step() -> None:
        raise error

    return step


def test_by_default_the_fifth_failure_in_a_row_opens_it_for_a_second(time: Time) -> None:
    breaker = CircuitBreaker("Redis", clock=time)
    fail(breaker, 4)
    assert breaker.state is State.CLOSED
    fail(breaker)
    assert (breaker.state, refused(breaker)) == (State.OPEN, 1.0)
    time.now += 0.75
    assert (breaker.state, refused(breaker)) == (State.OPEN, 0.25)
    time.now += 0.25
    assert breaker.state is State.HALF_OPEN


def test_by_default_the_pause_does_not_grow(time: Time) -> None:
    breaker = CircuitBreaker("Redis", failures=1, clock=time)
    fail(breaker)
    for _ in range(3):
        time.now += 1.0
        fail(breaker)
        assert refused(breaker) == 1.0


def test_a_longest_pause_below_the_pause_does_not_shorten_it(time: Time) -> None:
    breaker = CircuitBreaker("Redis", failures=1, pause=2.0, longest_pause=0.5, clock=time)
    fail(breaker)
    assert refused(breaker) == 2.0


def test_an_answer_forgets_the_failures_before_it(time: Time) -> None:
    breaker = CircuitBreaker("Redis", failures=3, clock=time)
    fail(breaker, 2)
    assert breaker.call(lambda: "done") == "done"
    fail(breaker, 2)
    assert breaker.state is State.CLOSED
    fail(breaker)
    assert breaker.state is State.OPEN


def test_after_it_closed_the_pause_starts_anew(time: Time) -> None:
    breaker = CircuitBreaker("Redis", failures=1, pause=1.0, longest_pause=8.0, clock=time)
    fail(breaker)
    time.now += 1.0
    fail(breaker)
    assert refused(breaker) == 2.0
    time.now += 2.0
    breaker.call(lambda: "done")
    fail(breaker)
    assert refused(breaker) == 1.0


def test_while_a_trial_runs_other_calls_are_refused_until_it_is_given_up_after_5_s(time: Time) -> None:
    breaker = CircuitBreaker("Redis", failures=1, clock=time)
    fail(breaker)
    time.now += 1.0

    def trial() -> str:
        assert refused(breaker) == 0.0, "the pause is over"
        time.now += 4.75
        assert refused(breaker) == 0.0
        time.now += 0.25
        return breaker.call(lambda: "another trial")

    assert breaker.call(trial) == "another trial"


@pytest.mark.parametrize("error", [ValueError("says nothing of the server"), KeyboardInterrupt()])
def test_a_trial_whose_end_says_nothing_is_followed_by_another_at_once(time: Time, error: BaseException) -> None:
    breaker = CircuitBreaker("Redis", failures=1, clock=time)
    fail(breaker)
    time.now += 1.0
    with pytest.raises(type(error)):
        breaker.call(raising(error), lambda _: None)
    assert breaker.state is State.HALF_OPEN
    assert breaker.call(lambda: "the next trial") == "the next trial"
    assert breaker.state is State.CLOSED


def test_a_trial_that_fails_is_followed_by_another_after_the_pause(time: Time) -> None:
    breaker = CircuitBreaker("Redis", failures=1, pause=1.0, trial=50.0, clock=time)
    fail(breaker)
    time.now += 1.0
    fail(breaker)
    time.now += 1.0
    assert breaker.call(lambda: "the next trial") == "the next trial"


def test_an_error_that_the_server_answered_with_forgets_the_failures_before_it(time: Time) -> None:
    breaker = CircuitBreaker("Redis", failures=2, clock=time)
    fail(breaker)
    with pytest.raises(ValueError):
        breaker.call(raising(ValueError("refused")), lambda _: False)
    fail(breaker)
    assert breaker.state is State.CLOSED


def test_an_error_that_says_nothing_counts_neither_way(time: Time) -> None:
    breaker = CircuitBreaker("Redis", failures=2, clock=time)
    fail(breaker)
    with pytest.raises(ValueError):
        breaker.call(raising(ValueError("wrong")), lambda _: None)
    assert breaker.state is State.CLOSED
    fail(breaker)
    assert breaker.state is State.OPEN


def test_a_failure_that_began_with_the_last_answer_counts(time: Time) -> None:
    breaker = CircuitBreaker("Redis", failures=1, clock=time)
    breaker.call(lambda: "done")
    fail(breaker)
    assert breaker.state is State.OPEN


def test_a_call_that_is_always_sent_and_fails_does_not_prolong_the_pause(time: Time) -> None:
    changes = list[State]()
    breaker = CircuitBreaker("Redis", failures=1, pause=1.0, clock=time, changed=changes.append)
    fail(breaker)
    time.now += 0.75
    fail(breaker, always=True)
    assert refused(breaker) == 0.25
    assert changes == [State.OPEN]


def test_a_call_that_is_always_sent_takes_no_trial_from_others(time: Time) -> None:
    breaker = CircuitBreaker("Redis", failures=1, clock=time)
    fail(breaker)
    time.now += 1.0

    def sent() -> str:
        return breaker.call(lambda: "a trial")

    assert breaker.call(sent, always=True) == "a trial"


def test_failures_that_are_noted_without_a_call_open_it(time: Time) -> None:
    breaker = CircuitBreaker("Redis", failures=2, clock=time)
    breaker.note_away()
    assert breaker.state is State.CLOSED
    breaker.note_away()
    assert (breaker.state, refused(breaker)) == (State.OPEN, 1.0)


def test_a_failure_that_is_noted_while_it_is_open_changes_nothing(time: Time) -> None:
    breaker = CircuitBreaker("Redis", failures=1, pause=1.0, longest_pause=8.0, clock=time)
    fail(breaker)
    time.now += 0.5
    breaker.note_away()
    with pytest.raises(CircuitOpen, match=r"^Redis: not called, because it failed \(1 in a row\)$") as raised:
        breaker.call(lambda: "unused")
    assert raised.value.left == 0.5
    time.now += 0.5
    breaker.note_away()
    assert breaker.state is State.HALF_OPEN


def test_openings_and_closings_are_warnings_and_failed_trials_are_not(
    time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "recovery.retry")
    changes = list[State]()
    breaker = CircuitBreaker("Redis", failures=2, pause=1.5, longest_pause=9.0, clock=time, changed=changes.append)
    fail(breaker, 2)
    time.now += 1.5
    fail(breaker)
    time.now += 3.0
    breaker.call(lambda: "done")
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "Redis: circuit breaker open for 1.5 s: failures in a row: 2"),
        ("DEBUG", "Redis: circuit breaker open again for 3 s: failures in a row: 3"),
        ("WARNING", "Redis: circuit breaker closed after 4.5 s: it answers"),
    ]
    assert changes == [State.OPEN, State.CLOSED]
