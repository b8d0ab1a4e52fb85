"""Strategies and their parts: what may be sent again, how long to wait, and when to stop."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest

from recovery.errors import InputError
from recovery.retry import Backoff, BestEffort, Durable, Reason, RetryAction, RetryStrategy, ServerCall, reason_of
from recovery.retry.attempts import FailedAttempt
from recovery.retry.strategies import Stop, Until, _FailFast, stop_after_attempts, stop_for

REFUSED, CLOSED, LOCKED = (
    reason_of(name) for name in ("NODE_NOT_AVAILABLE", "SOCKET_CLOSED_WHILE_IN_FLIGHT", "KV_LOCKED")
)
NO, YES = (Stop(lambda *_, said=said: said) for said in (False, True))


def asked(
    strategy: RetryStrategy, reason: Reason = REFUSED, *, idempotent: bool = False, retries: int = 0
) -> float | None:
    """Seconds that a strategy wants to wait, None for no retry, of a request that was retried so often."""
    request = ServerCall("ask", strategy, idempotent, retry_attempts=retries)
    return asyncio.run(strategy.retry_after(request, reason)).duration


@pytest.mark.parametrize("strategy", [BestEffort(), Durable()], ids=["best effort", "durable"])
def test_what_may_have_been_done_is_only_sent_again_if_it_is_idempotent(strategy: RetryStrategy) -> None:
    assert asked(strategy, CLOSED) is None
    assert asked(strategy, CLOSED, idempotent=True) is not None
    assert asked(strategy, REFUSED) is not None, "nothing was sent"


def test_the_durable_strategy_waits_as_its_policy_says() -> None:
    policy = Backoff(initial=10, coefficient=2, jitter=(1, 5), maximum=60)
    waits = [asked(Durable(policy, Random(7)), retries=retries) for retries in range(5)]
    assert waits == [policy.delay(retries, Random(7)) for retries in range(5)]


def test_the_durable_strategy_waits_by_the_retries_of_the_present_error_alone() -> None:
    strategy = Durable(Backoff(initial=10, coefficient=2, jitter=(0, 0)))
    request = FailedAttempt("pack", True, strategy, 9, 2, frozenset(), None, {})
    assert asyncio.run(strategy.retry_after(request, REFUSED)) == RetryAction(40.0)


def test_the_durable_strategy_has_the_default_policy() -> None:
    assert asked(Durable(random=Random(1))) == Backoff().delay(0, Random(1))


def test_fail_fast_never_retries() -> None:
    assert asked(_FailFast(), idempotent=True) is None


@pytest.mark.parametrize(
    ("stop", "stops"),
    [
        (NO | NO, False), (NO | YES, True), (YES | NO, True), (YES | YES, True),
        (NO & NO, False), (NO & YES, False), (YES & NO, False), (YES & YES, True),
    ],
)  # fmt: skip
def test_two_conditions_are_joined_by_either_and_by_both(stop: Stop, stops: bool) -> None:
    assert (asked(Until(stop, BestEffort())) is None) == stops


def test_joined_conditions_see_the_request_and_the_reason() -> None:
    either = Until(stop_for(LOCKED) | stop_after_attempts(2), BestEffort())
    assert [asked(either, retries=retries) is None for retries in (1, 2)] == [False, True]
    assert asked(either, LOCKED) is None
    both = Until(stop_for(LOCKED) & stop_after_attempts(2), BestEffort())
    assert asked(both, retries=2) is not None and asked(both, LOCKED, retries=1) is not None
    assert asked(both, LOCKED, retries=2) is None


def test_a_request_stops_after_so_many_retries() -> None:
    strategy = Until(stop_after_attempts(3), BestEffort())
    assert [asked(strategy, retries=retries) for retries in (0, 2, 3, 4)] == [0.001, 0.004, None, None]
    assert asked(Until(stop_after_attempts(0), BestEffort())) is None


def test_a_request_stops_for_the_reasons_that_are_named() -> None:
    strategy = Until(stop_for(LOCKED, CLOSED), BestEffort())
    assert asked(strategy, LOCKED) is None and asked(strategy, CLOSED, idempotent=True) is None
    assert asked(strategy, REFUSED) is not None


@pytest.mark.parametrize(
    ("retries", "shown"), [(-1, "-1"), (2.0, "2.0"), (True, "True"), (False, "False"), ("3", "'3'"), (None, "None")]
)
def test_a_number_of_retries_that_is_none_is_refused(retries: Any, shown: str) -> None:
    with pytest.raises(InputError) as raised:
        stop_after_attempts(retries)
    assert str(raised.value) == f"stop_after_attempts({shown}): must be a whole number from 0 on"
