"""What is damaged, drawn by a seed: a field of a record, and what stands there instead."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from bson import Binary, ObjectId

from recovery.records import shapes_of
from recovery.records.shapes import Shape
from recovery.store import definitions

ABSENT = object()
"""The field is removed."""

_OF_TYPE: Mapping[str, tuple[Any, ...]] = {
    "string": ("", "x", "2026-01-01", "no json {", "0123456789abcdef0123456789abcdef", "queued"),
    "int": (-1, 0, 1, 7, 2**31, 2**63 - 1, -(2**63)),
    "double": (0.0, -1.0, 0.5, 1e15, 1.7e308, -1e20),
    "bool": (True, False),
    "object": ({}, {"a": "b"}),
    "array": ([], ["x"], ["x", "x"]),
}
_DATES = (timedelta(days=-365), timedelta(minutes=-2), timedelta(), timedelta(hours=20), timedelta(days=3000))
_WRONG = (
    *(1.5, float("nan"), "2026", {"$gt": ""}, [1, {"a": "b"}], Binary(b"\xff\xfe"), True, 7),
    *(ObjectId("0123456789abcdef01234567"), datetime(2026, 1, 1, tzinfo=UTC), None),
)


@dataclass(frozen=True, slots=True)
class Damage:
    """A change of one field of one record, past the validators."""

    collection: str
    path: str
    value: Any

    @property
    def field(self) -> str:
        return self.path.partition(".")[0]

    def update(self) -> dict[str, Any]:
        return {"$unset": {self.path: ""}} if self.value is ABSENT else {"$set": {self.path: self.value}}

    def __str__(self) -> str:
        told = "absent" if self.value is ABSENT else f"{self.value!r:.60}"
        return f"{self.collection}.{self.path} = {told}"


def draw_some(chance: random.Random, collection: str, document: Mapping[str, Any]) -> list[Damage]:
    """Return one damage of a record, or two of different fields."""
    first = draw(chance, collection, document)
    second = draw(chance, collection, document)
    return [first, second] if second.field != first.field and chance.random() < 0.4 else [first]


def draw_wrong(chance: random.Random, collection: str) -> Damage:
    """Return a damage that a reader can see: a value of another type. Of settings, other values are somebody's wish."""
    path = chance.choice([path for path, shape in paths(shapes_of(definitions.KINDS[collection])) if "." not in path])
    return Damage(collection, path, chance.choice(_WRONG))


def draw(chance: random.Random, collection: str, document: Mapping[str, Any]) -> Damage:
    """Return a damage of a field that this record has, or could have."""
    fields = list(paths(shapes_of(definitions.KINDS[collection])))
    there = [(path, shape) for path, shape in fields if path.partition(".")[0] in document]
    # What stands in a record matters more often than what could.
    path, shape = chance.choice(there if there and chance.random() < 0.75 else fields)
    if path.partition(".")[2] and not isinstance(document.get(path.partition(".")[0]), dict | list):
        path = path.partition(".")[0]
    kind = chance.choice(("absent", "wrong", "value", "value"))
    if kind == "absent":
        return Damage(collection, path, ABSENT)
    if kind == "wrong":
        return Damage(collection, path, chance.choice(_WRONG))
    return Damage(collection, path, _value(chance, shape))


def paths(parts: Mapping[str, Shape], root: str = "") -> Iterator[tuple[str, Shape]]:
    """Yield (path in a document, what may stand there), nested ones included."""
    for key, one in parts.items():
        if key == "_id" and not root:
            continue
        yield root + key, one
        inner = one.entry if one.entry is not None else one
        yield from paths(inner.parts, f"{root}{key}.0." if one.entry is not None else f"{root}{key}.")


def _value(chance: random.Random, shape: Shape) -> Any:
    """Return a value of a type that the field may have."""
    if shape.choices:
        return chance.choice(shape.choices)
    kind = chance.choice(shape.types or ("string", "int", "object"))
    if kind == "date":
        return datetime.now(UTC) + chance.choice(_DATES)
    return chance.choice(_OF_TYPE.get(kind, _OF_TYPE["double" if kind in ("long", "double") else "int"]))
