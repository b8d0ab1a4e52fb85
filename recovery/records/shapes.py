"""What a field of a record may hold, by its type hint: how what MongoDB has there is read, and of which types it is.

One declaration for both, so that what the validators let pass can be read, but for what they can't see: the entries of
a map, and numbers that are none of ours.
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
    """A value that can't be what a field holds; its text says what it is, and what it should be."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What may stand in a field. A value whose type is `exact` is taken as it is; others are decoded, or Wrong."""

    exact: type | None
    decode: Callable[[Any], Any]
    types: tuple[str, ...]
    """MongoDB's names of the types that it may have; none: whatever is there can be read."""
    choices: tuple[str, ...] = ()
    """The only values that it may have."""
    least: int | None = None
    """The lowest number that it may have."""
    pattern: str = ""
    """An expression of MongoDB's that a text has to match."""
    entry: Shape | None = None
    """Of an array: the shape of its entries."""
    parts: Mapping[str, Shape] = field(default_factory=dict)
    """Of a record in a record: {its document's field: shape}."""
    required: tuple[str, ...] = ()
    """Of one: the fields without which it is none."""


@cache
def shape_of(hint: Any, record: Callable[[Any], Shape]) -> Shape:
    """The shape of a type hint; an optional one's is that of what it may be. `record` gives that of a nested record."""
    if hint in _SCALARS:
        return _SCALARS[hint]
    candidates = [arg for arg in get_args(hint) if arg is not type(None)]
    origin = getattr(hint, "__origin__", None)
    if origin is tuple:
        return _sequence(shape_of(candidates[0], record))
    if origin is dict:
        # Of {name: True} the names count, and nobody asks what stands with them.
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


def _no(wanted: str) -> Callable[[Any], Any]:
    def decode(value: Any) -> Any:
        raise Wrong(f"{kind_of(value)}, not {wanted}")

    return decode


def _whole(value: Any) -> int:
    # A shell writes all numbers as doubles; a long is a type of its own.
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value)
    # One of more than 64 bits could be read, and never be written or asked for.
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
        told = shown(value) if isinstance(value, str) else kind_of(value)
        raise Wrong(f"{told}, not one of {', '.join(members)}")

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
    """An array, as a tuple."""
    exact = {entry.exact}

    def decode(value: Any) -> tuple[Any, ...]:
        if type(value) is not list:
            raise Wrong(f"{kind_of(value)}, not an array")
        if exact.issuperset(map(type, value)):
            return tuple(value)
        return tuple([_entry(entry, place, one) for place, one in enumerate(value)])

    return Shape(None, decode, ("array",), entry=entry)


def _mapping(entry: Shape) -> Shape:
    """An object with keys of any name, as a dict."""
    exact = {entry.exact}

    def decode(value: Any) -> dict[str, Any]:
        if type(value) is not dict:
            raise Wrong(f"{kind_of(value)}, not an object")
        if exact.issuperset(map(type, value.values())):
            return value
        return {key: _entry(entry, shown(key), one) for key, one in value.items()}

    return Shape(None, decode, ("object",))


def _entry(shape: Shape, place: object, value: Any) -> Any:
    if type(value) is shape.exact:
        return value
    try:
        return shape.decode(value)
    except Wrong as wrong:
        raise Wrong(f"at {place} {wrong}") from None


def kind_of(value: Any) -> str:
    """What a value is, in words."""
    return _WORDS.get(type(value)) or f"a BSON {type(value).__name__}"


_NAMES = Shape(dict, _no("an object"), ("object",))
_SCALARS: dict[Any, Shape] = {
    ActorName: Shape(None, _actor, ("string",), pattern=ACTOR_NAME_PATTERN),
    Epoch: Shape(None, _epoch, NUMBERS, least=0),
    str: Shape(str, _no("a text"), ("string",)),
    int: Shape(int, _whole, NUMBERS),
    float: Shape(None, _fraction, NUMBERS),
    bool: Shape(bool, _switch, ("bool", *NUMBERS)),
    datetime: Shape(datetime, _no("a date"), ("date",)),
}
