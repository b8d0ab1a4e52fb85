"""Tables of the Spark data source and of Parquet exports: their columns, and rows made from documents.

A field that can't be read is null in its row, and the column `damage` names it, so that one damaged record does not
fail a query. This module does not import Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from recovery.records.ids import split_record_id
from recovery.records.search_names import decode_labels
from recovery.store import schema
from recovery.store.client import Document

Row = tuple[Any, ...]


class Unreadable(ValueError):
    """A field holds a value that its column can't show."""


@dataclass(frozen=True, slots=True)
class ColumnKind:
    """A kind of column: its Spark type, and the function that reads a field's value."""

    ddl: str
    read: Callable[[Any], Any]


def _plain(*types: type) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if isinstance(value, types) and (bool in types or not isinstance(value, bool)):
            return value
        raise Unreadable

    return read


def _whole(value: Any) -> int:
    """Return a 64-bit integer.

    Accepts doubles without a fraction, because the MongoDB shell writes all numbers as doubles.
    """
    if isinstance(value, float) and value.is_integer() and -(2**63) <= value < 2**63:
        return int(value)
    whole: int = _plain(int)(value)
    return whole


def _number(value: Any) -> float:
    return float(_plain(int, float)(value))


def _moment(value: Any) -> datetime:
    if isinstance(value, datetime) and 1 < value.year < 9999:
        return value
    raise Unreadable  # dates outside of Python's range are decoded as its last date


def _texts(value: Any) -> list[str]:
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return value
    raise Unreadable


def _labels(value: Any) -> dict[str, str]:
    return decode_labels(tuple(_texts(value)))


def _names(value: Any) -> list[str]:
    if isinstance(value, dict):
        return sorted(value)
    raise Unreadable


def _length(value: Any) -> int:
    if isinstance(value, list | dict):
        return len(value)
    raise Unreadable


TEXT, FLAG = ColumnKind("string", _plain(str)), ColumnKind("boolean", _plain(bool))
WHOLE, NUMBER = ColumnKind("bigint", _whole), ColumnKind("double", _number)
MOMENT, TEXTS = ColumnKind("timestamp", _moment), ColumnKind("array<string>", _texts)
LABELS, NAMES = ColumnKind("map<string,string>", _labels), ColumnKind("array<string>", _names)
COUNT = ColumnKind("bigint", _length)
PLAIN = (TEXT, FLAG, WHOLE, MOMENT)
"""Kinds for which comparisons in MongoDB and in Spark select the same rows. Numbers with a fraction are excluded:
they may be rounded for display, and MongoDB sorts NaN first while Spark sorts it last."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column and the field that it is read from."""

    name: str
    kind: ColumnKind
    field: str


@dataclass(frozen=True, slots=True)
class Table:
    """A collection as a table.

    The column `process` comes first, then `task` for records of tasks, and `damage` last.
    """

    collection: str
    of_task: bool
    columns: tuple[Column, ...]

    @property
    def ddl(self) -> str:
        """The schema in Spark's notation."""
        first = ["process string", *(["task string"] if self.of_task else [])]
        return ", ".join(
            [*first, *(f"{column.name} {column.kind.ddl}" for column in self.columns), "damage array<string>"]
        )

    @property
    def fields(self) -> Mapping[str, bool]:
        """The projection for reading documents."""
        return {"_id": True, **dict.fromkeys((column.field for column in self.columns), True)}

    def row(self, document: Document) -> Row:
        """Return the row of a document. Its key must be a text."""
        process, task = split_record_id(document["_id"])
        damage: list[str] = []
        values = [value(document, column.field, column.kind, damage) for column in self.columns]
        return (process, *([task] if self.of_task else []), *values, damage or None)


def value(document: Document, field: str, kind: ColumnKind, damage: list[str]) -> Any:
    """Return the column's value of a field; None if it is missing or can't be read. The latter is added to `damage`."""
    field_value = _field_value(document, field)
    if field_value is None:
        return None
    try:
        return kind.read(field_value)
    except (Unreadable, ValueError, TypeError):
        damage.append(field)
        return None


def _field_value(document: Any, path: str) -> Any:
    for name in path.split("."):
        if not isinstance(document, dict):
            return None
        document = document.get(name)
    return document


def _columns(**named: Any) -> tuple[Column, ...]:
    return tuple(Column(name, *definition) for name, definition in named.items())


def _error(path: str) -> dict[str, tuple[ColumnKind, str]]:
    fields = ("kind", "message", "code", "reason", "fingerprint")
    return {f"error_{name}": (WHOLE if name == "code" else TEXT, f"{path}.{name}") for name in fields}


TABLES: dict[str, Table] = {
    "processes": Table(
        schema.PROCESSES,
        False,
        _columns(
            type=(TEXT, "type"),
            state=(TEXT, "state"),
            custom_id=(TEXT, "customId"),
            key=(TEXT, "key"),
            labels=(LABELS, "labels"),
            application_version=(TEXT, "version"),
            epoch=(WHOLE, "epoch"),
            reopened=(WHOLE, "reopened"),
            idle_timeout=(NUMBER, "idleTimeout"),
            started_at=(MOMENT, "startedAt"),
            restarted_at=(MOMENT, "restartedAt"),
            timed_out_at=(MOMENT, "timedOutAt"),
            ended_at=(MOMENT, "endedAt"),
            args=(TEXT, "args"),
            result=(TEXT, "result"),
            **_error("error"),
            error_task=(TEXT, "error.task"),
            error_actor=(TEXT, "error.actor"),
            replaced_by=(TEXT, "replacedBy"),
            recovery_time=(MOMENT, "recoveryTime"),
        ),
    ),
    "decisions": Table(
        schema.DECISIONS,
        True,
        _columns(
            actor=(TEXT, "actor"),
            state=(TEXT, "state"),
            epoch=(WHOLE, "epoch"),
            attempts=(WHOLE, "attempts"),
            timeouts=(WHOLE, "timeouts"),
            losses=(WHOLE, "losses"),
            restarts=(WHOLE, "restarts"),
            fallible=(FLAG, "fallible"),
            worker=(TEXT, "worker"),
            application_version=(TEXT, "version"),
            eta=(MOMENT, "eta"),
            enqueued_at=(MOMENT, "enqueuedAt"),
            queued_at=(MOMENT, "queuedAt"),
            claimed_at=(MOMENT, "claimedAt"),
            finished_at=(MOMENT, "outcome.finishedAt"),
            **_error("outcome.error"),
            children=(COUNT, "children"),
            recovery_time=(MOMENT, "recoveryTime"),
        ),
    ),
    "graphs": Table(
        schema.GRAPHS,
        False,
        _columns(
            epoch=(WHOLE, "epoch"),
            version=(WHOLE, "version"),
            open=(COUNT, "notFinished"),
            finished=(COUNT, "finished"),
            failed=(NAMES, "failed"),
            aborted=(FLAG, "aborted"),
            touched_at=(MOMENT, "touchedAt"),
            recovery_time=(MOMENT, "recoveryTime"),
        ),
    ),
    "tasks": Table(
        schema.TASKS,
        True,
        _columns(
            actor=(TEXT, "actor"),
            parent=(TEXT, "parent"),
            deps=(TEXTS, "deps"),
            args=(TEXT, "args"),
            epoch=(WHOLE, "epoch"),
            fallible=(FLAG, "fallible"),
        ),
    ),
}
"""Table definitions by name. Each row of a table is a document of one collection."""
