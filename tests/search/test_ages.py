"""Ages by forms that say what they mean; those with signs, which earlier versions wrote; and selections in words."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from recovery.errors import InputError
from recovery.search import Term, has_signed_ages, in_words, parse, rewritten, stored_in_words
from recovery.search.query import Comparison

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
AGO = NOW - timedelta(days=90)
SAVED = {"old": "type:order ended:<90d"}


@pytest.mark.parametrize(
    ("text", "term"),
    [
        ("ended:before(90d)", Term("ended", Comparison.BELOW, AGO)),
        ("started:within(90d)", Term("started", Comparison.ABOVE, AGO)),
        ("ended:BEFORE( 90d )", Term("ended", Comparison.BELOW, AGO)),
        ("idle:longer(1h)", Term("idle", Comparison.ABOVE, 3600.0)),
        ("idle:shorter(1h)", Term("idle", Comparison.BELOW, 3600.0)),
    ],
)
def test_a_form_says_what_it_means(text: str, term: Term) -> None:
    assert parse(text, NOW).tree == term


@pytest.mark.parametrize(
    ("typed", "readings"),
    [
        (
            "type:a ended:<90d",
            ["type:a ended:before(90d)   ended longer than", "type:a ended:within(90d)   ended in the"],
        ),
        ("ended:>=90d", ["ended:before(90d)   ended longer than 90d ago", "ended:within(90d)   ended in the last 90d"]),
        (
            'not started:>"2h"',
            ["not started:before(2h)", "not started:within(2h)   started in the last 2h, as earlier"],
        ),
        ("idle:>1h", ["idle:longer(1h)    nothing has changed for longer than 1h, as", "idle:shorter(1h)   something"]),
    ],
)
def test_an_age_with_a_sign_is_refused_with_both_readings(typed: str, readings: list[str]) -> None:
    with pytest.raises(InputError) as error:
        parse(typed, NOW)
    first, line, caret, *shown = str(error.value).split("\n")
    assert "can be read in two ways; write the one that you mean:" in first
    assert (line, caret.index("^")) == (typed, int(first.split()[1].rstrip(":")) - 1)
    assert len(shown) == 2
    for reading, wanted in zip(shown, readings, strict=True):
        assert reading.strip().startswith(wanted)
        assert parse(reading.split("   ")[0] or reading.strip().split("   ")[0], NOW), "a search to copy"


def test_of_a_long_search_only_the_term_is_written_out() -> None:
    with pytest.raises(InputError, match=r"\n  ended:before\(90d\)   ended"):
        parse(f"type:{'x' * 400} ended:<90d", NOW)


def test_a_date_with_a_sign_is_taken() -> None:
    assert parse("ended:<2026-01-01 started:>=2025-01-01T10:00", NOW)


@pytest.mark.parametrize(
    ("stored", "today"),
    [
        ("ended:<90d", "ended:before(90d)"),
        ("(idle:>1h or idle:<2m) not started:>2h", "(idle:longer(1h) or idle:shorter(2m)) not started:within(2h)"),
        ('Ended:<"90d" @old', "Ended:before(90d) @old"),
        ("ended:< 90d", "ended:before(90d)"),
        ("ended:>90 type:a", "ended:within(90) type:a"),
    ],
)
def test_a_stored_age_keeps_its_meaning_and_is_rewritten(stored: str, today: str) -> None:
    assert has_signed_ages(stored)
    assert rewritten(stored) == today
    assert not has_signed_ages(today)
    before, after = parse(stored, NOW, lambda: SAVED, is_stored=True), parse(today, NOW, lambda: SAVED)
    assert after.tree == before.tree


@pytest.mark.parametrize(
    "text", ["ended:<2026-01-01", "timeouts:>3", 'type:"ended:<90d"', "", "((", "ended:before(1d)"]
)
def test_other_texts_stay_as_they_are(text: str) -> None:
    assert not has_signed_ages(text)
    if text != "((":
        assert rewritten(text) == text


def test_one_that_would_be_too_long_is_not_rewritten() -> None:
    with pytest.raises(InputError, match="longer than 10,000 characters"):
        rewritten(f"type:{'x' * 900} " * 11 + "ended:<1d " + "ended:<1d " * 5)


def test_what_a_person_types_may_name_a_stored_search_with_signs() -> None:
    assert parse("@old state:finished", NOW, lambda: SAVED).text == "(type:order ended:<90d) state:finished"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "all processes"),
        ("ended:before(90d)", "processes that ended before 2026-08-25 12:00:00 UTC"),
        (
            "type:order (state:aborted or started:within(1d)) not label.customer:acme",
            "processes of the type order and (in the state aborted or that started after 2026-11-22 12:00:00 UTC) and "
            "not with the label customer acme",
        ),
        ("idle:longer(90m)", "processes that have been unchanged for longer than 90m"),
        (
            "id:a* timeouts:>3 overdue code:7",
            "processes with the id that begins with a and with a task whose number of lost attempts is above 3 and "
            "with an overdue deadline and with the error code 7",
        ),
    ],
)
def test_a_selection_in_words(text: str, words: str) -> None:
    assert in_words(parse(text, NOW)) == words


def test_a_stored_selection_in_words() -> None:
    assert stored_in_words("ended:<90d", NOW) == "processes that ended before 2026-08-25 12:00:00 UTC"
    assert stored_in_words("stat:x", NOW).startswith("unknown, because the selection can't be read: column 1: no field")
