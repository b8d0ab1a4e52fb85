"""The policy: its delays never pass what it says, and a cycle is one code's."""

from __future__ import annotations

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recovery.errors import InputError
from recovery.limits import LONGEST
from recovery.records import RetryOptions
from recovery.retry import Backoff, Cycle, follow
from recovery.retry.policy import Next, check_policy, check_values

seconds = st.floats(0, 10_000, allow_nan=False).map(lambda found: found if found >= 0.001 else 0.0)
seeds = st.integers(0, 2**32)


@st.composite
def policies(draw: st.DrawFn) -> Backoff:
    initial, least = draw(seconds), draw(seconds)
    return Backoff(
        initial=initial,
        coefficient=draw(st.floats(1, 100)),
        jitter=(least, least + draw(seconds)),
        maximum=initial + draw(seconds),
        total=initial + draw(seconds),
    )


def test_the_documents_table() -> None:
    assert Backoff() == Backoff("60s", 1.2, (0, 30), "60m", "24h")
    assert Backoff(jitter=["1s", 2]).jitter == (1.0, 2.0)  # type: ignore[arg-type]
    plain = Backoff(jitter=(0, 0))
    assert [round(plain.delay(retry, Random(1)), 3) for retry in range(4)] == [60, 72, 86.4, 103.68]
    assert plain.delay(23, Random(1)) == plain.delay(10_000, Random(1)) == 3600


@given(policies(), st.integers(0, 10**6), seeds)
def test_no_delay_is_over_the_maximum_and_jitter_is_within_its_bounds(policy: Backoff, retry: int, seed: int) -> None:
    delay, base = policy.delay(retry, Random(seed)), policy.base(retry)
    assert base <= policy.maximum and delay <= policy.maximum
    least, most = policy.jitter
    assert delay == policy.maximum or base + least <= delay <= math.nextafter(base + most, math.inf)


@given(policies(), st.integers(0, 1000))
def test_each_delay_is_the_one_before_times_the_coefficient_up_to_the_maximum(policy: Backoff, retry: int) -> None:
    before, after = policy.base(retry), policy.base(retry + 1)
    assert after == policy.maximum or math.isclose(after, before * policy.coefficient, rel_tol=1e-9)


@given(seeds)
def test_a_cycle_is_never_longer_than_the_total(seed: int) -> None:
    delays = list(Backoff().delays(Random(seed)))
    assert 0 < sum(delays) <= 86_400 and sum(delays) + 3600 > 86_400


@given(policies(), st.lists(st.tuples(st.integers(20_000, 20_002), st.floats(0, 100)), max_size=30), seeds)
def test_another_code_starts_anew_and_the_same_goes_on(
    policy: Backoff, failures: list[tuple[int, float]], seed: int
) -> None:
    cycle: Cycle | None = None
    since, now, random = 0.0, 0.0, Random(seed)
    for code, took in failures:
        now += took
        before = cycle
        goes_on = before is not None and before.code == code
        since = since if goes_on else now
        said = follow(policy, before, code, now - since, random)
        cycle = said.cycle
        assert cycle.code == code
        if said.delay is None:
            assert cycle.retries == (before.retries if goes_on and before else 0)
            continue
        assert cycle.retries == (before.retries if goes_on and before else 0) + 1
        assert now - since + said.delay <= policy.total
        now += said.delay


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"coefficient": 0.9}, "coefficient=0.9"),
        ({"coefficient": math.nan}, "coefficient"),
        ({"coefficient": True}, "coefficient"),
        ({"maximum": 30}, "must be at least initial, which is 1m"),
        ({"total": "10s"}, "must be at least initial"),
        ({"initial": -1}, "initial=-1"),
        ({"initial": 1e-9}, "must be 0 or at least 1ms"),
        ({"jitter": (30, 0)}, "the first must not be over the second"),
        ({"jitter": 3}, "must be two durations"),
        ({"total": "soon"}, "must be a duration, for example"),
    ],
)
def test_what_makes_no_sense(wrong: dict[str, object], told: str) -> None:
    with pytest.raises(InputError, match=told):
        Backoff(**wrong)  # type: ignore[arg-type]


