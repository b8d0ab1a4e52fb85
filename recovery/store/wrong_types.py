"""Which documents hold something of another type than their records have: as queries, for the validators and for who
looks for what is damaged.

Not `$jsonSchema`: a list of `$type` is three times as fast (2 µs a document), and runs with every write. It sees no
entry of a map, such as a graph's links; who reads one does.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator

from recovery.records import Record, required, shapes_of
from recovery.records.shapes import NUMBERS, Shape
from recovery.store.client import Document

_TYPES = (
    *("double", "string", "object", "array", "binData", "objectId", "bool", "date", "regex", "dbPointer", "symbol"),
    *("javascript", "javascriptWithScope", "int", "timestamp", "long", "decimal", "minKey", "maxKey"),
)
"""All that there are, but for null and undefined, which are read as if the field were not there."""
_NO_NUMBERS = [math.nan, math.inf, -math.inf]


def wrong_types(cls: type[Record], *, entries: bool = True, known: Collection[str] = ()) -> list[Document]:
    """Conditions of which a document that can't be read as such a record matches one: those that MongoDB can see.

    Without `entries` those alone that a validator can have, on a record's fields and not on what is in them: they cost
    the same however much that is, and compare as the same from one day to the next. What is missing is not among them.
    Of the fields that are `known` nothing is asked: whoever read them has seen.
    """
    found: list[Document] = []
    for key, shape in shapes_of(cls).items():
        if key not in known:
            found += _wrong(key, shape, entries=entries)
    if not entries:
        return found
    return [*found, *({key: None} for key in required(cls) if key != "_id" and key not in known)]


def _wrong(path: str, shape: Shape, *, entries: bool) -> Iterator[Document]:
    if not shape.types:
        return
    if shape.choices:
        yield {path: {"$nin": [*shape.choices, None]}}
    elif shape.entry is not None:
        # A condition on an array is one on its entries as well, but for its being an array.
        yield {path: {"$exists": True, "$not": {"$type": ["array", "null"]}}}
        entry = shape.entry
        if not entries:
            return
        yield {path: {"$type": [one for one in _TYPES if one not in (*entry.types, "array")]}}
        of_parts = [one for key, part in entry.parts.items() for one in _wrong(key, part, entries=entries)]
        of_parts += [{key: None} for key in entry.required]
        if of_parts:
            yield {path: {"$elemMatch": {"$or": of_parts}}}
    else:
        yield {path: {"$type": [one for one in _TYPES if one not in shape.types]}}
        if shape.pattern:
            yield {path: {"$type": "string", "$not": {"$regex": shape.pattern}}}
        if entries:
            yield from _wrong_within(path, shape)


def _wrong_within(path: str, shape: Shape) -> Iterator[Document]:
    if shape.types == NUMBERS:  # not in a validator: one that has NaN in it is never the same as itself
        yield {path: {"$in": _NO_NUMBERS}}
    if shape.least is not None:
        yield {path: {"$lt": shape.least}}
    for key, part in shape.parts.items():
        yield from _wrong(f"{path}.{key}", part, entries=True)
    for key in shape.required:
        yield {path: {"$type": "object"}, f"{path}.{key}": None}
