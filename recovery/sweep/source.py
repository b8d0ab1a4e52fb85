"""`spark.read.format("recovery")`: processes' records as tables. Partitions are ranges of process ids of equal volume.

The address of MongoDB comes from the environment in which the query is planned, or from the option `uri`. Executors get
it with their reading instructions; nothing that Spark shows contains it.

MongoDB evaluates some conditions (`pushed`), so that Spark reads less: comparisons of a plain field, or of ids, with a
value of the field's type. The result contains every match, and may contain more records with damaged fields: MongoDB
compares each entry of an array, numbers of any type, and dates outside Python's range, where Spark sees null. So Spark
applies the conditions again.
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
"""Option that Spark adds if `load` is called with a path."""


def register(session: SparkSession) -> SparkSession:
    """Register `recovery` as a format of this session, let MongoDB evaluate conditions, and return the session."""
    session.dataSource.register(RecoverySource)
    session.conf.set(PUSHDOWN, "true")
    return session


class RecoverySource(DataSource):  # type: ignore[misc]
    """The data source `recovery`.

    Options:
        table: One of processes, decisions, graphs, tasks, snapshots, findings, results.
        selection: A search for processes. By default all.
        operation: For the table results: the number of the operation.
        uri, database: Where the records are. By default as in the environment.
        partitions: Minimum number of partitions. By default the number of CPUs.
    """

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
        """Return the reader of the table. Raises InputError, SettingsError and ServerUnavailable."""
        table, options = self._table(), self.options
        settings = load(mongo_uri=options.get("uri"), database=options.get("database"))
        check_server(settings.mongo_uri)
        resources = Resources.connect(settings)
        selection = options.get("selection")
        query = read_search(resources, selection) if selection is not None else None
        around = look_at_all(resources) if table == "findings" else None
        number = numbered(resources, options.get("operation")) if table == "results" else None
        reading = Reading(settings, table, query, around=around, operation=number)
        return RecoveryReader(reading, _partition_count(options.get("partitions")))


@dataclass
class _Part(InputPartition):  # type: ignore[misc]
    """A partition: a range of process ids."""

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


def _partition_count(text: str | None) -> int:
    if text is None:
        return available_cpus()
    if not (text.isascii() and text.isdecimal() and 1 <= int(text) <= 10_000):
        raise InputError(f"option partitions={text!r}: give a whole number from 1 to 10,000")
    return int(text)


MAX_VALUES = 1000
"""Maximum values of an IN that MongoDB evaluates. Longer lists are left to Spark."""
_SIGNS: dict[type[Filter], str] = {
    EqualTo: "$eq",
    In: "$in",
    GreaterThan: "$gt",
    GreaterThanOrEqual: "$gte",
    LessThan: "$lt",
    LessThanOrEqual: "$lte",
}


def pushed(table: Table, filters: Iterable[Filter]) -> list[Document]:
    """Return the conditions that MongoDB can evaluate, out of these filters of Spark."""
    conditions = (_condition(table, spark_filter) for spark_filter in filters)
    return [condition for condition in conditions if condition is not None]


def _condition(table: Table, spark_filter: Filter) -> Document | None:
    operator, attribute = _SIGNS.get(type(spark_filter)), tuple[str, ...](getattr(spark_filter, "attribute", ()))
    if operator is None or len(attribute) != 1:
        return None
    (name,) = attribute
    value: Any = tuple(spark_filter.value) if isinstance(spark_filter, In) else getattr(spark_filter, "value", None)
    if name == "process":
        return _of_process(table, operator, value)
    column = next((column for column in table.columns if column.name == name), None)
    if column is None or column.kind not in PLAIN:
        return None
    try:
        operand = [_value(column.kind, item) for item in value] if operator == "$in" else _value(column.kind, value)
    except TypeError:
        return None
    if operator == "$in" and len(value) > MAX_VALUES:
        return None
    return {column.field: {operator: operand}}


def _of_process(table: Table, operator: str, value: Any) -> Document | None:
    """Return a condition on process ids, or None if MongoDB can't evaluate it. Only equality is supported, because the
    ids of task records do not sort like process ids."""
    process_ids = list(value) if operator == "$in" else [value] if operator == "$eq" else None
    if process_ids is None or len(process_ids) > MAX_VALUES or not all(isinstance(item, str) for item in process_ids):
        return None
    if not table.of_task:
        return {"_id": {"$in": process_ids}}
    if not process_ids:
        return {"_id": {"$in": []}}
    return {"$or": [record_range(process_id) for process_id in process_ids]}


def _value(kind: ColumnKind, value: Any) -> Any:
    """Return a value as MongoDB stores it. Raises TypeError if MongoDB can't compare it."""
    if kind is MOMENT and isinstance(value, datetime):
        # Spark passes a time in this machine's time zone.
        moment = value.astimezone(UTC) if value.tzinfo else value.astimezone().astimezone(UTC)
        if moment.microsecond % 1000:  # because MongoDB keeps milliseconds
            raise TypeError
        return moment
    if kind is TEXT and isinstance(value, str):
        return value
    if kind is WHOLE and isinstance(value, int) and not isinstance(value, bool):
        return value
    if kind is FLAG and isinstance(value, bool):
        return value
    raise TypeError