LONG_TIME = "must be a duration from 0 seconds to 10 years"


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"coefficient": 0.99}, "Backoff(coefficient=0.99): must be a number of at least 1"),
        ({"coefficient": 10**400}, f"Backoff(coefficient=1{'0' * 59}…): must be a number of at least 1"),
        ({"coefficient": math.inf}, "Backoff(coefficient=inf): must be a number of at least 1"),
        ({"coefficient": "2"}, "Backoff(coefficient='2'): must be a number of at least 1"),
        ({"initial": 0.0005}, "Backoff(initial=0.0005s): must be 0 or at least 1ms"),
        ({"initial": LONGEST + 1}, f"Backoff(initial={LONGEST + 1}): {LONG_TIME}"),
        ({"maximum": math.nan}, f"Backoff(maximum=nan): {LONG_TIME}"),
        ({"maximum": True}, f"Backoff(maximum=True): {LONG_TIME}"),
        ({"total": "soon"}, "Backoff(total='soon'): must be a duration, for example 90, 90s, 10m, 2h or 1d"),
        ({"maximum": 30}, "Backoff(maximum=30s): must be at least initial, which is 1m"),
        ({"total": 30}, "Backoff(total=30s): must be at least initial, which is 1m"),
        ({"jitter": (30, 10)}, "Backoff(jitter=(30s, 10s)): the first must not be over the second"),
        ({"jitter": (1, 2, 3)}, "Backoff(jitter=(1, 2, 3)): must be two durations, for example (0, 30)"),
        ({"jitter": "12"}, "Backoff(jitter='12'): must be two durations, for example (0, 30)"),
        ({"jitter": (0, -1)}, f"Backoff(jitter=-1): {LONG_TIME}"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused_in_these_words(wrong: dict[str, object], told: str) -> None:
    with pytest.raises(InputError) as raised:
        Backoff(**wrong)  # type: ignore[arg-type]
    assert str(raised.value) == told


@pytest.mark.parametrize(
    "bounds",
    [
        {"coefficient": 1},
        {"initial": 0},
        {"initial": 0.001},
        {"initial": 60, "maximum": 60, "total": 60},
        {"initial": LONGEST, "maximum": LONGEST, "total": LONGEST},
        {"jitter": (3, 3)},
    ],
)
def test_the_bounds_of_a_policy_are_within_it(bounds: dict[str, object]) -> None:
    policy = Backoff(**bounds)  # type: ignore[arg-type]
    assert {name: getattr(policy, name) for name in bounds} == bounds


def test_the_first_options_count_that_say_something_and_can_be() -> None:
    unusable = RetryOptions(
        initial=0.0005, coefficient=0.5, jitter_least=-1, jitter_most=math.nan, maximum=LONGEST + 1, total=math.inf
    )
    near = RetryOptions(initial=10, jitter_most=5)
    far = RetryOptions(initial=20, coefficient=2, jitter_least=1, jitter_most=9, maximum=50, total=70)
    assert Backoff.of(unusable, near, far) == Backoff(10, 2, (1, 5), 50, 70)
    assert Backoff.of(unusable) == Backoff.of() == Backoff()


def test_the_bounds_of_a_value_can_be_one() -> None:
    least = RetryOptions(initial=0, coefficient=1, jitter_least=0, jitter_most=0, maximum=0, total=0)
    assert Backoff.of(least) == Backoff(0, 1, (0, 0), 0, 0)
    assert Backoff.of(RetryOptions(initial=0.001, total=LONGEST)) == Backoff(initial=0.001, total=LONGEST)


def test_of_options_that_contradict_each_other_the_longer_time_holds() -> None:
    assert Backoff.of(RetryOptions(initial=90_000)) == Backoff(initial=90_000, maximum=90_000, total=90_000)
    assert Backoff.of(RetryOptions(maximum=5, total=6)) == Backoff(maximum=60, total=60)
    assert Backoff.of(RetryOptions(jitter_least=40)) == Backoff(jitter=(40, 40))
    assert Backoff.of(RetryOptions(jitter_least=9, jitter_most=2)) == Backoff(jitter=(9, 9))


def test_a_policy_is_kept_with_a_task_as_it_is() -> None:
    assert Backoff(10, 2, (1, 5), 50, 70).options() == RetryOptions(
        enabled=True, initial=10, coefficient=2, jitter_least=1, jitter_most=5, maximum=50, total=70
    )


def test_delays_below_a_second_grow_like_others() -> None:
    policy = Backoff(initial=0.125, coefficient=2, jitter=(0, 0), maximum=60)
    assert [policy.base(retry) for retry in (0, 1, 2, 8, 9)] == [0.125, 0.25, 0.5, 32.0, 60.0]


def test_the_delays_of_a_cycle_fill_the_total() -> None:
    def delays(**policy: float) -> list[float]:
        return list(Backoff(jitter=(0, 0), **policy).delays(Random(1)))

    assert delays(initial=10, coefficient=2, maximum=30, total=100) == [10, 20, 30, 30]
    assert delays(initial=10, coefficient=2, maximum=30, total=90) == [10, 20, 30, 30]
    assert delays(initial=10, coefficient=2, maximum=30, total=89) == [10, 20, 30]
    assert delays(initial=1, coefficient=1, total=100) == [1.0] * 100
    assert delays(initial=0) == [], "a cycle without delays has no end"


def test_a_failure_is_followed_by_a_retry_up_to_the_end_of_the_total() -> None:
    policy = Backoff(initial=10, coefficient=2, jitter=(0, 0), maximum=60, total=100)
    assert follow(policy, None, 27001, 99.0, Random(1)) == Next(Cycle(27001, 1), 10.0)
    assert follow(policy, Cycle(27001, 2), 27001, 60.0, Random(1)) == Next(Cycle(27001, 3, 60.0), 40.0)
    assert follow(policy, Cycle(27001, 2), 27001, 60.5, Random(1)) == Next(Cycle(27001, 2, 60.5), None)
    assert follow(policy, Cycle(27001, 2), 27002, 99.0, Random(1)) == Next(Cycle(27002, 1), 10.0)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (RetryOptions(maximum=30), "retry_maximum must be at least retry_initial, which is 1m"),
        (RetryOptions(initial=7200), "retry_maximum (1h by default) must be at least retry_initial, which is 2h"),
        (RetryOptions(total=30), "retry_total must be at least retry_initial, which is 1m"),
        (
            RetryOptions(initial=90_000, maximum=90_000),
            "retry_total (1d by default) must be at least retry_initial, which is 25h",
        ),
        (
            RetryOptions(jitter_least=60),
            "retry_jitter_most (30s by default) must be at least retry_jitter_least, which is 1m",
        ),
        (
            RetryOptions(jitter_least=10, jitter_most=5),
            "retry_jitter_most must be at least retry_jitter_least, which is 10s",
        ),
        (RetryOptions(initial=0.0005), f"retry_initial=0.0005: {LONG_TIME}, 0 or at least 1ms"),
        (RetryOptions(coefficient=0.5), "retry_coefficient=0.5: must be a number of at least 1"),
        (RetryOptions(jitter_least=-1), f"retry_jitter_least=-1: {LONG_TIME}"),
        (RetryOptions(jitter_most=math.inf), f"retry_jitter_most=inf: {LONG_TIME}"),
        (RetryOptions(maximum=LONGEST * 2), f"retry_maximum={LONGEST * 2:g}: {LONG_TIME}"),
        (RetryOptions(total=math.nan), f"retry_total=nan: {LONG_TIME}"),
    ],
)
def test_options_that_can_not_be_or_contradict_each_other_are_refused(options: RetryOptions, told: str) -> None:
    with pytest.raises(InputError) as raised:
        check_policy(options, "actor pay")
    assert str(raised.value) == f"actor pay: {told}"


@pytest.mark.parametrize(
    "options",
    [
        RetryOptions(),
        RetryOptions(initial=60, maximum=60, total=60, jitter_least=5, jitter_most=5),
        RetryOptions(initial=3600),
        RetryOptions(jitter_least=30),
        RetryOptions(initial=0, coefficient=1, jitter_most=0, maximum=LONGEST, total=LONGEST),
    ],
)
def test_options_at_their_bounds_are_accepted(options: RetryOptions) -> None:
    check_policy(options, "actor pay")


def test_each_value_is_checked_by_itself_where_contradictions_do_not_matter() -> None:
    check_values(RetryOptions(initial=60, maximum=5, total=1, jitter_least=9, jitter_most=2), "recovery retry delays")
    with pytest.raises(InputError, match=r"^recovery retry delays: retry_total=-1: must be"):
        check_values(RetryOptions(total=-1), "recovery retry delays")
