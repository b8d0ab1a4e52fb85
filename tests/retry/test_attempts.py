"""A task's failures, one after the other: what holds of its retries whatever fails, when, and by whichever policy."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from random import Random

from hypothesis import assume, given
from hypothesis import strategies as st

from recovery.records import Decision, ErrorInfo, RetryOptions, RetryState
from recovery.retry import Backoff, Classified, Durable, ErrorCode, reason_of
from recovery.retry.attempts import Answer, Refusal, Terms, answer
from recovery.retry.codes import GENERIC_ERROR
from recovery.retry.reasons import UNKNOWN

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
    """No delay above the maximum, jitter within its bounds, no retry past the total, a new code begins anew, and every
    retry counted once."""
    state, now = None, BEGAN
    for attempt, (code, took) in enumerate(failures, start=1):
        now += timedelta(seconds=took)
        said = ask(state, code, terms_of(policy, seed + attempt), now, attempt)
        goes_on = state is not None and state.code == code.number
        since = state.since if state is not None and goes_on else now
        cycle = state.cycle if state is not None and goes_on else 0
        if said.state is None:
            assert said.refusal is Refusal.EXHAUSTED
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
        state, now = said.state, now + timedelta(seconds=said.delay)


@given(policies(), st.floats(-10, 1000), st.integers())
def test_no_retry_begins_after_the_deadline_of_its_task(policy: Backoff, remaining: float, seed: int) -> None:
    said = ask(None, CODES[0], terms_of(policy, seed, remaining), BEGAN, 1)
    if said.state is not None:
        assert said.delay < remaining
    else:
        assert said.refusal in (Refusal.DEADLINE, Refusal.EXHAUSTED)


@given(policies(), st.floats(0, 10_000), st.integers())
def test_what_a_server_asks_for_is_waited_for_within_the_total(policy: Backoff, retry_after: float, seed: int) -> None:
    said = ask(None, CODES[0], terms_of(policy, seed), BEGAN, 1, retry_after)
    if retry_after > policy.total:
        assert said.refusal is Refusal.EXHAUSTED
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
    assert ask(None, GENERIC_ERROR, terms, BEGAN, 1).refusal is Refusal.NOT_RETRIABLE
