"""Completion of the last term of a search, and of terms that have no values."""

from __future__ import annotations

import pytest

from recovery.search.fields import complete

VALUES = {"type": ["XML-import", "order"], "error": ["OSError", "=x"], "label": ["customer"]}


def values(field: str, _: str, start: str) -> list[str]:
    """Return the values of a field that begin with `start`."""
    return [one for one in VALUES.get(field, []) if one.startswith(start)]


@pytest.mark.parametrize(
    ("before", "term", "offered"),
    [
        ("(", "type:o", ["type:order"]),
        ("(overdue)", "type:o", ["type:order"]),
        ("overdue\t", "type:o", ["type:order"]),
        ("", "type:X", ["type:XML-import"]),
        # Within quotes: a quote that is escaped does not end them, one after a backslash that is escaped does.
        (r'overdue error:"C:\\" ', "type:o", ["type:order"]),
        (r'error:"5\" disk" ', "type:o", ["type:order"]),
        ("error:C:\\ ", "type:o", ["type:order"]),
        ("overdue ", r'error:"5\" type:o', []),
        ("", 'error:"OS', []),
        # In no quotes it would be no value.
        ("", "error:", ["error:OSError"]),
    ],
)
def test_the_last_term_is_completed(before: str, term: str, offered: list[str]) -> None:
    assert complete(before + term, values) == (before, offered)


@pytest.mark.parametrize("typed", ["type.customer:", "label:", "overdue:", "nothing:", "nothing"])
def test_an_invalid_term_is_offered_no_values(typed: str) -> None:
    assert complete(typed, lambda *_: ["order"]) == ("", [])


@pytest.mark.parametrize("typed", ["TYPE:o", "Type:o"])
def test_a_completed_field_keeps_its_upper_and_lower_case(typed: str) -> None:
    assert complete(typed, values) == ("", [f"{typed}rder"])
