"""The policy: its delays never pass what it says, and a cycle is one code's."""

from __future__ import annotations

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recovery.errors import InputError
from recovery.retry import Backoff, Cycle, follow

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
    assert Backoff() == Backoff("60s", 1.2, (0, 30), "60m", "24h")  # type: ignore[arg-type]
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
