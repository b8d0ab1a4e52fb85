"""The model of doing a task again in a new epoch."""

from __future__ import annotations

import pytest

from tests.model.redo import explore


@pytest.mark.parametrize(
    ("workers", "hands"),
    # Half a minute each. That its parts are needed is seen at each change.
    [pytest.param(*case, marks=pytest.mark.soak) for case in ((1, 1), (1, 2), (2, 1))],
)
def test_every_interleaving_ends_well(workers: int, hands: int) -> None:
    states, ends = explore(workers, hands)
    assert states > 30_000 and ends > 80, "else it does not do much"


@pytest.mark.parametrize(
    ("part", "wrong"),
    [
        ("pass", "an end of what is kept was refused"),
        ("epoch of a claim", "by A's old value"),
        ("freeze", "an end of A from before is taken"),
        ("look", "what A scheduled before runs in the new epoch"),
        pytest.param("EPOCH_WRONG", "stuck", marks=pytest.mark.soak),
    ],
)
def test_each_part_is_needed(part: str, wrong: str) -> None:
    with pytest.raises(AssertionError, match=wrong):
        explore(1, 1, frozenset([part]))
