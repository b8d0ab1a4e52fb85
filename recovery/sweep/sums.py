"""An operation's results as a data frame: summed up with SQL, and written to Parquet on request.

The address of MongoDB is sent to executors inside the reading instructions, as bytes. So neither Spark's plans nor
requests of Spark Connect show it.
"""

from __future__ import annotations

from typing import ClassVar

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from recovery.engine import Resources
from recovery.errors import InputError, SweepFailed
from recovery.operations.advance import LOOK_EVERY, MAX_SUMS, totals_so_far
from recovery.records import Operation, Sum
from recovery.sweep.job import cause
from recovery.sweep.session import is_alive
from recovery.sweep.source import RecoveryReader, register
from recovery.sweep.table_rows import SCHEMAS, Reading

FROM = 250_000
"""Minimum processes with findings for which Spark sums up the results. MongoDB sums up fewer in less time than Spark
takes to plan."""
CHECKED = "recovery_checks_that_it_can_write"
WHOLE = "_SUCCESS"
"""File that Spark writes last."""
NOT_THERE = "PATH_NOT_FOUND"
SUMS = """
SELECT type, rule, actor, sum(count) AS count
FROM {results}
WHERE rule IS NOT NULL
GROUP BY type, rule, actor
ORDER BY count DESC, type, rule, actor
LIMIT {most}
"""


def are_wanted(resources: Resources, operation: Operation) -> bool:
    """Return whether Spark should sum up or write the results of an operation whose phase is done."""
    if operation.awaits_parquet:
        return True
    return operation.has_findings and not operation.sums and totals_so_far(resources, operation).found >= FROM


def save(cluster: SparkContext | SparkSession, resources: Resources, operation: Operation) -> None:
    """Save the sums with the operation, and write its results to Parquet if requested. May be repeated. Raises
    SweepFailed."""
    session = session_of(cluster)
    try:
        frame = results(session, resources, operation.id)
        if operation.awaits_parquet:
            _write(session, frame.drop("operation"), folder_of(operation))
        rows = session.sql(SUMS, results=frame, most=MAX_SUMS).collect()
    except (PySparkException, Py4JError, OSError) as error:
        raise SweepFailed(cause(str(error))) from None
    updated = operation.evolve(sums=tuple(map(_sum, rows)), parquet_written=operation.awaits_parquet or None)
    resources.store.operations.save(updated, LOOK_EVERY)


def _write(session: SparkSession, frame: DataFrame, folder: str) -> None:
    """Write the results over the check's file, or over another driver's incomplete files: both belong to this
    operation. Complete files of another driver are kept."""
    if not (_is_there(session, f"{folder}/{WHOLE}") and session.read.parquet(folder).columns == frame.columns):
        frame.write.mode("overwrite").parquet(folder)


def folder_of(operation: Operation) -> str:
    """Return the folder for an operation's results. Spark reads its parent folder as one table of all operations."""
    return f"{operation.parquet}/operation={operation.id}"


def check_target(cluster: SparkContext | SparkSession, resources: Resources, operation: Operation) -> None:
    """Create the operation's folder, with a file that names the operation. May be repeated.

    Raises:
        InputError: The folder can't be written, or already contains something else.
        SweepFailed: Spark is unavailable.
    """
    try:
        session, folder = session_of(cluster), folder_of(operation)
        owner = f"operation {operation.id} of {resources.settings.database}, {operation.asked_at}, {operation.origin}"
        if not _is_checked(session, folder, owner):
            session.createDataFrame([(owner,)], f"{CHECKED} string").coalesce(1).write.mode("error").parquet(folder)
    except (PySparkException, Py4JError, OSError) as error:
        if not is_alive(cluster):
            raise SweepFailed(cause(str(error))) from None
        raise InputError(f"--parquet {operation.parquet}: can't be written: {cause(str(error))}") from None


def _is_checked(session: SparkSession, folder: str, owner: str) -> bool:
    """Return whether an interrupted driver of the same operation has created the folder."""
    try:
        frame = session.read.parquet(folder)
        return frame.columns == [CHECKED] and [row[0] for row in frame.collect()] == [owner]
    except (PySparkException, Py4JError):
        return False  # writing there will raise the error


def _is_there(session: SparkSession, path: str) -> bool:
    try:
        _ = session.read.text(path).schema  # a schema is inferred without reading
    except AnalysisException as error:
        if error.getCondition() != NOT_THERE:
            raise
        return False
    return True


def _sum(row: Row) -> Sum:
    return Sum(type=row["type"], rule=row["rule"], actor=row["actor"], count=row["count"])


NAME = "recovery_results"
TABLE = "results"


class _Results(DataSource):  # type: ignore[misc]
    """The data source for the results of one operation, which a subclass sets. It has no options, because Spark shows
    options."""

    reading: ClassVar[Reading]

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return SCHEMAS[TABLE]

    def reader(self, schema: StructType) -> RecoveryReader:  # noqa: ARG002
        return RecoveryReader(self.reading, 1)


def results(session: SparkSession, resources: Resources, number: int) -> DataFrame:
    """Return the results of an operation, with a row for each process, rule and actor."""
    reading = Reading(resources.settings, TABLE, None, operation=number)
    # The class belongs to no module, so that Spark sends it with its instructions.
    session.dataSource.register(type("Results", (_Results,), {"reading": reading}))
    return session.read.format(NAME).load()


def session_of(cluster: SparkContext | SparkSession) -> SparkSession:
    """Return a session in which our tables are registered."""
    return register(SparkSession(cluster) if isinstance(cluster, SparkContext) else cluster)
