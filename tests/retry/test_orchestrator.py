"""The orchestrator: the controlled back-off, strategies, deadlines, and strategies that are somebody's mistake."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recovery.retry import (
    REASONS,
    BestEffort,
    ErrorCode,
    Reason,
    Request,
    RetryAction,
    Ruling,
    ServerCall,
    Verdict,
    maybe_retry,
)
from recovery.retry import controlled_backoff as controlled
from recovery.retry.strategies import Until, _FailFast, exponential, stop_after_attempts, stop_for

ALWAYS, LOCKED, CLOSED = (REASONS[n] for n in ("KV_NOT_MY_VBUCKET", "KV_LOCKED", "SOCKET_CLOSED_WHILE_IN_FLIGHT"))


def stopped() -> float:
    """A clock."""
    return 7.0


def ruled(request: Request, reason: Reason) -> Ruling:
    return asyncio.run(maybe_retry(request, reason))


def test_the_controlled_back_off() -> None:
    assert [controlled(n) for n in range(7)] == [0.001, 0.01, 0.05, 0.1, 0.5, 1.0, 1.0]


def test_what_always_retries_does_whatever_the_strategy_says() -> None:
    call = ServerCall("get", _FailFast())
    assert [ruled(call, ALWAYS).delay for _ in range(7)] == [0.001, 0.01, 0.05, 0.1, 0.5, 1.0, 1.0]
    assert (call.retry_attempts, call.retry_reasons) == (7, {ALWAYS})


@given(st.sampled_from(sorted(REASONS)), st.booleans())
def test_best_effort_sends_again_what_may_be(name: str, idempotent: bool) -> None:
    reason = REASONS[name]
    ruling = ruled(ServerCall("call", BestEffort(), idempotent), reason)
    may = (idempotent and name != "UNKNOWN") or reason.allows_non_idempotent_retry or reason.always_retry
    assert ruling.verdict is (Verdict.RETRY if may else Verdict.FAIL)


def test_best_effort_waits_from_1_to_500_ms_or_as_a_calculator_says() -> None:
    assert [exponential(n) for n in (0, 1, 8, 9, 10_000)] == [0.001, 0.002, 0.256, 0.5, 0.5]
    assert ruled(ServerCall("call", BestEffort(lambda retries: 7.0 + retries)), LOCKED).delay == 7.0


@given(st.floats(0, 10), st.floats(0, 10), st.sampled_from([ALWAYS, LOCKED]))
def test_no_delay_is_past_the_deadline(delay: float, left: float, reason: Reason) -> None:
    ruling = ruled(ServerCall("call", BestEffort(lambda _: delay), seconds=left, clock=stopped), reason)
    assert ruling.delay <= left
    assert (ruling.verdict is Verdict.CANCEL) == (ruling.delay == left)


def test_the_rfcs_example_of_a_deadline() -> None:
    """2 s into its life, with a second asked for and 2.5 s in all."""
    assert ruled(ServerCall("get", BestEffort(lambda _: 1.0), seconds=0.5, clock=stopped), LOCKED).delay == 0.5


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class Answers:
    def __init__(self, answer: Any) -> None:
        self.answer = answer

    async def retry_after(self, _request: Request, _reason: Reason) -> Any:
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (ValueError("no"), "the strategy Answers raised ValueError: no"),
        (ValueError("no " * 9000), "no no no"),
        (ValueError("no \ud800"), "ValueError: no ?"),
        (Mute(), "the strategy Answers raised Mute (no text: its __str__ raised RuntimeError)"),
        (asyncio.CancelledError(), "the strategy Answers raised CancelledError"),
        (None, "has to give a RetryAction"),
        (RetryAction(-1), "it has to be a duration"),
        (RetryAction(float("nan")), "it has to be a duration"),
        (RetryAction(10**400), "it has to be a duration"),
        (RetryAction("soon"), "it has to be a duration"),
        (RetryAction.no_retry(), "wants no retry"),
    ],
)
def test_a_strategy_that_is_a_mistake_fails_the_request_and_says_so(answer: Any, told: str) -> None:
    call = ServerCall("call", Answers(answer))
    ruling = ruled(call, LOCKED)
    assert ruling.verdict is Verdict.FAIL and told in ruling.why
    assert len(ruling.why.encode()) < 500, "it is kept with the task's error"
    assert call.retry_attempts == 0


def test_a_strategy_that_does_not_answer_fails_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hangs:
        async def retry_after(self, _request: Request, _reason: Reason) -> RetryAction:
            await asyncio.Event().wait()
            raise AssertionError

    monkeypatch.setattr("recovery.retry.orchestrator.STRATEGY_TIMEOUT", 0.05)
    ruling = ruled(ServerCall("call", Hangs()), LOCKED)
    assert ruling == Ruling(Verdict.FAIL, 0.0, "the strategy Hangs gave no answer within 0.05 s")


def test_both_are_logged_with_their_reason(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "recovery.retry")
    ruled(ServerCall("find", BestEffort()), LOCKED)
    ruled(ServerCall("update", BestEffort()), CLOSED)
    assert [record.getMessage() for record in caplog.records] == [
        "find: retry 1 in 0.001 s (KV_LOCKED)",
        "update: not retried (SOCKET_CLOSED_WHILE_IN_FLIGHT): the strategy BestEffort wants no retry",
    ]
    told = [vars(record) for record in caplog.records]
    names = ("retry_reason", "retry_code", "retry_delay", "retry_attempt")
    assert [tuple(fields[name] for name in names) for fields in told] == [
        ("KV_LOCKED", None, 0.001, 1),
        ("SOCKET_CLOSED_WHILE_IN_FLIGHT", None, None, 0),
    ]


def test_a_robots_request_is_not_retried_by_what_its_user_said() -> None:
    """The RFC's example of a client context."""

    class ForPeople(BestEffort):
        async def retry_after(self, request: Request, reason: Reason) -> RetryAction:
            if "isRobotRequest" in request.context:
                return RetryAction.no_retry()
            return await super().retry_after(request, reason)

    assert ruled(ServerCall("get", ForPeople()), LOCKED).verdict is Verdict.RETRY
    assert ruled(ServerCall("get", ForPeople(), context={"isRobotRequest": True}), LOCKED).verdict is Verdict.FAIL


