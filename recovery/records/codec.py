"""Converts records to and from MongoDB documents. Fields are snake_case in records and camelCase in documents; `id` is
`_id`.

Fields that are None are not written: the partial index on `recoveryTime` must not hold records without a deadline.
Empty collections are not written either, unless an update relies on the field (the fields of a graph).

Documents are checked only here, when they are read. Because every field of a record that was read has the type of its
annotation, other code need not check types. A document that cannot be read raises DamagedRecord, which names the
damaged fields.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from enum import Enum
from functools import cache
from typing import Any, TypeVar, get_type_hints

from recovery.errors import DamagedRecord
from recovery.records.record import Record, Trace, trace_of
from recovery.records.shapes import Shape, Wrong, kind_of, shape_of

R = TypeVar("R", bound=Record)
Decoder = Callable[[Any], Any]

_RENAMED = {"id": "_id", "pass_key": "pass"}
_PLAIN = frozenset({str, int, float, bool, datetime, dict})
"""Types whose values are the same in a record and in its document."""


def field_name(name: str) -> str:
    """Return the name that a record's field has in documents."""
    if name in _RENAMED:
        return _RENAMED[name]
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def to_document(record: Record) -> dict[str, Any]:
    """Return the document of a record."""
    document: dict[str, Any] = {}
    cls: Any = type(record)
    for name, key in _names(cls):
        value = getattr(record, name)
        if value is None or (not value and value in ((), {}) and name not in cls.KEPT_WHEN_EMPTY):
            continue
        document[key] = value if type(value) in _PLAIN else _encode(value)
    return document


def from_document(cls: type[R], document: Mapping[str, Any]) -> R:
    """Return the record of a document. Fields that the document lacks take the record's defaults.

    Raises:
        DamagedRecord: A field cannot be read. The error names the record and all of its damaged fields.
    """
    kind: Any = cls
    values: dict[str, Any] = {}
    fields = _fields(kind)
    try:
        # Iterate over the document and not over all fields, because most records lack most of their fields.
        for key, value in document.items():
            if value is not None and key in fields:
                name, exact, decode = fields[key]
                values[name] = value if type(value) is exact else decode(value)
        if values.keys() >= _required(kind):
            return _build(kind, values) if kind.__dictoffset__ else cls(**values)
    except (Wrong, TypeError):
        pass
    raise _damage(kind, document)


def as_far_as_readable(cls: type[R], document: Mapping[str, Any]) -> tuple[R, DamagedRecord | None]:
    """Return the record of a document without its damaged fields, and the error that names them (None if none is).

    Raises:
        DamagedRecord: A required field is damaged.
    """
    try:
        return from_document(cls, document), None
    except DamagedRecord as damage:
        if not set(required(cls)).isdisjoint(damage.fields):
            raise
        readable = {key: value for key, value in document.items() if key not in damage.fields}
        return from_document(cls, readable), damage


def _build(cls: Any, values: dict[str, Any]) -> Any:
    """Return a frozen record with these fields. This is faster than its constructor, which sets each field by a call.
    Fields that are missing in `values` have their defaults, which are attributes of the class."""
    record = object.__new__(cls)
    record.__dict__.update(values)
    return record


def shapes_of(cls: type[Record]) -> Mapping[str, Shape]:
    """Return {field of the document: its shape}."""
    kind: Any = cls
    return {key: _shapes(kind)[name] for name, key in _names(kind)}


def required(cls: type[Record]) -> tuple[str, ...]:
    """Return the fields that every document of this record must have."""
    kind: Any = cls
    return tuple(field_name(name) for name in sorted(_required(kind)))


@cache
def _required(cls: Any) -> frozenset[str]:
    """Return the record's fields that every document must have: those without a default or in `ALWAYS_WRITTEN`."""
    return frozenset(
        field.name
        for field in dataclasses.fields(cls)
        if field.name in cls.ALWAYS_WRITTEN
        or (field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING)
    )


def _damage(cls: Any, document: Mapping[str, Any]) -> DamagedRecord:
    faults = dict(_field_faults(cls, document))
    key = document.get("_id", "")
    message = "; ".join(f"its {field} is {fault}" for field, fault in faults.items()) or "can't be read"
    return DamagedRecord(key, f"{cls.__name__} {key}: {message}"[:500], tuple(faults), cls.__name__)


def _field_faults(cls: Any, document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for key, (name, exact, decode) in _fields(cls).items():
        value = document.get(key)
        if value is None:
            if name in _required(cls):
                yield key, "missing" if key not in document else "null"
        elif type(value) is not exact:
            try:
                decode(value)
            except Wrong as wrong:
                yield key, str(wrong)


def _encode(value: Any) -> Any:
    if isinstance(value, Record):
        return to_document(value)
    if isinstance(value, tuple):
        return [_encode(item) for item in value]
    if isinstance(value, Enum):
        return value.value
    return value


@cache
def _names(cls: Any) -> tuple[tuple[str, str], ...]:
    return tuple((field.name, field_name(field.name)) for field in dataclasses.fields(cls))


@cache
def _fields(cls: Any) -> dict[str, tuple[str, type | None, Decoder]]:
    shapes = _shapes(cls)
    return {key: (name, shapes[name].exact, shapes[name].decode) for name, key in _names(cls)}


@cache
def _shapes(cls: Any) -> dict[str, Shape]:
    hints = get_type_hints(cls, include_extras=True)
    return {name: shape_of(hints[name], _nested) for name, _ in _names(cls)}


def _nested(cls: Any) -> Shape:
    if cls is Trace:
        return Shape(None, trace_of, ())

    def decode(value: Any) -> Any:
        if type(value) is not dict:
            raise Wrong(f"{kind_of(value)}, not an object")
        try:
            return from_document(cls, value)
        except DamagedRecord:
            raise Wrong("; ".join(f"its {key} is {fault}" for key, fault in _field_faults(cls, value))) from None

    return Shape(None, decode, ("object",), parts=shapes_of(cls), required=required(cls))
