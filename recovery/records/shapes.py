"""Derives the shape of a record's field from its type hint: how its stored value is decoded, and which BSON types it
may have.

MongoDB's validators and the decoder use the same shapes, so that a document that passes the validators can be read.
Exceptions are entries of maps and the ranges of numbers, which the validators do not check.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from functools import cache
from typing import Any, Literal, get_args

from recovery.records.given import is_finite, shown
from recovery.records.ids import ACTOR_NAME_PATTERN, ActorName, Epoch, is_actor_name

NUMBERS = ("int", "long", "double")
_LONG = 2**63
_WORDS: Mapping[type, str] = {
    str: "a text", bool: "a boolean", int: "a number", float: "a number", datetime: "a date", dict: "an object",
    list: "an array", type(None): "null",
}  # fmt: skip


class Wrong(Exception):
    """Raised for a value that a field cannot hold. The text states what the value is and what the field needs."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The values that a field may hold. A value of type `exact` is used unchanged; `decode` converts any other value or
    raises Wrong."""

    exact: type | None
    decode: Callable[[Any], Any]
    types: tuple[str, ...]
    """MongoDB's names of the allowed types; empty: any type can be read."""
    choices: tuple[str, ...] = ()
    """The allowed values; empty: any value of the type."""
    least: int | None = None
    """The lowest allowed number."""
    pattern: str = ""
    """A regular expression in MongoDB's syntax that a text must match."""
    entry: Shape | None = None
    """For an array: the shape of its entries."""
    parts: Mapping[str, Shape] = field(default_factory=dict)
    """For a nested record: {field of its document: shape}."""
    required: tuple[str, ...] = ()
    """For a nested record: the required fields of its document."""


@cache
def shape_of(hint: Any, record: Callable[[Any], Shape]) -> Shape:
    """Return the shape of a type hint. An optional type has the shape of its type besides None.

    Args:
        hint: The type hint of a field.
        record: Returns the shape of a nested record's class.
    """
    if hint in _SCALARS:
        return _SCALARS[hint]
    candidates = [arg for arg in get_args(hint) if arg is not type(None)]
    origin = getattr(hint, "__origin__", None)
    if origin is tuple:
        return _sequence(shape_of(candidates[0], record))
    if origin is dict:
        # Only the names of a {name: True} are used, so its values are not checked.
        return _NAMES if candidates[1] is bool else _mapping(shape_of(candidates[1], record))
    plain = candidates[0] if candidates else hint
    if plain is not hint and getattr(plain, "__origin__", None) is not None:
        return shape_of(plain, record)
    if plain in _SCALARS:
        return _SCALARS[plain]
    if origin is Literal:
        return _constant(*candidates)
    if isinstance(plain, type) and issubclass(plain, Enum):
        return _choice(plain)
    return record(plain)


def _refuse(wanted: str) -> Callable[[Any], Any]:
    """Return a decoder that raises Wrong for any value."""

    def decode(value: Any) -> Any:
        raise Wrong(f"{kind_of(value)}, not {wanted}")

    return decode


def _whole(value: Any) -> int:
    # An int subclass is Int64, pymongo's type for a long. A float may be a whole number: mongosh writes all numbers as
    # doubles.
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value)
    # A number of more than 64 bits could be read, but MongoDB could neither store it nor search for it.
    if isinstance(value, float) and value.is_integer() and -_LONG <= value < _LONG:
        return int(value)
    raise Wrong(f"{shown(value) if isinstance(value, float) else kind_of(value)}, not a whole number")


def _epoch(value: Any) -> int:
    number = _whole(value)
    if number < 0:
        raise Wrong(f"{number}, less than 0")
    return number


def _fraction(value: Any) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise Wrong(f"{kind_of(value)}, not a number")
    if not is_finite(value):
        raise Wrong(f"{shown(value)}, not a number that can be worked with")
    return float(value)


def _switch(value: Any) -> bool:
    if isinstance(value, int | float):
        return bool(value)
    raise Wrong(f"{kind_of(value)}, not a boolean")


def _choice(kind: type[Enum]) -> Shape:
    members = {member.value: member for member in kind}

    def decode(value: Any) -> Enum:
        if type(value) is str and value in members:
            return members[value]
        description = shown(value) if isinstance(value, str) else kind_of(value)
        raise Wrong(f"{description}, not one of {', '.join(members)}")

    return Shape(None, decode, ("string",), choices=tuple(members))


def _constant(only: str) -> Shape:
    """Return the shape of a field that always holds the same text."""

    def decode(value: Any) -> str:
        if value != only:
            raise Wrong(f"{shown(value) if isinstance(value, str) else kind_of(value)}, not {only!r}")
        return only

    return Shape(None, decode, ("string",), choices=(only,))


def _actor(value: Any) -> str:
    if type(value) is not str:
        raise Wrong(f"{kind_of(value)}, not a text")
    if not is_actor_name(value):
        raise Wrong(f"{shown(value)}, which no actor can be called")
    return value


def _sequence(entry: Shape) -> Shape:
    """Return the shape of an array, which is decoded to a tuple."""
    exact = {entry.exact}

    def decode(value: Any) -> tuple[Any, ...]:
        if type(value) is not list:
            raise Wrong(f"{kind_of(value)}, not an array")
        if exact.issuperset(map(type, value)):
            return tuple(value)
        return tuple([_entry(entry, index, item) for index, item in enumerate(value)])

    return Shape(None, decode, ("array",), entry=entry)


def _mapping(entry: Shape) -> Shape:
    """Return the shape of an object with arbitrary keys, which is decoded to a dict."""
    exact = {entry.exact}

    def decode(value: Any) -> dict[str, Any]:
        if type(value) is not dict:
            raise Wrong(f"{kind_of(value)}, not an object")
        if exact.issuperset(map(type, value.values())):
            return value
        return {key: _entry(entry, shown(key), item) for key, item in value.items()}

    return Shape(None, decode, ("object",))


def _entry(shape: Shape, place: object, value: Any) -> Any:
    if type(value) is shape.exact:
        return value
    try:
        return shape.decode(value)
    except Wrong as wrong:
        raise Wrong(f"at {place} {wrong}") from None


def kind_of(value: Any) -> str:
    """Return the type of a value in words, with its article."""
    return _WORDS.get(type(value)) or f"a BSON {type(value).__name__}"


_NAMES = Shape(dict, _refuse("an object"), ("object",))
_SCALARS: dict[Any, Shape] = {
    ActorName: Shape(None, _actor, ("string",), pattern=ACTOR_NAME_PATTERN),
    Epoch: Shape(None, _epoch, NUMBERS, least=0),
    str: Shape(str, _refuse("a text"), ("string",)),
    int: Shape(int, _whole, NUMBERS),
    float: Shape(None, _fraction, NUMBERS),
    bool: Shape(bool, _switch, ("bool", *NUMBERS)),
    datetime: Shape(datetime, _refuse("a date"), ("date",)),
}
