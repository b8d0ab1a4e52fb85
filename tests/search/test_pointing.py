"""The messages of errors in a search, and the column that they point at."""

from __future__ import annotations

import pytest

from recovery.errors import InputError
from recovery.search import FIELDS, parse
from tests.search.test_language import NOW

NAMES = ", ".join("label.NAME" if name == "label" else name for name in FIELDS)


def error_of(text: str, saved: dict[str, str] | None = None) -> list[str]:
    """Return the lines of an error: the message, the text that is wrong, and the caret below it."""
    with pytest.raises(InputError) as error:
        parse(text, NOW, lambda: saved or {})
    return str(error.value).split("\n")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("xyzzy:1", f"column 1: no field is called 'xyzzy'; there are {NAMES}"),
        ("LABELS:acme", "column 1: no field is called 'LABELS'; did you mean label.NAME?"),
        # Half of the letters are enough.
        ("process_type:order", "column 1: no field is called 'process_type'; did you mean type?"),
        (
            "overdue xyzzy now",
            "column 9: 'xyzzy' is no term: a term is FIELD:VALUE, as in state:broken; no field is called 'xyzzy'; "
            f"there are {NAMES}",
        ),
        ("type:order)", "column 11: ')' is not expected here"),
        ("(type:order or ", "column 16: the search ends too early: a term is missing, or a closing parenthesis"),
        ('type:"order', "column 6: a quote that is not closed, or is in the wrong place"),
    ],
)
def test_the_message_says_what_is_wrong_and_what_is_right(text: str, message: str) -> None:
    assert error_of(text)[0] == message


@pytest.mark.parametrize(
    ("name", "saved", "there"),
    [
        ("stuck", {}, "there is none (`recovery search save`)"),
        ("stuck", {"stuck-orders": "overdue", "stuck-mails": "overdue"}, "did you mean @stuck-mails?"),
        ("stuck", {"stuck-orders": "overdue"}, "did you mean @stuck-orders?"),
        ("x", {"late": "overdue", "broken": "state:broken"}, "there are @broken, @late"),
        (
            "x",
            {f"late{n:02}": "overdue" for n in range(30)},
            f"there are {', '.join(f'@late{n:02}' for n in range(20))}",
        ),
    ],
)
def test_an_unknown_saved_search_is_refused_with_names_that_exist(name: str, saved: dict[str, str], there: str) -> None:
    assert error_of(f"@{name}", saved)[0] == f"column 1: no search is saved as {name!r}; {there}"


def test_the_error_of_a_long_search_shows_the_part_around_it() -> None:
    text = f"type:{'a' * 65} typ:{'b' * 60}"
    message, shown, caret = error_of(text)
    assert message.startswith("column 72: no field is called 'typ'")
    assert shown == f"{'a' * 59} typ:{'b' * 36}"
    assert caret == " " * 60 + "^"


def test_a_search_of_several_lines_is_shown_in_one() -> None:
    message, shown, caret = error_of("type:order\ntyp:mail\noverdue")
    assert message.startswith("column 12: ")
    assert (shown, caret) == ("type:order typ:mail overdue", " " * 11 + "^")
