"""The bounded wait itself."""

from __future__ import annotations

import itertools

import pytest

from tests.waiting import wait_until


def test_gives_the_first_true_value() -> None:
    values = itertools.count()
    assert wait_until(lambda: next(values) // 3, 5, "a third look") == 1


def test_says_what_did_not_come() -> None:
    with pytest.raises(AssertionError, match=r"not within 0\.05 s: the end of time \(last seen: \[\]\)"):
        wait_until(list, 0.05, "the end of time")
