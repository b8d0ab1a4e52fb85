"""What the language says, and how it says what is wrong."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recovery.errors import InputError
from recovery.search import FIELDS, All, And, Node, Not, Or, Term, parse
from recovery.search.fields import complete
from recovery.search.query import Comparison

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
        ("not not type:order", TYPE),
        ("not\tNOT not(type:order)", Not(TYPE)),
        ("(overdue)or(type:order)", Or((Term("overdue", Comparison.IS, None), TYPE))),
        ("not (type:order or state:broken)", Not(Or((TYPE, STATE)))),
        ("type:order state:broken or type:order", Or((And((TYPE, STATE)), TYPE))),
        ("type:or", Term("type", Comparison.IS, "or")),
        ("type:ord*", Term("type", Comparison.STARTS, "ord")),
        ('type:"ord*"', Term("type", Comparison.IS, "ord*")),
        (r'error:"say \"no\""', Term("error", Comparison.IS, 'say "no"')),
        ("overdue", Term("overdue", Comparison.IS, None)),
        ("refused", Term("refused", Comparison.IS, None)),
        ("timeouts:>=3", Term("timeouts", Comparison.AT_LEAST, 3)),
        ("idle:longer(1h)", Term("idle", Comparison.ABOVE, 3600.0)),
        ("started:within(2h)", Term("started", Comparison.ABOVE, NOW - timedelta(hours=2))),
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
        ("idle:1h", 6, "longer(1h) or shorter(1h)"),
        ("idle:>soon", 7, "a time such as"),
        ("started:>2026-02-30", 10, "a date"),
        ("started:2026-01-31", 9, "takes > or <"),
        ("type:>order", 7, "> is for numbers"),
        ('type:"order', 6, "a quote that is not closed"),
        ("type.a:order", 1, "no field is called 'type.a'"),
        ("overdue:yes", 1, "it stands alone"),
        # Words that are not apart are other words.
        ("notoverdue", 1, "'notoverdue' is no term"),
        ("overdueoverdue", 1, "'overdueoverdue' is no term"),
        ("type:order andoverdue", 12, "'andoverdue' is no term"),
        ("type:order oroverdue", 12, "'oroverdue' is no term"),
    ],
)
def test_what_is_wrong_is_pointed_at(text: str, column: int, said: str) -> None:
    with pytest.raises(InputError) as error:
        parse(text, NOW)
    message, shown, caret = str(error.value).split("\n")
    assert message.startswith(f"column {column}: ") and said in message, message
    assert (shown, caret) == (text, " " * (column - 1) + "^")


@pytest.mark.parametrize(
    "text",
    [
        "(" * 100 + "type:a" + ")" * 100,
        "not " * 1000 + "type:a",
        "not\n" * 2000 + "type:a",
        "type:a " * 300,
        "x" * 20_000,
    ],
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


VALUES = {
    ("type", ""): ["order", "mail"],
    ("error", ""): ["OSError", "No such (file)", 'say "no"'],
    ("label", ""): ["customer", "region"],
    ("label", "customer"): ["acme"],
    ("@", ""): ["stuck-orders", "stuck-mails"],
}


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("st", ["state:", "started:"]),
        ("type:order state:br", ["type:order state:broken"]),
        ("not (state:br", ["not (state:broken"]),
        ("type:o", ["type:order"]),
        # Of the only one the values: a shell goes on to the next word after what it was offered alone.
        ("typ", ["type:order", "type:mail"]),
        ("lab", ["label.customer:", "label.region:"]),
        ("label.c", ["label.customer:acme"]),
        ("label.customer:", ["label.customer:acme"]),
        ("over", ["overdue"]),
        ("ref", ["refused"]),
        ("idle:longer(1h) @stuck-o", ["idle:longer(1h) @stuck-orders"]),
        ("@", ["@stuck-orders", "@stuck-mails"]),
        ('error:"No such (f', []),
        ('error:"No such (file)" typ', ['error:"No such (file)" type:order', 'error:"No such (file)" type:mail']),
        ("timeouts:>3", []),
        ("idle:longer(1", []),
        ("idle:longer(", []),
        ("nothing:", []),
        ("overdue:", []),
        ("type.a:", []),
    ],
)
def test_completion(typed: str, offered: list[str]) -> None:
    def values(field: str, member: str, start: str) -> list[str]:
        return [one for one in VALUES.get((field, member), []) if one.startswith(start)]

    before, terms = complete(typed, values)
    assert [before + term for term in terms] == offered
    for text in offered:
        if not text.endswith((":", ".")) and not text.startswith(("not (", "@", "idle")):
            assert parse(text, NOW)


def test_all_fields_are_offered() -> None:
    assert len(complete("", lambda *_: [])[1]) == len(FIELDS)


SAVED = {
    "stuck": "state:running idle:longer(1h)",
    "both": "@stuck or @late",
    "late": "overdue",
    "one": "@two type:order",
    "two": "not @one",
    "older": "type:order stat:broken",
    "uses-older": "type:order @older",
    "empty": " ",
    "long": " or ".join(["type:" + "x" * 900] * 6),
    "deep": "(" * 30 + "overdue" + ")" * 30,
    **{f"double{n}": f"@double{n + 1} @double{n + 1}" for n in range(40)},
    "double40": "type:order",
    **{f"link{n}": f"@link{n + 1}" for n in range(3000)},
    "link3000": "type:order",
}


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("@stuck", "state:running idle:longer(1h)"),
        ("not @stuck type:order", "not (state:running idle:longer(1h)) type:order"),
        ("not (@both)", "not (((state:running idle:longer(1h)) or (overdue)))"),
        ("@late or @late", "(overdue) or (overdue)"),
        ('type:@late error:"@late"', 'type:@late error:"@late"'),
    ],
)
def test_what_is_saved_is_in_the_place_of_its_name(text: str, expanded: str) -> None:
    found = parse(text, NOW, lambda: SAVED)
    assert found.text == expanded
    assert found.tree == parse(expanded, NOW).tree


@pytest.mark.parametrize(
    ("text", "column", "said"),
    [
        ("type:order @stuk", 12, "no search is saved as 'stuk'; did you mean @stuck?"),
        ("@", 1, "no search is saved as ''; there are @both, @deep, @double0"),
        ("@one", 1, "in @one, column 1: in @two, column 5: @one would be a part of itself"),
        ("overdue @uses-older", 9, "in @uses-older, column 12: in @older, column 12: no field is called 'stat'"),
        ("@empty", 1, "in @empty"),
        # Each part of them could be read, and what an operation would keep could not.
        ("type:order @long @long", None, "the search is longer than 10,000 characters"),
        ("((((((((((((((((((((@deep))))))))))))))))))))", None, "more than 50 parentheses"),
        ("@double0", 1, "the search has more than 200 terms"),
        ("@link0", 1, "the search has more than 50 saved searches, one in another"),
    ],
)
def test_what_is_wrong_with_what_is_saved(text: str, column: int | None, said: str) -> None:
    with pytest.raises(InputError) as error:
        parse(text, NOW, lambda: SAVED)
    if column is None:
        assert said in str(error.value)
        return
    message, shown, caret = str(error.value).split("\n")
    assert message.startswith(f"column {column}: ") and said in message, message
    assert (shown, caret) == (text, " " * (column - 1) + "^")


def searches(*terms: str) -> st.SearchStrategy[str]:
    def combined(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        pairs = st.tuples(parts, st.sampled_from([" ", " and ", " or "]), parts).map("".join)
        return st.one_of(pairs, parts.map(lambda one: f"({one})"), parts.map(lambda one: f"not {one}"))

    return st.recursive(st.sampled_from(terms), combined, max_leaves=6)


@given(
    text=searches("@a", "@b", "overdue", 'type:"(@a"'),
    a=searches("@b", "type:a", "overdue"),
    b=searches("state:broken", "idle:longer(1h)", 'error:"not @a"'),
)
def test_what_an_operation_keeps_is_what_was_asked_for(text: str, a: str, b: str) -> None:
    found = parse(text, NOW, lambda: {"a": a, "b": b})
    assert flat(parse(found.text, NOW).tree) == flat(found.tree)


def flat(node: Node) -> Node:
    """Without an `and` in an `and`, which means the same as one."""
    match node:
        case And(parts) | Or(parts):
            kind, whole = type(node), list[Node]()
            for part in map(flat, parts):
                whole += part.parts if isinstance(part, And | Or) and isinstance(part, kind) else (part,)
            return kind(tuple(whole))
        case Not(part):
            return Not(flat(part))
    return node


def test_saved_searches_are_asked_for_once_and_only_where_they_are_named() -> None:
    asked = list[None]()

    def saved() -> dict[str, str]:
        asked.append(None)
        return SAVED

    parse("type:order", NOW, saved)
    assert not asked
    parse("@both or @stuck", NOW, saved)
    assert len(asked) == 1


def test_what_is_to_be_saved_has_not_itself_in_it() -> None:
    with pytest.raises(InputError, match="column 1: in @both, column 1: @stuck would be a part of itself"):
        parse("@both", NOW, lambda: SAVED, name="stuck")
