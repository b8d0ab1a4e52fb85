"""The model of creation against removal."""

from __future__ import annotations

import pytest

from tests.model.fencing import explore


def test_every_interleaving_ends_well() -> None:
    assert explore() > 300, "else it does not do much"


@pytest.mark.parametrize(
    ("part", "wrong"),
    [
        ("look", "a task of a process that is gone is run"),
        ("scanner's look", "a task of a process that is gone is run"),
        ("replace", "what was read back is not what is there"),
    ],
)
def test_each_part_is_needed(part: str, wrong: str) -> None:
    with pytest.raises(AssertionError, match=wrong):
        explore(frozenset([part]))
