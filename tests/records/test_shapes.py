"""Values from documents become what a field's type hint says, or are refused with what they are and should be."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import bson
import pytest

from recovery.records.shapes import NUMBERS, Shape, Wrong, kind_of, shape_of

NOW = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.fixture(autouse=True)
def forget_shapes() -> None:
    """Have shapes made within each test, because they are kept for the life of the process."""
    shape_of.cache_clear()


class Color(StrEnum):
    RED = "red"
    BLUE = "blue"


class Nested:
    """Stands for a record within a record."""


NESTED = Shape(None, lambda value: ("nested", value), ("object",))


def record(kind: Any) -> Shape:
    """The shape of `Nested`, which is the only nested record here."""
    assert kind is Nested
    return NESTED


def read(hint: Any, value: Any) -> Any:
    """What a document's value becomes in a field of this type."""
    shape = shape_of(hint, record)
    return value if type(value) is shape.exact else shape.decode(value)


def refusal(hint: Any, value: Any) -> str:
    """Why a document's value is none of this type."""
    with pytest.raises(Wrong) as wrong:
        read(hint, value)
    return str(wrong.value)


@pytest.mark.parametrize(
    ("hint", "value", "expected"),
    [
        (str, "text", "text"),
        (str | None, "text", "text"),
        (datetime, NOW, NOW),
        (int, 5, 5),
        (int, bson.Int64(5), 5),
        (int, 5.0, 5),
        (int, -(2.0**63), -(2**63)),
        (float, 5, 5.0),
        (float, 0.5, 0.5),
        (float | None, bson.Int64(5), 5.0),
        (bool, True, True),
        (bool, 0, False),
        (bool, 2.5, True),
        (Color, "blue", Color.BLUE),
        (Nested | None, 5, ("nested", 5)),
        (tuple[str, ...], [], ()),
        (tuple[str, ...], ["a", "b"], ("a", "b")),
        (tuple[int, ...], [1, 2.0], (1, 2)),
        (tuple[Color, ...] | None, ["red"], (Color.RED,)),
        (dict[str, int], {}, {}),
        (dict[str, int], {"a": 1}, {"a": 1}),
        (dict[str, int], {"a": 1, "b": 2.0}, {"a": 1, "b": 2}),
        (dict[str, dict[str, int]], {"a": {"b": 1.0}}, {"a": {"b": 1}}),
        (dict[str, bool], {"a": "anything"}, {"a": "anything"}),
    ],
    ids=str,
)
def test_a_value_is_read_as_its_fields_type(hint: Any, value: Any, expected: Any) -> None:
    # By repr, since 1, 1.0 and True are equal.
    assert repr(read(hint, value)) == repr(expected)


@pytest.mark.parametrize(
    ("hint", "value", "message"),
    [
        (str, 5, "a number, not a text"),
        (datetime, "today", "a text, not a date"),
        (int, "5", "a text, not a whole number"),
        (int, True, "a boolean, not a whole number"),
        (int, 5.5, "5.5, not a whole number"),
        (int, math.nan, "nan, not a whole number"),
        (int, 2.0**63, "9.223372036854776e+18, not a whole number"),
        (int, -(2.0**64), "-1.8446744073709552e+19, not a whole number"),
        (float, "5", "a text, not a number"),
        (float, True, "a boolean, not a number"),
        (float, math.inf, "inf, not a number that can be worked with"),
        pytest.param(float, 10**400, f"1{'0' * 59}…, not a number that can be worked with", id="400 digits"),
        (bool, "yes", "a text, not a boolean"),
        (Color, "green", "'green', not one of red, blue"),
        (Color, ["red"], "an array, not one of red, blue"),
        (tuple[str, ...], "a", "a text, not an array"),
        (tuple[str, ...], ["a", 5], "at 1 a number, not a text"),
        (tuple[int, ...], [1, 2.0, "c"], "at 2 a text, not a whole number"),
        (tuple[Color, ...], ["red", None], "at 1 null, not one of red, blue"),
        (dict[str, int], [], "an array, not an object"),
        (dict[str, int], {"a": 1, "b": "c"}, "at 'b' a text, not a whole number"),
        (dict[str, dict[str, int]], {"a": {"b": NOW}}, "at 'a' at 'b' a date, not a whole number"),
        (dict[str, bool], 5, "a number, not an object"),
    ],
    ids=str,
)
def test_a_value_of_another_type_is_refused(hint: Any, value: Any, message: str) -> None:
    assert refusal(hint, value) == message


@pytest.mark.parametrize(
    ("hint", "types"),
    [
        (str, ("string",)),
        (int, NUMBERS),
        (float, NUMBERS),
        (bool, ("bool", *NUMBERS)),
        (datetime | None, ("date",)),
        (Color, ("string",)),
        (tuple[str, ...], ("array",)),
        (dict[str, int], ("object",)),
        (dict[str, bool], ("object",)),
        (Nested, ("object",)),
    ],
    ids=str,
)
def test_a_field_may_have_these_types_in_mongodb(hint: Any, types: tuple[str, ...]) -> None:
    assert shape_of(hint, record).types == types


def test_an_array_has_the_shape_of_its_entries() -> None:
    assert shape_of(tuple[Nested, ...], record).entry is NESTED
    assert shape_of(tuple[tuple[str, ...], ...], record).entry == shape_of(tuple[str, ...], record)


def test_a_choice_has_only_its_members_as_values() -> None:
    assert shape_of(Color, record).choices == ("red", "blue")
    assert shape_of(str, record).choices == ()


@pytest.mark.parametrize("hint", [tuple[int, ...], Color, dict[str, int], float], ids=str)
def test_no_type_is_taken_unread_where_each_part_has_to_be_read(hint: Any) -> None:
    assert shape_of(hint, record).exact is None


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("x", "a text"), (True, "a boolean"), (1, "a number"), (1.5, "a number"), (NOW, "a date"), ({}, "an object"),
        ([], "an array"), (None, "null"),
        (bson.ObjectId("5f" * 12), "a BSON ObjectId"), (bson.Int64(1), "a BSON Int64"),
    ],
    ids=str,
)  # fmt: skip
def test_a_value_is_called_by_its_kind(value: Any, told: str) -> None:
    assert kind_of(value) == told
