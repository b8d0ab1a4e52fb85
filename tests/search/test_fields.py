"""How values of fields are read, and the messages for wrong values."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from recovery.errors import InputError
from recovery.search import Term, parse
from recovery.search.tree import Comparison

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
MOMENT = "a date (2026-01-31, 2026-01-31T10:00, in UTC) or a time ago (2h, 30d), with > for later, < for earlier"
NUMBER = "a number, with >, <, >= or <= before it if it is not to be exactly that"
STATES = "running, finished, broken, aborted"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("state:xyz", f"state is one of {STATES}"),
        ("state:fin", f"state is one of {STATES}; did you mean finished?"),
        (f"type:{'x' * 1001}", "type is longer than 1,000 characters"),
        ("timeouts:nan", f"timeouts is {NUMBER}"),
        ("timeouts:1000000000000001", f"timeouts is {NUMBER}"),
        ("timeouts:-1e16", f"timeouts is {NUMBER}"),
        ("started:2h", f"started is {MOMENT}"),
        ("started:2026-01-31", "started a day or moment takes > or < before it"),
        ("started:>2026x", "started is a time (90s, 2h, 30d), with > for longer, < for shorter: "),
    ],
)
def test_a_wrong_value_is_refused_with_what_its_field_takes(text: str, said: str) -> None:
    with pytest.raises(InputError) as error:
        parse(text, NOW)
    column = text.index(":") + 2 + text.count(">")
    message = str(error.value).split("\n")[0]
    assert message.startswith(f"column {column}: {said}")
    assert message.endswith(said) or said.endswith(": ")


def test_a_text_of_a_thousand_characters_is_taken() -> None:
    assert parse(f"type:{'x' * 1000}", NOW).tree == Term("type", Comparison.IS, "x" * 1000)


@pytest.mark.parametrize(
    ("text", "number"), [("3", "3"), ("3.0", "3"), ("1.5", "1.5"), ("1e15", "1000000000000000"), ("-2", "-2")]
)
def test_a_whole_number_is_an_int(text: str, number: str) -> None:
    tree = parse(f"code:{text}", NOW).tree
    assert isinstance(tree, Term) and repr(tree.value) == number


@pytest.mark.parametrize(
    ("text", "comparison", "moment"),
    [
        ("<2026-01-31T10:00+02:00", Comparison.BELOW, datetime(2026, 1, 31, 8, tzinfo=UTC)),
        ("<2026-01-31", Comparison.BELOW, datetime(2026, 1, 31, tzinfo=UTC)),
        (">2026-01-31T10:00", Comparison.ABOVE, datetime(2026, 1, 31, 10, tzinfo=UTC)),
        # Four digits are no year unless a dash follows.
        (">9000s", Comparison.ABOVE, NOW - timedelta(seconds=9000)),
        ("<=9000", Comparison.AT_MOST, NOW - timedelta(seconds=9000)),
    ],
)
def test_a_moment_is_a_date_or_a_time_ago(text: str, comparison: Comparison, moment: datetime) -> None:
    assert parse(f"started:{text}", NOW).tree == Term("started", comparison, moment)


def test_a_moment_keeps_its_own_time_zone() -> None:
    tree = parse("started:>2026-01-31T10:00+02:00", NOW).tree
    assert isinstance(tree, Term) and isinstance(tree.value, datetime)
    assert tree.value.tzinfo == timezone(timedelta(hours=2))


def test_a_time_of_centuries_is_read_as_ten_years() -> None:
    assert parse("idle:>99999d", NOW).tree == Term("idle", Comparison.ABOVE, 3660 * 86400.0)
