"""What the language says, and how it says what is wrong."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recovery.errors import InputError
from recovery.search import FIELDS, All, And, Not, Or, Term, parse
from recovery.search.language import complete
from recovery.search.tree import Comparison

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
TYPE, STATE = Term("type", Comparison.IS, "order"), Term("state", Comparison.IS, "broken")


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("", All()),
        ("  ", All()),
        ("type:order", TYPE),
        ("type:order state:broken", And((TYPE, STATE))),
        ("type:order AND state:broken", And((TYPE, STATE))),
        ("type:order or state:broken", Or((TYPE, STATE))),
        ("not type:order", Not(TYPE)),
        ("not (type:order or state:broken)", Not(Or((TYPE, STATE)))),
        ("type:order state:broken or type:order", Or((And((TYPE, STATE)), TYPE))),
        ("type:or", Term("type", Comparison.IS, "or")),
        ("type:ord*", Term("type", Comparison.STARTS, "ord")),
        ('type:"ord*"', Term("type", Comparison.IS, "ord*")),
        (r'error:"say \"no\""', Term("error", Comparison.IS, 'say "no"')),
        ("overdue", Term("overdue", Comparison.IS, None)),
        ("timeouts:>=3", Term("timeouts", Comparison.AT_LEAST, 3)),
        ("idle:>1h", Term("idle", Comparison.ABOVE, 3600.0)),
        ("started:>2h", Term("started", Comparison.ABOVE, NOW - timedelta(hours=2))),
        ("started:<2026-01-31T10:00", Term("started", Comparison.BELOW, datetime(2026, 1, 31, 10, tzinfo=UTC))),
        # A day as a whole.
        ("started:>2026-01-31", Term("started", Comparison.AT_LEAST, datetime(2026, 2, 1, tzinfo=UTC))),
        ("started:<=2026-01-31", Term("started", Comparison.BELOW, datetime(2026, 2, 1, tzinfo=UTC))),
        ("started:>=2026-01-31", Term("started", Comparison.AT_LEAST, datetime(2026, 1, 31, tzinfo=UTC))),
    ],
)
def test_what_it_says(text: str, tree: object) -> None:
    assert parse(text, NOW).tree == tree


@pytest.mark.parametrize(
    ("text", "column", "said"),
    [
        ("typ:order", 1, "did you mean type?"),
        ("type:order stat:broken", 12, "did you mean state?"),
        ("state:brokn", 7, "did you mean broken?"),
        ("type:order (state:broken", 25, "a closing parenthesis"),
        ("type:order)", 11, "not expected"),
        ("order", 1, "a term is FIELD:VALUE"),
        ("type:order or", 14, "a term is missing"),
        ("timeouts:many", 10, "a number"),
        ("idle:1h", 6, "with > for longer"),
        ("idle:>soon", 7, "a time"),
        ("started:>2026-02-30", 10, "a date"),
        ("started:2026-01-31", 9, "takes > or <"),
        ("type:>order", 7, "> is for numbers"),
        ('type:"order', 6, "a quote that is not closed"),
        ("type.a:order", 1, "no field is called 'type.a'"),
        ("overdue:yes", 1, "it stands alone"),
    ],
)
def test_what_is_wrong_is_pointed_at(text: str, column: int, said: str) -> None:
    with pytest.raises(InputError) as error:
        parse(text, NOW)
    message, shown, caret = str(error.value).split("\n")
    assert message.startswith(f"column {column}: ") and said in message, message
    assert (shown, caret) == (text, " " * (column - 1) + "^")


@pytest.mark.parametrize(
    "text", ["(" * 100 + "type:a" + ")" * 100, "not " * 1000 + "type:a", "type:a " * 300, "x" * 20_000]
)
def test_too_much_is_an_error(text: str) -> None:
    with pytest.raises(InputError, match=r"more than|longer than"):
        parse(text, NOW)


@given(st.text(max_size=60))
def test_any_text_is_a_search_or_an_error(text: str) -> None:
    try:
        parse(text, NOW)
    except InputError as error:
        assert str(error)


def test_completion() -> None:
    assert "state:" in complete("st") and "started:" in complete("st") and complete("lab") == ["label."]
    assert complete("type:order state:br") == ["type:order state:broken"]
    assert len(complete("")) == len(FIELDS)
