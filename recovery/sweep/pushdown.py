"""Conditions of a query that MongoDB answers, so that Spark gets little that it would throw away.

They are comparisons of a plain field, or of ids, with a value of its own type.

MongoDB finds all that Spark would, and of damaged records more: in an array it compares each entry, numbers of any type
with each other, and dates that no row can show. To Spark such a field is null. So Spark applies the conditions as well.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from recovery.store.client import Document
from recovery.store.expressions import record_range
from recovery.store.views.table_columns import FLAG, MOMENT, PLAIN, TEXT, WHOLE, ColumnKind, Table

MAX_VALUES = 1000
"""Of an IN; more are left to Spark."""
_SIGNS: dict[type[Filter], str] = {
    EqualTo: "$eq",
    In: "$in",
    GreaterThan: "$gt",
    GreaterThanOrEqual: "$gte",
    LessThan: "$lt",
    LessThanOrEqual: "$lte",
}


def pushed(table: Table, filters: Iterable[Filter]) -> list[Document]:
    """Conditions for MongoDB of what is asked for, as far as it can answer."""
    conditions = (_condition(table, one) for one in filters)
    return [condition for condition in conditions if condition is not None]


def _condition(table: Table, asked: Filter) -> Document | None:
    sign, attribute = _SIGNS.get(type(asked)), tuple[str, ...](getattr(asked, "attribute", ()))
    if sign is None or len(attribute) != 1:
        return None
    (name,) = attribute
    value: Any = tuple(asked.value) if isinstance(asked, In) else getattr(asked, "value", None)
    if name == "process":
        return _of_process(table, sign, value)
    column = next((one for one in table.columns if one.name == name), None)
    if column is None or column.kind not in PLAIN:
        return None
    try:
        told = [_value(column.kind, one) for one in value] if sign == "$in" else _value(column.kind, value)
    except TypeError:
        return None
    if sign == "$in" and len(value) > MAX_VALUES:
        return None
    return {column.field: {sign: told}}


def _of_process(table: Table, sign: str, value: Any) -> Document | None:
    """Of one process, or of some: where their records are is known. Of others the order is not that of their keys."""
    wanted = list(value) if sign == "$in" else [value] if sign == "$eq" else None
    if wanted is None or len(wanted) > MAX_VALUES or not all(isinstance(one, str) for one in wanted):
        return None
    if not table.of_task:
        return {"_id": {"$in": wanted}}
    if not wanted:
        return {"_id": {"$in": []}}
    return {"$or": [record_range(one) for one in wanted]}


def _value(kind: ColumnKind, value: Any) -> Any:
    """A value as MongoDB has it. Raises TypeError for what can't be compared there."""
    if kind is MOMENT and isinstance(value, datetime):
        # Spark hands it over as a time of this machine.
        moment = value.astimezone(UTC) if value.tzinfo else value.astimezone().astimezone(UTC)
        if moment.microsecond % 1000:  # MongoDB keeps milliseconds
            raise TypeError
        return moment
    if kind is TEXT and isinstance(value, str):
        return value
    if kind is WHOLE and isinstance(value, int) and not isinstance(value, bool):
        return value
    if kind is FLAG and isinstance(value, bool):
        return value
    raise TypeError
