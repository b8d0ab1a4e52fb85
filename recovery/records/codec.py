"""Records to and from MongoDB documents: snake_case fields here, camelCase there, `id` is `_id`.

Fields that are None are left out: an absent `recoveryTime` is what keeps a record out of its index. Empty
collections are left out too, except where an update relies on the field being there (a graph's).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from datetime import datetime
from enum import Enum
from functools import cache
from typing import Any, TypeVar, get_args, get_type_hints

from recovery.errors import DamagedRecord
from recovery.records.process import Graph
from recovery.records.record import Record

R = TypeVar("R", bound=Record)
Decoder = Callable[[Any], Any]

# A shell writes all numbers as doubles, and a switch may be a number.
_SCALARS: dict[Any, Any] = {
    str: str, int: (int, float), float: (float, int), bool: (bool, int, float), datetime: datetime
}  # fmt: skip
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


def verified(record: R, key: str | None = None) -> R:
    """The same record, if its texts, numbers and dates are such; for what is shown. Raises
    DamagedRecord, for the record `key` that it is a part of.

    Not asked of every record that is read: it would cost a tenth of that, and what can't be judged is found out there.
    """
    _verify(record, key or str(getattr(record, "id", "")))
    return record


def _verify(record: Record, key: str) -> None:
    kind: Any = type(record)
    for name, wanted in _scalars(kind):
        value = getattr(record, name)
        if isinstance(value, Record):
            _verify(value, key)
        elif value is not None and wanted is not None and not isinstance(value, wanted):
            told = f"{kind.__name__} of {key}: can't be read: its {field_name(name)} is a {type(value).__name__}"
            raise DamagedRecord(key, told)


@cache
def _scalars(cls: Any) -> tuple[tuple[str, Any], ...]:
    """(field, what it has to be an instance of; None for what is not checked)."""
    hints = get_type_hints(cls)
    inner = {name: next((arg for arg in get_args(hint) if arg is not type(None)), hint) for name, hint in hints.items()}
    plain = {name for name, hint in hints.items() if getattr(hint, "__origin__", None) is None}
    return tuple((f.name, _SCALARS.get(inner[f.name]) if f.name in plain else None) for f in dataclasses.fields(cls))


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
