"""A task's failures, one after the other: what holds of its retries whatever fails, when, and by whichever policy."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from recovery.records import Decision, ErrorInfo, RetryCycle, RetryOptions, RetryState, from_document, to_document
from recovery.retry import (
    Backoff,
    BestEffort,
    Classified,
    Durable,
    ErrorCode,
    Reason,
    Request,
    RetryAction,
    RetryStrategy,
    attempts,
    reason_of,
)
from recovery.retry.attempts import Answer, RetryRefusal, Terms, answer
from recovery.retry.codes import GENERIC_ERROR
from recovery.retry.reasons import KV_LOCKED, SOCKET_CLOSED_WHILE_IN_FLIGHT, UNKNOWN
from recovery.retry.strategies import _FailFast

BEGAN = datetime(2026, 3, 1, tzinfo=UTC)
REASON = reason_of("NODE_NOT_AVAILABLE")
CODES = [ErrorCode(21000 + number, f"CODE_{number}", "away") for number in range(3)]

times = st.floats(0.001, 1000)


@st.composite
def policies(draw: st.DrawFn) -> Backoff:
    initial, least = draw(times), draw(st.floats(0, 100))
    return Backoff(
        initial=initial,
        coefficient=draw(st.floats(1, 5)),
        jitter=(least, least + draw(st.floats(0, 100))),
        maximum=initial + draw(times),
        total=initial + draw(st.floats(0, 20_000)),
    )


def ask(
    state: RetryState | None,
    code: ErrorCode,
    terms: Terms,
    now: datetime,
    attempt: int,
    retry_after: float | None = None,
) -> Answer:
    decision = Decision(id="p/t", actor="pack", attempts=attempt, pass_key=f"{attempt:032x}", retry=state)
    error = ErrorInfo(kind="ConnectionRefusedError", message="away", code=code.number)
    found = Classified(code, UNKNOWN if code is GENERIC_ERROR else REASON, "test", retry_after)
    return asyncio.run(answer(decision, error, found, terms, now))


def terms_of(policy: Backoff, seed: int, remaining: float | None = None) -> Terms:
    return Terms(True, (policy.options(),), Durable(policy, Random(seed)), remaining=remaining)


@given(policies(), st.lists(st.tuples(st.sampled_from(CODES), st.floats(0, 500)), max_size=40), st.integers())
def test_each_cycle_is_as_its_policy_says(
    policy: Backoff, failures: Sequence[tuple[ErrorCode, float]], seed: int
) -> None:
    """No delay above the maximum, jitter within its bounds, no retry past the total, a new code begins anew, one that
    comes back goes on, and every retry counted once."""
    state, now, cycles = None, BEGAN, dict[int, tuple[datetime, int]]()
    for attempt, (code, took) in enumerate(failures, start=1):
        now += timedelta(seconds=took)
        said = ask(state, code, terms_of(policy, seed + attempt), now, attempt)
        since, cycle = cycles.get(code.number, (now, 0))
        if said.state is None:
            assert said.refusal is RetryRefusal.EXHAUSTED
            least = min(policy.maximum, policy.base(cycle) + policy.jitter[1])
            assert (now - since).total_seconds() + least > policy.total - 0.001
            return
        assert 0 <= said.delay <= policy.maximum
        base = policy.base(cycle)
        assert min(policy.maximum, base + policy.jitter[0]) <= said.delay <= base + policy.jitter[1]
        assert (now - since).total_seconds() + said.delay <= policy.total
        assert (said.state.count, said.state.cycle, said.state.since) == (attempt, cycle + 1, since)
        assert said.state.until - since == timedelta(seconds=policy.total)
        assert (said.state.attempt, said.state.pass_key) == (attempt, f"{attempt:032x}")
        cycles[code.number] = (since, cycle + 1)
        state, now = said.state, now + timedelta(seconds=said.delay)


@given(policies(), st.floats(-10, 1000), st.integers())
def test_no_retry_begins_after_the_deadline_of_its_task(policy: Backoff, remaining: float, seed: int) -> None:
    said = ask(None, CODES[0], terms_of(policy, seed, remaining), BEGAN, 1)
    if said.state is not None:
        assert said.delay < remaining
    else:
        assert said.refusal in (RetryRefusal.DEADLINE, RetryRefusal.EXHAUSTED)


@given(policies(), st.floats(0, 10_000), st.integers())
def test_what_a_server_asks_for_is_waited_for_within_the_total(policy: Backoff, retry_after: float, seed: int) -> None:
    said = ask(None, CODES[0], terms_of(policy, seed), BEGAN, 1, retry_after)
    if retry_after > policy.total:
        assert said.refusal is RetryRefusal.EXHAUSTED
    elif said.state is not None:
        assert said.delay >= retry_after


options = st.builds(
    RetryOptions,
    enabled=st.none() | st.booleans(),
    initial=st.none() | times,
    coefficient=st.none() | st.floats(1, 5),
    jitter_least=st.none() | times,
    jitter_most=st.none() | times,
    maximum=st.none() | times,
    total=st.none() | times,
)


@given(st.lists(options, max_size=3))
def test_whatever_is_said_at_three_levels_makes_a_policy(levels: list[RetryOptions]) -> None:
    policy = Backoff.of(*levels)
    for name in ("initial", "coefficient"):
        said = [value for one in levels if (value := getattr(one, name)) is not None]
        assert getattr(policy, name) == (said[0] if said else getattr(Backoff(), name))
    enabled = [one.enabled for one in levels if one.enabled is not None]
    assert Terms(True, tuple(levels)).enabled is (enabled[0] if enabled else True)


@given(policies())
def test_a_policy_that_is_kept_is_the_same(policy: Backoff) -> None:
    assert Backoff.of(policy.options()) == policy


@given(st.lists(options, max_size=3), st.booleans())
def test_what_no_catalogue_knows_is_never_retried(levels: list[RetryOptions], idempotent: bool) -> None:
    terms = Terms(idempotent, tuple(levels))
    assume(terms.enabled)
    assert ask(None, GENERIC_ERROR, terms, BEGAN, 1).refusal is RetryRefusal.NOT_RETRIABLE


def held(cycle: int = 1, *, count: int = 5, reasons: tuple[str, ...] = ("KV_LOCKED",)) -> RetryState:
    """The retries of a task whose error of CODES[0] came first at BEGAN."""
    return RetryState(
        count=count, cycle=cycle, since=BEGAN, until=BEGAN + timedelta(days=1), failed_at=BEGAN, attempt=1,
        pass_key="0" * 32, code=CODES[0].number, reason=REASON.name, kind="OSError", message="away", reasons=reasons,
    )  # fmt: skip


STEADY = Backoff(initial=10, coefficient=2, jitter=(0, 0), maximum=60, total=100)
"""Waits for 10 s, 20 s, 40 s, and gives up after 100 s."""


def steady(strategy: RetryStrategy | None = None, *, idempotent: bool = True, remaining: float | None = None) -> Terms:
    return Terms(idempotent, (STEADY.options(),), strategy, {"tenant": 7}, remaining)


def test_a_retry_is_kept_with_all_that_is_known_of_the_failure() -> None:
    now = BEGAN + timedelta(seconds=50)
    before = held(cycle=1, count=5, reasons=("KV_LOCKED", "NO_LONGER_KNOWN"))
    said = ask(before, CODES[0], steady(), now, 6)
    assert said == Answer(
        20.0,
        RetryState(
            count=6, cycle=2, since=BEGAN, until=BEGAN + timedelta(seconds=100), failed_at=now, attempt=6,
            pass_key=f"{6:032x}", code=21000, reason="NODE_NOT_AVAILABLE", kind="ConnectionRefusedError",
            message="away", reasons=("KV_LOCKED", "NODE_NOT_AVAILABLE"),
        ),
    )  # fmt: skip
    another = ask(before, CODES[1], steady(), now, 6)
    assert another.state is not None and said.state is not None
    assert another == Answer(
        10.0,
        replace(
            said.state, cycle=1, since=now, until=now + timedelta(seconds=100), code=21001,
            cycles=(RetryCycle(code=21000, retries=1, since=BEGAN),),
        ),
    )  # fmt: skip


def until_refused(codes: Sequence[ErrorCode], state: RetryState | None = None) -> tuple[Answer, RetryState, datetime]:
    """Attempts that take no time and fail with these codes in turn: the refusal, what was kept before, and when."""
    now = BEGAN
    for attempt in range(1, 1000):
        said = ask(state, codes[attempt % len(codes)], steady(), now, attempt)
        if said.state is None:
            assert state is not None
            return said, state, now
        state, now = said.state, now + timedelta(seconds=said.delay)
    raise AssertionError("retried forever")


@pytest.mark.parametrize("count", [1, 2, 3, attempts.CODES, attempts.CODES + 1, 10 * attempts.CODES])
def test_codes_that_alternate_are_not_retried_forever(count: int) -> None:
    """Each code has the total duration from its own first failure, and takes up where it was, however many others come
    in between. Where there are more codes than are kept, a new one goes on with the oldest cycle."""
    codes = [ErrorCode(21000 + number, f"CODE_{number}", "away") for number in range(count)]
    said, state, now = until_refused(codes)
    assert said.refusal is RetryRefusal.EXHAUSTED
    first_of_its_code = 10 * min(count, attempts.CODES)
    assert now - BEGAN <= timedelta(seconds=STEADY.total + first_of_its_code)
    assert len(state.cycles) < attempts.CODES
    assert from_document(RetryState, to_document(state)) == state


def test_retries_that_an_older_version_kept_go_on() -> None:
    """It kept the cycle of the last code only; the code before that begins once more, and is known from then on."""
    before = from_document(RetryState, {key: value for key, value in to_document(held()).items() if key != "cycles"})
    other = ask(before, CODES[1], steady(), BEGAN + timedelta(seconds=60), 6).state
    assert other is not None and (other.cycle, other.since) == (1, BEGAN + timedelta(seconds=60))
    said = ask(other, CODES[0], steady(), BEGAN + timedelta(seconds=90), 7)
    assert said.refusal is RetryRefusal.EXHAUSTED, "the total duration since its first failure"


def test_a_strategy_sees_the_task_as_a_request() -> None:
    seen: list[Request] = []

    class Sees(BestEffort):
        async def retry_after(self, request: Request, reason: Reason) -> RetryAction:
            seen.append(request)
            assert (request.retry_attempts, request.cycle_retries) == (5, 1), "the next retry is not counted yet"
            assert request.retry_reasons == {KV_LOCKED} and reason is REASON
            return RetryAction(3.0)

    said = ask(held(), CODES[0], steady(Sees(), idempotent=False, remaining=50.0), BEGAN, 6)
    assert said.delay == 3.0
    request = seen[0]
    assert (request.name, request.idempotent, request.remaining) == ("pack p/t attempt 6", False, 50.0)
    assert request.context == {"tenant": 7} and isinstance(request.retry_strategy, Sees)


def test_a_task_that_never_failed_begins_its_count() -> None:
    said = ask(None, CODES[0], steady(), BEGAN, 1)
    assert said.state is not None
    assert (said.delay, said.state.count, said.state.cycle, said.state.reasons) == (10.0, 1, 1, ("NODE_NOT_AVAILABLE",))


@pytest.mark.parametrize(
    ("code", "terms", "refused"),
    [
        (CODES[0], Terms(True, (RetryOptions(enabled=False),)), Answer(refusal=RetryRefusal.OFF, why="retry is off")),
        (GENERIC_ERROR, steady(), Answer(refusal=RetryRefusal.NOT_RETRIABLE, why="no catalogue knows it")),
        (
            ErrorCode(47001, "GONE", "gone"),
            steady(),
            Answer(refusal=RetryRefusal.NOT_RETRIABLE, why="GONE is not retriable"),
        ),
        (
            CODES[0],
            steady(_FailFast()),
            Answer(refusal=RetryRefusal.STRATEGY, why="the strategy _FailFast wants no retry"),
        ),
        (
            CODES[0],
            steady(remaining=10.0),
            Answer(refusal=RetryRefusal.DEADLINE, why="its task_timeout comes before the next retry"),
        ),
    ],
    ids=["off", "not known", "not retriable", "strategy", "deadline"],
)
def test_a_refusal_says_why(code: ErrorCode, terms: Terms, refused: Answer) -> None:
    assert ask(None, code, terms, BEGAN, 1) == refused


def test_what_is_in_flight_and_not_idempotent_is_refused_as_that() -> None:
    decision = Decision(id="p/t", actor="pack", attempts=1, pass_key="0" * 32)
    found = Classified(CODES[0], SOCKET_CLOSED_WHILE_IN_FLIGHT)
    error = ErrorInfo(kind="ConnectionResetError", message="reset", code=CODES[0].number)
    why = "the connection was closed before the answer came, and it is not idempotent"
    for strategy in (None, _FailFast()):
        said = asyncio.run(answer(decision, error, found, steady(strategy, idempotent=False), BEGAN))
        assert said == Answer(refusal=RetryRefusal.NOT_IDEMPOTENT, why=why)


@pytest.mark.parametrize(
    ("cycle", "retries"), [(0, "0 retries"), (1, "1 retry"), (2, "2 retries"), (1234, "1,234 retries")]
)
def test_a_cycle_that_is_over_says_after_how_many_retries(cycle: int, retries: str) -> None:
    said = ask(held(cycle), CODES[0], steady(), BEGAN + timedelta(seconds=100), 6)
    why = f"its total duration of 100s is over after {retries}"
    assert said == Answer(refusal=RetryRefusal.EXHAUSTED, why=why)


def test_a_retry_may_begin_exactly_when_the_total_is_over() -> None:
    assert ask(held(2), CODES[0], steady(), BEGAN + timedelta(seconds=60), 6).delay == 40.0
    assert ask(held(2), CODES[0], steady(), BEGAN + timedelta(seconds=60.001), 6).refusal is RetryRefusal.EXHAUSTED
    assert ask(held(2), CODES[0], steady(), BEGAN, 6, retry_after=100.0).delay == 100.0


def test_a_policy_without_delays_retries_at_once() -> None:
    options = Backoff(initial=0, jitter=(0, 0)).options()
    said = ask(None, CODES[0], Terms(True, (options,)), BEGAN, 1)
    assert (said.delay, said.refusal) == (0.0, None)


def test_a_clock_that_was_set_back_does_not_lengthen_a_cycle() -> None:
    said = ask(held(2), CODES[0], steady(), BEGAN - timedelta(seconds=60), 6, retry_after=101.0)
    assert said.refusal is RetryRefusal.EXHAUSTED


def test_a_cycle_that_began_at_the_end_of_the_calendar_begins_now() -> None:
    ahead = held(2).evolve(since=datetime.max.replace(tzinfo=UTC))
    state = ask(ahead, CODES[0], steady(), BEGAN, 6).state
    assert state is not None and (state.since, state.until) == (BEGAN, BEGAN + timedelta(seconds=100))


@pytest.mark.parametrize(("retry_after", "delay"), [(5.0, 10.0), (29.0, 29.0), (30.0, None), (31.0, None)])
def test_what_a_server_asks_for_is_waited_for_within_the_tasks_time(retry_after: float, delay: float | None) -> None:
    said = ask(None, CODES[0], steady(remaining=30.0), BEGAN, 1, retry_after)
    assert (said.delay, said.refusal) == ((0.0, RetryRefusal.DEADLINE) if delay is None else (delay, None))