def test_parts_are_put_together() -> None:
    call = ServerCall("get", Until(stop_after_attempts(2) | stop_for(CLOSED), BestEffort()), idempotent=True)
    assert [ruled(call, LOCKED).verdict for _ in range(3)] == [Verdict.RETRY, Verdict.RETRY, Verdict.FAIL]
    other = ServerCall("get", Until(stop_after_attempts(2) | stop_for(CLOSED), BestEffort()), idempotent=True)
    assert ruled(other, CLOSED).verdict is Verdict.FAIL


def test_a_ruling_says_why() -> None:
    assert ruled(ServerCall("get", BestEffort()), ALWAYS).why == "this reason is always retried"
    assert ruled(ServerCall("get", BestEffort()), LOCKED).why == "the strategy BestEffort says so"
    late = ServerCall("get", BestEffort(), seconds=0.0, clock=stopped)
    told = "the strategy BestEffort says so, and its deadline comes first"
    assert ruled(late, LOCKED) == Ruling(Verdict.CANCEL, 0.0, told)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (ValueError("no"), "the strategy Answers raised ValueError: no"),
        (5, "the strategy Answers answered 5; it has to give a RetryAction"),
        (RetryAction(-1), "the strategy Answers wants a retry after -1; it has to be a duration"),
        (RetryAction(float("inf")), "the strategy Answers wants a retry after inf; it has to be a duration"),
        (RetryAction(True), "the strategy Answers wants a retry after True; it has to be a duration"),
        (RetryAction.no_retry(), "the strategy Answers wants no retry"),
    ],
)
def test_a_request_that_fails_waits_for_nothing(answer: Any, why: str) -> None:
    assert ruled(ServerCall("call", Answers(answer)), LOCKED) == Ruling(Verdict.FAIL, 0.0, why)


def test_a_strategy_may_want_a_retry_at_once() -> None:
    assert ruled(ServerCall("call", Answers(RetryAction(0))), LOCKED).verdict is Verdict.RETRY


@pytest.mark.parametrize("duration", ["90s", "1.5m", timedelta(seconds=90)])
def test_a_strategy_may_give_a_text_or_a_timedelta(duration: Any) -> None:
    assert ruled(ServerCall("call", Answers(RetryAction(duration))), LOCKED).delay == 90


def test_a_strategy_need_not_be_asynchronous() -> None:
    class Plain:
        def retry_after(self, _request: Request, _reason: Reason) -> RetryAction:
            return RetryAction(2.0)

    assert ruled(ServerCall("call", Plain()), LOCKED).delay == 2.0  # type: ignore[arg-type]


def test_a_request_past_its_deadline_is_cancelled_at_once() -> None:
    now = [7.0]
    call = ServerCall("get", BestEffort(), seconds=1.0, clock=lambda: now[0])
    now[0] = 9.0
    assert (ruled(call, LOCKED).delay, ruled(call, ALWAYS).delay) == (0.0, 0.0)


def test_the_log_has_the_code_and_the_text_of_the_error_at_the_level_that_is_asked_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "recovery.retry")
    code, error = ErrorCode(27001, "LOCKED", "It is locked"), RuntimeError("it\n  is " + "x" * 400)
    cancelled = ServerCall("get", BestEffort(), seconds=0.0, clock=stopped)
    asyncio.run(maybe_retry(cancelled, LOCKED, code=code, error=error, level=logging.ERROR))
    asyncio.run(maybe_retry(ServerCall("put", _FailFast()), LOCKED, code=code, error=error))
    text = f"it is {'x' * 294}"
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("ERROR", f"get: retry 1 in 0.000 s (KV_LOCKED, 27001); its deadline comes first: {text}"),
        ("WARNING", f"put: not retried (KV_LOCKED, 27001): the strategy _FailFast wants no retry: {text}"),
    ]
    assert [vars(record)["retry_code"] for record in caplog.records] == [27001, 27001]
