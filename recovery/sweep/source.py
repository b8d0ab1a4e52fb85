"""`spark.read.format("recovery")`: the records of processes as tables, partitioned by ranges of process ids that are
even in volume, with conditions answered by MongoDB.

The address is that of the environment where the query is planned, or of the option `uri`; executors get it with what
they are to read, and nothing that Spark shows has it.

MongoDB answers conditions (`pushed`), so that Spark gets little that it would throw away: comparisons of a plain field,
or of ids, with a value of its own type. It finds all that Spark would, and of damaged records more: in an array it
compares each entry, numbers of any type with each other, and dates that no row can show. To Spark such a field is null.
So Spark applies the conditions as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.types import StructType

from recovery.engine import Resources
from recovery.engine.lookup import hint
from recovery.engine.operators.saved_searches import read_search
from recovery.errors import InputError
from recovery.limits import available_cpus
from recovery.repair import look_at_all
from recovery.settings import load
from recovery.store import check_server
from recovery.store.client import Document
from recovery.store.expressions import record_range
from recovery.store.views.ranges import Range
from recovery.store.views.table_columns import FLAG, MOMENT, PLAIN, TABLES, TEXT, WHOLE, ColumnKind, Row, Table
from recovery.survey.plan import plan
from recovery.sweep.table_rows import SCHEMAS, Reading, numbered, ranges_of, rows

NAME = "recovery"
OPTIONS = ("uri", "database", "table", "selection", "operation", "partitions")
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
PATH = "path"
"""Spark adds it where `load` is given one."""


def register(session: SparkSession) -> SparkSession:
    """Make `session.read.format("recovery")` known, and have conditions answered by MongoDB; the session."""
    session.dataSource.register(RecoverySource)
    session.conf.set(PUSHDOWN, "true")
    return session


class RecoverySource(DataSource):  # type: ignore[misc]
    """Options: `table`, one of processes, decisions, graphs, tasks, snapshots, findings, results; `selection`, a search
    of which processes; `operation`, whose results; `uri`, `database`, by default those of the environment;
    `partitions`, at least so many."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def _table(self) -> str:
        table: str = self.options.get("table", "")
        if table not in SCHEMAS:
            known = hint(table, list(SCHEMAS), "there is none") if table else f"there are: {', '.join(SCHEMAS)}"
            raise InputError(f"option table={table!r}: no table has this name; {known}")
        for name in self.options:
            if name.lower() not in (*OPTIONS, PATH):
                raise InputError(f"option {name!r} is not known; {hint(name, list(OPTIONS), 'there is none')}")
        return table

    def schema(self) -> str:
        return SCHEMAS[self._table()]

    def reader(self, schema: StructType) -> RecoveryReader:  # noqa: ARG002
        """What reads the table. Raises InputError, SettingsError, ServerUnavailable."""
        table, options = self._table(), self.options
        settings = load(mongo_uri=options.get("uri"), database=options.get("database"))
        check_server(settings.mongo_uri)
        resources = Resources.connect(settings)
        selection = options.get("selection")
        query = read_search(resources, selection) if selection is not None else None
        around = look_at_all(resources) if table == "findings" else None
        number = numbered(resources, options.get("operation")) if table == "results" else None
        reading = Reading(settings, table, query, around=around, operation=number)
        return RecoveryReader(reading, _whole(options.get("partitions")))


@dataclass
class _Part(InputPartition):  # type: ignore[misc]
    """A range of processes."""

    part: Range


class RecoveryReader(DataSourceReader):  # type: ignore[misc]
    """Reads one table."""

    def __init__(self, reading: Reading, partitions: int) -> None:
        self._reading, self._partitions = reading, partitions

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        table = TABLES.get(self._reading.table)
        if table is None:
            return filters
        self._reading = replace(self._reading, conditions=tuple(pushed(table, filters)))
        return filters

    def partitions(self) -> Sequence[InputPartition]:
        resources, number = Resources.connect(self._reading.settings), self._reading.operation
        parts = plan(resources.store.ranges, self._partitions) if number is None else ranges_of(resources, number)
        return [_Part(part) for part in parts]

    def read(self, partition: Any) -> Iterator[Row]:
        return rows(self._reading, partition.part)


def _whole(text: str | None) -> int:
    if text is None:
        return available_cpus()
    if not (text.isascii() and text.isdecimal() and 1 <= int(text) <= 10_000):
        raise InputError(f"option partitions={text!r}: give a whole number from 1 to 10,000")
    return int(text)


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
