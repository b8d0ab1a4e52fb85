"""How values are written, what is counted of them, and how the refusal of one reads."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from recovery.errors import InputError, NotEncodable, TooLarge
from recovery.records import Failure, Promise, values
from recovery.records.values import decode, dump, encode, promise_bytes, promise_text

FAILED = Failure("ValueError", "é", "pay", "abc")
LIMIT = "MongoDB's limit of 16 MB per record; store the data elsewhere and pass its address"


def refusal(value: Any) -> str:
    """Why a value can't be encoded."""
    with pytest.raises(NotEncodable) as refused:
        encode(value, "argument 2 of add")
    return str(refused.value)


def test_a_value_is_written_in_the_fewest_characters() -> None:
    value = {"a": [1, "é", FAILED]}
    text = '{"a":[1,"é",{"$failure":{"kind":"ValueError","message":"é","actor":"pay","task":"abc"}}]}'
    assert encode(value, "value").text == dump(value) == text


def test_a_promise_is_written_by_its_task() -> None:
    assert encode([Promise("abc", "add")], "value").text == f"[{promise_text('abc')}]" == '[{"$promise":"abc"}]'
    assert promise_bytes("abc") == len(promise_text("abc"))


def test_promises_stay_as_they_are_where_nothing_resolves_them() -> None:
    promise, failure = promise_text("abc"), encode(FAILED, "value").text
    assert decode(promise) == {"$promise": "abc"}
    assert decode(f"[{promise},{failure}]") == [{"$promise": "abc"}, FAILED]


@pytest.mark.parametrize("use", [bool, str, len, iter, lambda promise: promise[0], lambda promise: f"{promise}"])
@pytest.mark.parametrize(("promise", "name"), [(Promise("abc", "add"), "add"), (Promise("abc"), "abc")])
def test_a_promise_can_not_pass_for_its_value(use: Callable[[Any], Any], promise: Promise, name: str) -> None:
    with pytest.raises(InputError) as refused:
        use(promise)
    assert str(refused.value) == (f"the promise of {name} has no value yet: pass it to a task, which gets the value")


@pytest.mark.parametrize(
    ("value", "size"),
    [
        ("abc", 5),
        ("éé", 4),
        (None, 4),
        (True, 4),
        (False, 4),
        (0, 1),
        (2**40, 12),
        (-(2**40), 12),
        (0.5, 3),
        ([], 2),
        ([1, 2], 5),
        ((1, 2, 3), 7),
        ({}, 2),
        ({"ab": 1}, 8),
        ({"a": 1, "b": 2}, 13),
        (Promise("abc"), len('{"$promise":"abc"}')),
        (FAILED, len("ValueErrorépayabc")),
    ],
)
def test_each_kind_of_value_counts_at_the_least(value: Any, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values, "MAX_BYTES", size - 1)
    with pytest.raises(TooLarge) as refused:
        encode(value, "value")
    assert str(refused.value) == f"value: at least {size} bytes as JSON, over {LIMIT}"


def test_a_value_that_is_too_large_is_told_with_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values, "MAX_BYTES", 2000)
    with pytest.raises(TooLarge) as refused:
        encode("é" * 1000, "value")
    assert str(refused.value) == f"value: 2,002 bytes as JSON, over {LIMIT}"
    with pytest.raises(TooLarge) as refused:
        encode("é" * 2000, "value")
    assert str(refused.value) == f"value: at least 2,002 bytes as JSON, over {LIMIT}"


@pytest.mark.parametrize(
    ("value", "place", "why"),
    [
        (math.nan, "", "nan is not a JSON number; use None or a string"),
        (10**4300, "", "a whole number of over 4,300 digits; use a string of hex digits"),
        (
            datetime(2026, 1, 1, tzinfo=UTC),
            "",
            "a datetime.datetime is not JSON; pass None, bool, int, float, str, list, dict or a promise "
            "(a date as text, a set as a list, an object as a dict)",
        ),
        ({"a": 0, 1: 0}, "", "the key 1 is not a str, and JSON would turn it into one"),
        ({"a": [{"$promise": "x"}]}, "['a'][0]", "the key '$promise' is reserved for promises; rename it"),
        ({"a": {"b": 0, "$failure": 0}}, "['a']", "the key '$failure' is reserved for failures; rename it"),
        ([Promise(5)], "[0]", "a promise is what `schedule` gave, not one of 5"),  # type: ignore[arg-type]
        ([[Failure("K", "m", None, "t")]], "[0][0].actor", "a failure's actor is a str, not None"),  # type: ignore[arg-type]
    ],
    ids=["nan", "digits", "date", "key", "promise's key", "failure's key", "promise", "failure"],
)
def test_a_refusal_names_the_place_and_what_to_do(value: Any, place: str, why: str) -> None:
    assert refusal(value) == f"argument 2 of add{place}: {why}"


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ("\ud800", ""),
        ("a\udfff", ""),
        (["é\ue000\U0001f600", "\udfff"], "[1]"),
        (("a", ["\ud800"]), "[1][0]"),
        ({"a": "b", "c": {"d": "\ud800"}}, "['c']['d']"),
        ([{"\ud800": 1}], "[0]"),
        ([FAILED, Failure("K", "\ud800", "a", "t")], "[1].message"),
        ([1, Promise("\ud800")], "[1]"),
    ],
    ids=["first", "last", "list", "tuple", "dict", "key", "failure", "promise"],
)
def test_a_lone_surrogate_is_refused_with_its_place(value: Any, place: str) -> None:
    assert refusal(value) == f"argument 2 of add{place}: holds a lone surrogate, which is not text; remove it"


def nested(levels: int) -> Any:
    """An empty list within so many others."""
    value: Any = []
    for _ in range(levels):
        value = [value]
    return value


def test_a_list_within_a_hundred_others_is_the_deepest() -> None:
    assert decode(encode(nested(100), "value").text) == nested(100)
    place = f"argument 2 of add{'[0]' * 101}"
    assert refusal(nested(101)) == f"{place[:200]}…: nested over 100 levels deep, or contains itself"
