"""Reading many records of which another program may have spoilt one: that one is reported, and hides no other.

`read` and `readable` decode records. `process_of` and `decision_of` do so for records that were read without their
texts, because values and arguments may be large and no rule needs them. `wrong_types` returns the conditions by which
MongoDB finds what can't be read.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from recovery.errors import DamagedRecord
from recovery.log_lines import Seldom
from recovery.records import Decision, DecisionState, Process, Record, from_document, required, shapes_of
from recovery.records.shapes import NUMBERS, Shape
from recovery.store.client import Document

R = TypeVar("R", bound=Record)

TELL_EVERY = 300.0
"""Seconds between two lines about one record."""

_told = Seldom(logging.getLogger(__name__), TELL_EVERY)

_UNASKED = (
    *("outcome.value", "outcome.error.stack", "call", "attempts", "claimedAt"),
    *("children.args", "children.deps", "children.dependents", "children.unlocks"),
)
DECISION_FIELDS = dict.fromkeys(_UNASKED, False)
PROCESS_FIELDS = {"args": False, "result": False}
LEFT_OUT = ""
"""Stands for arguments that were not read: the records require them."""
_TYPES = (
    *("double", "string", "object", "array", "binData", "objectId", "bool", "date", "regex", "dbPointer", "symbol"),
    *("javascript", "javascriptWithScope", "int", "timestamp", "long", "decimal", "minKey", "maxKey"),
)
"""All that there are, but for null and undefined, which are read as if the field were not there."""
_NO_NUMBERS = [math.nan, math.inf, -math.inf]


@dataclass(frozen=True, slots=True)
class Read(Generic[R]):
    """The records that were read, and why others could not be read."""

    records: list[R] = field(default_factory=list)
    damaged: list[DamagedRecord] = field(default_factory=list)

    def __add__(self, other: Read[R]) -> Read[R]:
        return Read(self.records + other.records, self.damaged + other.damaged)

    def __len__(self) -> int:
        return len(self.records) + len(self.damaged)


def read(cls: type[R], documents: Iterable[Document], decode: Callable[[Document], R] | None = None) -> Read[R]:
    """Read these documents, for a caller that acts on what can't be read. `decode` replaces `from_document`."""
    found: Read[R] = Read()
    for document in documents:
        try:
            found.records.append(from_document(cls, document) if decode is None else decode(document))
        except DamagedRecord as damage:
            found.damaged.append(damage)
    return found


def readable(cls: type[R], documents: Iterable[Document], decode: Callable[[Document], R] | None = None) -> Iterator[R]:
    """Yield the records that can be read; log the others."""
    for document in documents:
        try:
            one = from_document(cls, document) if decode is None else decode(document)
        except DamagedRecord as damage:
            tell(damage)
        else:
            yield one


def tell(damage: DamagedRecord) -> None:
    """Log what of a record can't be read, at most once in TELL_EVERY seconds for each record."""
    _told.warning("%s; it is passed over: repair or remove it by hand", damage, about=repr(damage.record))


def process_of(document: Document) -> Process:
    """The process of a document that was read with `PROCESS_FIELDS`."""
    return from_document(Process, document | {"args": LEFT_OUT})


def decision_of(document: Document) -> Decision:
    """The decision of a document that was read with `DECISION_FIELDS`."""
    for child in children_of(document):
        child["args"] = LEFT_OUT
    decision = from_document(Decision, document)
    if decision.state is DecisionState.FINISHED and decision.outcome is None:
        raise without_outcome(decision.id)
    if decision.state is not DecisionState.FINISHED and decision.outcome is not None:
        told = f"Decision {decision.id}: its state is {decision.state}, and it has an outcome"
        raise DamagedRecord(decision.id, told, ("state",), Decision.__name__)
    return decision


def without_outcome(key: str) -> DamagedRecord:
    """Return the damage of a finished decision that has no outcome."""
    return DamagedRecord(key, f"Decision {key}: it is finished, and has no outcome", ("outcome",), Decision.__name__)


def children_of(document: Document) -> list[Document]:
    """The children of a decision's document; none where there is something else, which can't be read."""
    found = document.get("children")
    return [child for child in found if isinstance(child, dict)] if isinstance(found, list) else []


def wrong_types(cls: type[Record], *, entries: bool = True, known: Collection[str] = ()) -> list[Document]:
    """Conditions of which a document that can't be read as such a record matches one: those that MongoDB can see.

    Without `entries` those alone that a validator can have, on a record's fields and not on what is in them: they cost
    the same however much that is, and compare as the same from one day to the next. What is missing is not among them.
    Of the fields that are `known` nothing is asked: whoever read them has seen.

    Not `$jsonSchema`: a list of `$type` is three times as fast (2 µs a document), and runs with every write. It sees no
    entry of a map, such as a graph's links; who reads one does.
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
