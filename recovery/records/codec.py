"""Records to and from MongoDB documents: snake_case fields here, camelCase there, `id` is `_id`.

Fields that are None are left out: an absent `recoveryTime` is what keeps a record out of its index. Empty
collections are left out too, except where an update relies on the field being there (a graph's).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache
from typing import Any, TypeVar, get_args, get_type_hints

from recovery.errors import DamagedRecord
from recovery.records.process import Graph
from recovery.records.record import Record

R = TypeVar("R", bound=Record)
Decoder = Callable[[Any], Any]

_RENAMED = {"id": "_id", "pass_key": "pass"}
_KEPT_WHEN_EMPTY = {(Graph, name) for name in ("not_finished", "links", "finished", "failed")}


def field_name(name: str) -> str:
    """The document's name of a record's field."""
    if name in _RENAMED:
        return _RENAMED[name]
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def to_document(record: Record) -> dict[str, Any]:
    """The document of a record."""
    document: dict[str, Any] = {}
    cls: Any = type(record)
    for name, key, _ in _plan(cls):
        value = getattr(record, name)
        if value is None or (value in ((), {}) and (cls, name) not in _KEPT_WHEN_EMPTY):
            continue
        document[key] = _encode(value)
    return document


def from_document(cls: type[R], document: Mapping[str, Any]) -> R:
    """The record of a document. Fields that the document lacks take the record's defaults. Raises DamagedRecord."""
    values: dict[str, Any] = {}
    kind: Any = cls
    fields = _by_key(kind)
    try:
        # Over what is there, and not over all fields: most records lack most of them.
        for key, value in document.items():
            if value is not None and key in fields:
                name, decode = fields[key]
                values[name] = value if decode is None else decode(value)
        return cls(**values)
    except (TypeError, ValueError, AttributeError, DamagedRecord) as error:
        record = document.get("_id", "")
        raise DamagedRecord(record, f"{cls.__name__} {record}: can't be read: {error}"[:500]) from error


def _encode(value: Any) -> Any:
    if isinstance(value, Record):
        return to_document(value)
    if isinstance(value, tuple):
        return [_encode(item) for item in value]
    if isinstance(value, Enum):
        return value.value
    return value


@cache
def _plan(cls: Any) -> tuple[tuple[str, str, Decoder | None], ...]:
    hints = get_type_hints(cls)
    fields = dataclasses.fields(cls)
    return tuple((f.name, field_name(f.name), _decoder(hints[f.name])) for f in fields)


@cache
def _by_key(cls: Any) -> dict[str, tuple[str, Decoder | None]]:
    return {key: (name, decode) for name, key, decode in _plan(cls)}


def _decoder(hint: Any) -> Decoder | None:
    candidates = [arg for arg in get_args(hint) if arg is not type(None)] or [hint]
    inner = candidates[0]
    if getattr(hint, "__origin__", None) is tuple:
        if isinstance(inner, type) and issubclass(inner, Record):
            return lambda items: tuple(from_document(inner, item) for item in items)
        return tuple
    if isinstance(inner, type) and issubclass(inner, Record):
        return lambda item: from_document(inner, item)
    if isinstance(inner, type) and issubclass(inner, Enum):
        return inner
    return None
