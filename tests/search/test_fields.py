"""How values of fields are read, and the messages for wrong values."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from recovery.errors import InputError
from recovery.search import FieldKind, Term, in_words, parse
from recovery.search.query import Comparison

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
MOMENT, SPAN = FieldKind.MOMENT.value, FieldKind.SPAN.value
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
        ("started:>2026x", f"started is {MOMENT}: "),
        ("started:longer(2h)", f"started is {MOMENT}; longer(…) is for idle"),
        ("idle:before(2h)", f"idle is {SPAN}; before(…) is for started and ended"),
        (
            "type:within(2h)",
            "type is a text, or the beginning of one with * at its end; within(…) is for started and ended",
        ),
    ],
)
def test_a_wrong_value_is_refused_with_what_its_field_takes(text: str, said: str) -> None:
    with pytest.raises(InputError) as error:
        parse(text, NOW)
    column = text.index(":") + 2 + text.count(">")
    message = str(error.value).split("\n")[0]
    assert message.startswith(f"column {column}: {said}")
    assert message.endswith(said) or said.endswith(": ")


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("message:refused", "refused"),
        ("message:*refused*", "refused"),
        ('message:"*refused*"', "*refused*"),
        ('message:"connection refused"', "connection refused"),
    ],
)
def test_a_message_is_searched_for_a_part_of_it(text: str, part: str) -> None:
    query = parse(text, NOW)
    assert query.tree == Term("message", Comparison.CONTAINS, part)
    assert in_words(query) == f"processes with an error message that contains {part}"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("message:>refused", "message is a part of a text, in upper or lower case"),
        ("message:*", "message is a part of a text, in upper or lower case"),
        ('message:""', "message is a part of a text, in upper or lower case"),
        ('message:"a\0b"', "message can't have the character NUL in it; remove that"),
    ],
)
def test_a_part_that_can_not_be_searched_for_is_refused(text: str, said: str) -> None:
    with pytest.raises(InputError) as error:
        parse(text, NOW)
    assert str(error.value).split("\n")[0].endswith(f": {said}")


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
    assert parse(f"started:{text}", NOW, is_stored=True).tree == Term("started", comparison, moment)


def test_a_moment_of_another_time_zone_is_told_in_utc() -> None:
    tree = parse("started:>2026-01-31T10:00+02:00", NOW).tree
    assert isinstance(tree, Term) and isinstance(tree.value, datetime)
    assert (tree.value, tree.value.tzinfo) == (datetime(2026, 1, 31, 8, tzinfo=UTC), UTC)


@pytest.mark.parametrize(
    "text",
    [
        "started:>9999-12-31",
        "started:<=9999-12-31",
        "ended:>0001-01-01T00:00+23:59",
        "ended:<9999-12-31T23:59-23:59",
    ],
)
def test_a_moment_that_no_date_can_be_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="ed is a date from 0001-01-01 to 9999-12-30 in UTC"):
        parse(text, NOW)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("started:>9999-12-30", datetime(9999, 12, 31, tzinfo=UTC)),
        ("started:>=9999-12-31", datetime(9999, 12, 31, tzinfo=UTC)),
        ("started:<0001-01-01T23:59+23:59", datetime(1, 1, 1, tzinfo=UTC)),
    ],
)
def test_the_first_and_the_last_dates_are_taken(text: str, moment: datetime) -> None:
    tree = parse(text, NOW).tree
    assert isinstance(tree, Term) and tree.value == moment


def test_the_beginning_of_a_text_has_no_nul() -> None:
    with pytest.raises(InputError, match="type can't be the beginning of a text with the character NUL"):
        parse("type:a\0b*", NOW)
    assert parse('type:"a\0b*"', NOW)


def test_a_time_of_centuries_is_read_as_ten_years() -> None:
    assert parse("idle:longer(99999d)", NOW).tree == Term("idle", Comparison.ABOVE, 3660 * 86400.0)
