"""Decodes records, some of which another program may have damaged. A damaged record is reported and does not hide the
others.

`read` and `readable` decode records. `process_of` and `decision_of` decode records that were read without their texts,
because values and arguments may be large and no rule needs them. `wrong_types` returns the conditions with which
MongoDB finds damaged records.
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
"""Seconds between two log lines about the same record."""

_seldom = Seldom(logging.getLogger(__name__), TELL_EVERY)

_UNREAD_FIELDS = (
    *("outcome.value", "outcome.error.stack", "call", "attempts", "claimedAt"),
    *("children.args", "children.deps", "children.dependents", "children.unlocks"),
)
DECISION_FIELDS = dict.fromkeys(_UNREAD_FIELDS, False)
"""Projection for decisions whose texts are not needed; decode with `decision_of`."""
PROCESS_FIELDS = {"args": False, "result": False}
"""Projection for processes without arguments and results; decode with `process_of`."""
LEFT_OUT = ""
"""Placeholder for arguments that were not read, because the records require them."""
_TYPES = (
    *("double", "string", "object", "array", "binData", "objectId", "bool", "date", "regex", "dbPointer", "symbol"),
    *("javascript", "javascriptWithScope", "int", "timestamp", "long", "decimal", "minKey", "maxKey"),
)
"""All types of MongoDB except null and undefined, which are read as if the field were missing."""
_NO_NUMBERS = [math.nan, math.inf, -math.inf]


@dataclass(frozen=True, slots=True)
class Read(Generic[R]):
    """The records that could be read, and the damage of the others."""

    records: list[R] = field(default_factory=list)
    damaged: list[DamagedRecord] = field(default_factory=list)

    def __add__(self, other: Read[R]) -> Read[R]:
        return Read(self.records + other.records, self.damaged + other.damaged)

    def __len__(self) -> int:
        return len(self.records) + len(self.damaged)


def read(cls: type[R], documents: Iterable[Document], decode: Callable[[Document], R] | None = None) -> Read[R]:
    """Decode these documents, for a caller that handles damaged records itself.

    Args:
        cls: Class of the records.
        documents: The documents.
        decode: Replaces `from_document`.
    """
    result: Read[R] = Read()
    for document in documents:
        try:
            result.records.append(from_document(cls, document) if decode is None else decode(document))
        except DamagedRecord as damage:
            result.damaged.append(damage)
    return result


def readable(cls: type[R], documents: Iterable[Document], decode: Callable[[Document], R] | None = None) -> Iterator[R]:
    """Yield the records that can be decoded, and log the damaged ones. `decode` replaces `from_document`."""
    for document in documents:
        try:
            record = from_document(cls, document) if decode is None else decode(document)
        except DamagedRecord as damage:
            tell(damage)
        else:
            yield record


def tell(damage: DamagedRecord) -> None:
    """Log why a record can't be read or written, at most once in TELL_EVERY seconds for each record."""
    _seldom.warning("%s; it is passed over: repair or remove it by hand", damage, about=repr(damage.record))


def process_of(document: Document) -> Process:
    """Return the process of a document that was read with `PROCESS_FIELDS`. Raises DamagedRecord."""
    return from_document(Process, document | {"args": LEFT_OUT})


def decision_of(document: Document) -> Decision:
    """Return the decision of a document that was read with `DECISION_FIELDS`.

    Raises:
        DamagedRecord: A field can't be read, or state and outcome contradict each other.
    """
    for child in children_of(document):
        child["args"] = LEFT_OUT
    decision = from_document(Decision, document)
    if decision.state is DecisionState.FINISHED and decision.outcome is None:
        raise without_outcome(decision.id)
    if decision.state is not DecisionState.FINISHED and decision.outcome is not None:
        message = f"Decision {decision.id}: its state is {decision.state}, and it has an outcome"
        raise DamagedRecord(decision.id, message, ("state",), Decision.__name__)
    return decision


def without_outcome(key: str) -> DamagedRecord:
    """Return the damage of a finished decision that has no outcome."""
    return DamagedRecord(key, f"Decision {key}: it is finished, and has no outcome", ("outcome",), Decision.__name__)


def children_of(document: Document) -> list[Document]:
    """Return the children in a decision's document, without elements that are no objects. Empty if the field holds no
    array.
    """
    children = document.get("children")
    return [child for child in children if isinstance(child, dict)] if isinstance(children, list) else []


def wrong_types(cls: type[Record], *, entries: bool = True, known: Collection[str] = ()) -> list[Document]:
    """Return conditions of which a damaged document of this class matches at least one.

    MongoDB can't check everything: the values of a map, such as a graph's links, are checked when they are read. The
    conditions use lists of `$type` instead of `$jsonSchema`, because they run with every write and are three times as
    fast.

    Args:
        cls: Class of the records.
        entries: Whether to check the contents of arrays and embedded documents, and missing required fields as well.
            Without it the conditions are those of a validator: they cost the same for every size of a record, and are
            the same each time they are built.
        known: Fields that the caller has read already; they are not checked.
    """
    conditions: list[Document] = []
    for key, shape in shapes_of(cls).items():
        if key not in known:
            conditions += _wrong(key, shape, entries=entries)
    if not entries:
        return conditions
    return [*conditions, *({key: None} for key in required(cls) if key != "_id" and key not in known)]


def _wrong(path: str, shape: Shape, *, entries: bool) -> Iterator[Document]:
    if not shape.types:
        return
    if shape.choices:
        yield {path: {"$nin": [*shape.choices, None]}}
    elif shape.entry is not None:
        # A condition on an array applies to its elements as well, except `$type: "array"`.
        yield {path: {"$exists": True, "$not": {"$type": ["array", "null"]}}}
        entry = shape.entry
        if not entries:
            return
        yield {path: {"$type": [type_name for type_name in _TYPES if type_name not in (*entry.types, "array")]}}
        of_parts = [condition for key, part in entry.parts.items() for condition in _wrong(key, part, entries=entries)]
        of_parts += [{key: None} for key in entry.required]
        if of_parts:
            yield {path: {"$elemMatch": {"$or": of_parts}}}
    else:
        yield {path: {"$type": [type_name for type_name in _TYPES if type_name not in shape.types]}}
        if shape.pattern:
            yield {path: {"$type": "string", "$not": {"$regex": shape.pattern}}}
        if entries:
            yield from _wrong_within(path, shape)


def _wrong_within(path: str, shape: Shape) -> Iterator[Document]:
    if shape.types == NUMBERS:  # not in a validator: one with NaN never compares equal to itself
        yield {path: {"$in": _NO_NUMBERS}}
    if shape.least is not None:
        yield {path: {"$lt": shape.least}}
    for key, part in shape.parts.items():
        yield from _wrong(f"{path}.{key}", part, entries=True)
    for key in shape.required:
        yield {path: {"$type": "object"}, f"{path}.{key}": None}
