"""Durations are read and shown in one form."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis.strategies import integers

from recovery.wording import parse_duration, show_age, show_duration

READ = {
    "90": 90,
    "90s": 90,
    "10m": 600,
    "2h": 7200,
    "1d": 86400,
    "1.5h": 5400,
    "250ms": 0.25,
    "0": 0,
    ".5": 0.5,
    "5.": 5,
    " 7s ": 7,
    "1e-3": 0.001,
}
UNREADABLE = (
    "",
    "s",
    "-1",
    "1 m",
    "1h30m",
    "1M",
    "1w",
    "10 minutes",
    "inf",
    "nan",
    "1_000",
    "٣",
    "0x10",
    "9" * 5000,
)


@pytest.mark.parametrize("text", READ)
def test_read(text: str) -> None:
    assert parse_duration(text) == pytest.approx(READ[text])


@pytest.mark.parametrize("text", UNREADABLE)
def test_unreadable(text: str) -> None:
    with pytest.raises(ValueError, match="must be a duration, for example 90, 90s, 10m, 2h or 1d"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "0s"), (0.25, "0.25s"), (0.001, "0.001s"), (1, "1s"), (90, "90s"), (5400, "90m"), (7200, "2h"), (86400, "1d")],
)
def test_shown(seconds: float, shown: str) -> None:
    assert show_duration(seconds) == shown


@settings(max_examples=300, deadline=None)
@given(integers(0, 10**12))
def test_what_is_shown_is_read_as_the_same(milliseconds: int) -> None:
    seconds = milliseconds / 1000
    assert parse_duration(show_duration(seconds)) == pytest.approx(seconds, rel=1e-12)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(None, "–"), (0, "0s"), (0.04, "0s"), (0.44, "0.4s"), (12.3, "12s"), (119, "119s"), (180, "3m"), (2.4e5, "3d")],
)
def test_ages(seconds: float | None, shown: str) -> None:
    assert show_age(seconds) == shown
