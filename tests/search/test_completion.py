"""Completion of values that need quotes, and of terms that have no values."""

from __future__ import annotations

import pytest

from recovery.search.completion import complete

VALUES = {
    "type": ["XML-import", "order"],
    "error": ['say "no"', '5" disk', r"C:\temp", r"C:\my files", "<unknown>", ">5", "=x", "glob*", "a*b"],
    "label": ["customer"],
}


def values(field: str, _: str, start: str) -> list[str]:
    """Return the values of a field that begin with `start`."""
    return [one for one in VALUES.get(field, []) if one.startswith(start)]


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("error:<", '"<unknown>"'),
        ("error:>", '">5"'),
        ("error:=", '"=x"'),
        # With the asterisk at its end it would be the beginning of a text.
        ("error:g", '"glob*"'),
        ("error:a", "a*b"),
        ('error:"a', '"a*b"'),
        (r"error:C:\\t", r"C:\temp"),
        (r"error:C:\\m", r'"C:\\my files"'),
        (r'error:"say \"', r'"say \"no\""'),
    ],
)
def test_a_value_is_quoted_where_it_would_mean_something_else(typed: str, offered: str) -> None:
    assert complete(typed, values) == [f"error:{offered}"]


def test_a_quote_that_is_escaped_does_not_end_the_term() -> None:
    assert complete(r'overdue error:"5\" d', values) == [r'overdue error:"5\" disk"']


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("(type:o", ["(type:order"]),
        ("(overdue)type:o", ["(overdue)type:order"]),
        ("overdue\ttype:o", ["overdue\ttype:order"]),
        ("type:X", ["type:XML-import"]),
    ],
)
def test_a_term_begins_after_a_space_or_a_parenthesis(typed: str, offered: list[str]) -> None:
    assert complete(typed, values) == offered


@pytest.mark.parametrize("typed", ["type.customer:", "label:", "overdue:", "nothing:", "nothing"])
def test_an_invalid_term_is_offered_no_values(typed: str) -> None:
    assert complete(typed, lambda *_: ["order"]) == []


@pytest.mark.parametrize("typed", ["TYPE:o", "Type:o"])
def test_a_completed_field_keeps_its_upper_and_lower_case(typed: str) -> None:
    assert complete(typed, values) == [f"{typed}rder"]
