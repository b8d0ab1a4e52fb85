"""Values: what JSON carries comes back the same; anything else is refused with its place."""

from __future__ import annotations

import json
import math
from collections import OrderedDict
from collections.abc import Callable
from datetime import UTC, datetime
from enum import IntEnum
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recovery.errors import NotEncodable, TooLarge
from recovery.records import Failure, Promise, values
from recovery.records.values import MAX_BYTES, decode, encode, is_same
from tests.examples import examples

TEXTS = st.text('ab.$\\"é\U0001f600\0\u2028', max_size=6)
TASKS = st.from_regex(r"[a-z2-7]{16}", fullmatch=True)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=20,
)
WITH_PROMISES = st.recursive(
    JSON | st.builds(Promise, TASKS),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=10,
)


def kept(value: Any) -> Any:
    """A value with every promise replaced by what its task gives."""
    if isinstance(value, Promise):
        return ["value of", value.task_id]
    if isinstance(value, dict):
        return {key: kept(item) for key, item in value.items()}
    return [kept(item) for item in value] if isinstance(value, list) else value


def promised(value: Any) -> list[str]:
    """The tasks promised in a value, in order."""
    if isinstance(value, Promise):
        return [value.task_id]
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    return [task for item in inside for task in promised(item)]


@given(JSON)
@examples(60)
def test_json_comes_back_the_same(value: Any) -> None:
    encoded = encode(value, "value")
    assert encoded.promises == ()
    back = decode(encoded.text)
    assert back == value
    assert repr(back) == repr(value), "the types as well: 1, 1.0 and True are equal"


@given(WITH_PROMISES)
@examples(60)
def test_promises_come_back_as_their_values(value: Any) -> None:
    encoded = encode(value, "value")
    assert list(encoded.promises) == list(dict.fromkeys(promised(value))), "each once, in order"
    assert decode(encoded.text, lambda task: ["value of", task]) == kept(value)


@pytest.mark.parametrize(
    "value",
    [
        2**64, -(2**70), 10**4000, 0.1, -0.0, 1e308, 5e-324, "", "\0", "a\u2028b", "$promise", ["$promise"],
        {"a.b": {"$set": 1, "$": 2, "": 3}}, {"__proto__": None}, [[], {}, [[]]],
    ],
    ids=lambda value: repr(value)[:20].replace("\\", ""),
)  # fmt: skip
def test_what_other_stores_would_change(value: Any) -> None:
    assert repr(decode(encode(value, "value").text, lambda _: 1)) == repr(value)


def test_a_tuple_comes_back_as_a_list() -> None:
    assert decode(encode((1, (2,)), "value").text) == [1, [2]]


def test_a_hundred_levels_are_taken() -> None:
    value: Any = 0
    for _ in range(100):
        value = [value]
    assert decode(encode(value, "value").text) == value


class Color(IntEnum):
    RED = 1


CASES: list[tuple[Any, str]] = [
    (math.nan, "nan is not a JSON number"),
    (-math.inf, "-inf is not a JSON number"),
    ({1, 2}, "a builtins.set is not JSON"),
    (datetime(2026, 1, 1, tzinfo=UTC), "a datetime.datetime is not JSON"),
    (b"x", "a builtins.bytes is not JSON"),
    (1j, "a builtins.complex is not JSON"),
    (len, "a builtins.builtin_function_or_method is not JSON"),
    (Color.RED, "Color is not JSON"),
    (OrderedDict(a=1), "a collections.OrderedDict is not JSON"),
    (10**4300, "a whole number of over 4,300 digits"),
    (-(10**5000), "a whole number of over 4,300 digits"),
    ({1: "one"}, "the key 1 is not a str"),
    ({None: 1}, "the key None is not a str"),
    ({"$promise": "x"}, "the key '$promise' is reserved for promises"),
    ({"$promise": "x", "more": 1}, "the key '$promise' is reserved for promises"),
    ("\ud800", "holds a lone surrogate"),
    ({"\ud800": 1}, "holds a lone surrogate"),
]


