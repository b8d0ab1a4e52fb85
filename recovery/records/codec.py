"""Records to and from MongoDB documents: snake_case fields here, camelCase there, `id` is `_id`.

Fields that are None are left out: an absent `recoveryTime` is what keeps a record out of its index. Empty
collections are left out too, except where an update relies on the field being there (a graph's).

Reading is the one boundary at which what others wrote is checked: a record that was read has in every field what its
type says, so nobody after that has to expect anything else. What can't be read is a DamagedRecord, which names it.
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
"""Types of what stands in a document as it stands in a record: most of it."""


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
    for name, key in _names(cls):
        value = getattr(record, name)
        if value is None or (not value and value in ((), {}) and name not in cls.KEPT_WHEN_EMPTY):
            continue
        document[key] = value if type(value) in _PLAIN else _encode(value)
    return document


def from_document(cls: type[R], document: Mapping[str, Any]) -> R:
    """The record of a document. Fields that the document lacks take the record's defaults.

    Raises DamagedRecord, which names the record and every field that can't be read.
    """
    kind: Any = cls
    values: dict[str, Any] = {}
    fields = _fields(kind)
    try:
        # Over what is there, and not over all fields: most records lack most of them.
        for key, value in document.items():
            if value is not None and key in fields:
                name, exact, decode = fields[key]
                values[name] = value if type(value) is exact else decode(value)
        if values.keys() >= _required(kind):
            return _made(kind, values) if kind.__dictoffset__ else cls(**values)
    except (Wrong, TypeError):
        pass
    raise _damage(kind, document)


def as_far_as_readable(cls: type[R], document: Mapping[str, Any]) -> tuple[R, DamagedRecord | None]:
    """Return the record of a document without its damaged fields, and what is wrong with those.

    Raises:
        DamagedRecord: A field is damaged without which there is no such record.
    """
    try:
        return from_document(cls, document), None
    except DamagedRecord as damage:
        if not set(required(cls)).isdisjoint(damage.fields):
            raise
        rest = {key: value for key, value in document.items() if key not in damage.fields}
        return from_document(cls, rest), damage


def _made(cls: Any, values: dict[str, Any]) -> Any:
    """A frozen record with these fields, as its constructor makes it, which sets each of its twenty by a call. What is
    not in it has its default by its class."""
    made = object.__new__(cls)
    made.__dict__.update(values)
    return made


def shapes_of(cls: type[Record]) -> Mapping[str, Shape]:
    """{document's field: what may stand in it}."""
    kind: Any = cls
    return {key: _shapes(kind)[name] for name, key in _names(kind)}


def required(cls: type[Record]) -> tuple[str, ...]:
    """The document's fields without which there is no such record."""
    kind: Any = cls
    return tuple(field_name(name) for name in sorted(_required(kind)))


@cache
def _required(cls: Any) -> frozenset[str]:
    """Fields without which there is no such record."""
    return frozenset(
        field.name
        for field in dataclasses.fields(cls)
        if field.name in cls.ALWAYS_WRITTEN
        or (field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING)
    )


def _damage(cls: Any, document: Mapping[str, Any]) -> DamagedRecord:
    wrong = dict(_wrongs(cls, document))
    key = document.get("_id", "")
    told = "; ".join(f"its {field} is {what}" for field, what in wrong.items()) or "can't be read"
    return DamagedRecord(key, f"{cls.__name__} {key}: {told}"[:500], tuple(wrong), cls.__name__)


def _wrongs(cls: Any, document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
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
            raise Wrong("; ".join(f"its {key} is {what}" for key, what in _wrongs(cls, value))) from None

    return Shape(None, decode, ("object",), parts=shapes_of(cls), required=required(cls))
