"""The limits of a search, and the terms, saved searches and texts that it reports."""

from __future__ import annotations

import pytest

from recovery.errors import InputError
from recovery.search import Term, parse, quoted
from recovery.search.language import MAX_DEPTH, MAX_LENGTH, MAX_TERMS
from recovery.search.query import Comparison
from tests.search.test_language import NOW

SAVED = {
    "stuck": "state:running idle:longer(1h)",
    "late": "overdue",
    "both": "@stuck or @late",
    "long": "overdue" + " " * MAX_LENGTH,
    **{f"link{n}": f"@link{n + 1}" for n in range(1, MAX_DEPTH + 1)},
    f"link{MAX_DEPTH + 1}": "overdue",
}


def nested(depth: int) -> str:
    return "(" * depth + "overdue" + ")" * depth


@pytest.mark.parametrize(
    ("longest", "longer", "said"),
    [
        (
            "overdue".ljust(MAX_LENGTH),
            "overdue".ljust(MAX_LENGTH + 1),
            "the search is longer than 10,000 characters",
        ),
        (nested(MAX_DEPTH), nested(MAX_DEPTH + 1), "the search has more than 50 parentheses, one in another"),
        ("(overdue) " * 60 + nested(MAX_DEPTH), "(overdue) " * 60 + nested(MAX_DEPTH + 1), "50 parentheses"),
        ("not " * MAX_DEPTH + "overdue", "not\t" * (MAX_DEPTH + 1) + "overdue", "50 times `not`, one after another"),
        ("not(" * MAX_DEPTH + "overdue" + ")" * MAX_DEPTH, "not(" * 2000 + "overdue" + ")" * 2000, "longer than"),
        ('error:"' + "(" * 100 + '"', 'error:"\ud800"', "holds a lone surrogate"),
        ("overdue " * MAX_TERMS, "overdue " * (MAX_TERMS + 1), "the search has more than 200 terms"),
        ("@link2", "@link1", "the search has more than 50 saved searches, one in another"),
    ],
)
def test_a_search_at_a_limit_is_taken_and_one_above_it_is_refused(longest: str, longer: str, said: str) -> None:
    assert parse(longest, NOW, lambda: SAVED)
    with pytest.raises(InputError, match=said):
        parse(longer, NOW, lambda: SAVED)


def test_a_saved_search_that_is_too_long_is_named() -> None:
    with pytest.raises(InputError) as error:
        parse("@long", NOW, lambda: SAVED)
    message = str(error.value).split("\n")[0]
    assert message == "column 1: in @long: the search is longer than 10,000 characters"


def test_a_search_knows_the_saved_searches_that_it_names_itself() -> None:
    assert parse("@both or not @stuck", NOW, lambda: SAVED).saved == ("both", "stuck")
    assert parse("overdue", NOW, lambda: SAVED).saved == ()


def test_a_search_lists_all_of_its_terms() -> None:
    found = parse("type:order (not overdue or not (state:broken id:p1)) @late", NOW, lambda: SAVED)
    assert [term.field for term in found.terms()] == ["type", "overdue", "state", "id", "overdue"]
    assert list(parse("", NOW).terms()) == []


def test_a_label_has_its_name() -> None:
    assert parse("label.customer:acme", NOW).tree == Term("label", Comparison.IS, "acme", "customer")


@pytest.mark.parametrize("text", ["order", 'say "no"', r"C:\my files", "(glob*", r"a\"b", "\\", ">5"])
def test_a_quoted_text_means_just_that(text: str) -> None:
    assert parse(f"type:{quoted(text)}", NOW).tree == Term("type", Comparison.IS, text)


def test_quotes_and_backslashes_are_escaped() -> None:
    assert quoted(r'a "b" \c') == r'"a \"b\" \\c"'
