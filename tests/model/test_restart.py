"""Failures and restarts, explored in full."""

import pytest

from tests.model.restart import explore

# Small ones, which take seconds. With cuts it holds as well of (1, 1) and one outbox (182,404 states), of (2, 1) and
# one (681,915), and of (1, 0) and two (481,406).
BOUNDS = [
    ((1, 0), 1, True, 10_000),
    ((1, 1), 1, False, 20_000),
    pytest.param((1, 0), 2, False, 100_000, marks=pytest.mark.soak),
]


@pytest.mark.parametrize(("most_restarts", "appliers", "cuts", "least"), BOUNDS)
def test_left_alone_the_records_tell_the_truth(
    most_restarts: tuple[int, int], appliers: int, cuts: bool, least: int
) -> None:
    states, ends = explore(most_restarts, appliers, cuts)
    assert states > least, "the model has become smaller: what can't happen any more?"
    assert ends > 5