@pytest.mark.parametrize(("value", "why"), [pytest.param(*case, id=case[1][:30]) for case in CASES])
@pytest.mark.parametrize(
    ("wrap", "place"),
    [
        (lambda value: value, ""),
        (lambda value: [0, value], "[1]"),
        (lambda value: {"a": [{"b.c": (value,)}]}, "['a'][0]['b.c'][0]"),
    ],
    ids=["bare", "list", "deep"],
)
def test_refused_with_its_place(wrap: Any, place: str, value: Any, why: str) -> None:
    with pytest.raises(NotEncodable) as refused:
        encode(wrap(value), "argument 2 of add")
    assert str(refused.value).startswith(f"argument 2 of add{place}: ")
    assert why in str(refused.value)


def test_what_contains_itself_is_refused() -> None:
    value: list[Any] = []
    value.append({"again": value})
    with pytest.raises(NotEncodable, match="contains itself"):
        encode(value, "value")


def test_a_hundred_and_one_levels_are_refused() -> None:
    value: Any = []
    for _ in range(101):
        value = [value]
    with pytest.raises(NotEncodable, match="nested over 100 levels deep"):
        encode(value, "value")


def test_too_large_is_counted_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values, "MAX_BYTES", 100)
    assert encode("é" * 49, "value").text == json.dumps("é" * 49, ensure_ascii=False)
    with pytest.raises(TooLarge, match="value: 102 bytes as JSON, over MongoDB's limit"):
        encode("é" * 50, "value")


@given(WITH_PROMISES)
@examples(60)
def test_what_is_counted_on_the_way_is_never_more_than_what_is_written(value: Any) -> None:
    size = len(encode(value, "value").text.encode())
    with patch.object(values, "MAX_BYTES", size):
        encode(value, "value")
    with patch.object(values, "MAX_BYTES", size - 1), pytest.raises(TooLarge, match="value: "):
        encode(value, "value")


@pytest.mark.parametrize("part", [Promise("abcdefgh"), "abc", [], {}, None, 1.5, Failure("k", "m", "a", "t")], ids=repr)
@pytest.mark.parametrize(
    "twice", [lambda part: [part, part], lambda part: {"a": part, "b": (part,)}], ids=["list", "dict"]
)
def test_what_is_shared_and_nested_is_not_written_to_be_measured(
    part: Any, twice: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """2^90 parts, or 2^45."""
    monkeypatch.setattr(values, "MAX_BYTES", 100_000)
    monkeypatch.delattr("json.dumps")
    for _ in range(45 if twice(0) != [0, 0] else 90):
        part = twice(part)
    with pytest.raises(TooLarge, match=r"value: at least 100,0.. bytes as JSON, over MongoDB's limit"):
        encode(part, "value")


def test_the_limit_leaves_room_for_the_other_fields() -> None:
    assert 15 * 2**20 < MAX_BYTES <= 16 * 2**20 - 60_000


@pytest.mark.parametrize(
    ("text", "other", "same"),
    [
        ('{"a":1,"b":[2]}', '{"b": [2.0], "a": 1}', True),
        ('"\\u00e9"', '"é"', True),
        ("1", "true", False),
        ("1", "2", False),
        ("[1]", "1", False),
        ("[1]", "[1,2]", False),
        ('{"a":1}', '{"a":2}', False),
        ("[0]", "[false]", False),
        ("[1,2]", "[2,1]", False),
        ('{"a":null}', "{}", False),
        ('{"a":1}', '["a"]', False),
        ("not JSON", "not JSON", True),
        ("not JSON", "1", False),
        ("[" * 100_000, "1", False),
    ],
)
def test_whether_two_texts_say_the_same(text: str, other: str, same: bool) -> None:
    assert is_same(text, other) is same is is_same(other, text)
