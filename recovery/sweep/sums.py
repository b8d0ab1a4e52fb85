"""What the plan of an operation found, as a data frame: summed up with SQL, and on demand written to Parquet.

The address of MongoDB goes to executors with what they are to read, in bytes: nothing that Spark shows, of a plan or of
a request of Spark Connect's, has it.
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
"""Processes. Fewer are summed up by MongoDB, in two seconds for so many: Spark takes one for its plan alone."""
CHECKED = "recovery_checks_that_it_can_write"
WHOLE = "_SUCCESS"
"""Spark writes it last."""
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
    """Whether an operation whose phase is done is to be summed up here, or written."""
    if operation.awaits_parquet:
        return True
    return operation.has_findings and not operation.sums and totals_so_far(resources, operation).found >= FROM


def save(cluster: SparkContext | SparkSession, resources: Resources, operation: Operation) -> None:
    """Save the sums with the operation, and write its results to Parquet. May be run again. Raises SweepFailed."""
    session = session_of(cluster)
    try:
        frame = results(session, resources, operation.id)
        if operation.awaits_parquet:
            _write(session, frame.drop("operation"), folder_of(operation))
        found = session.sql(SUMS, results=frame, most=MAX_SUMS).collect()
    except (PySparkException, Py4JError, OSError) as error:
        raise SweepFailed(cause(str(error))) from None
    written = operation.evolve(sums=tuple(map(_sum, found)), parquet_written=operation.awaits_parquet or None)
    resources.store.operations.save(written, LOOK_EVERY)


def _write(session: SparkSession, frame: DataFrame, folder: str) -> None:
    """Write it in the place of what was checked, or of what another driver had begun to write: both are our own. What
    he had written as a whole stays, and is not written again."""
    if not (_is_there(session, f"{folder}/{WHOLE}") and session.read.parquet(folder).columns == frame.columns):
        frame.write.mode("overwrite").parquet(folder)


def folder_of(operation: Operation) -> str:
    """Where its results are written: Spark reads the folder around it as a table of all operations there."""
    return f"{operation.parquet}/operation={operation.id}"


def check_target(cluster: SparkContext | SparkSession, resources: Resources, operation: Operation) -> None:
    """Make the folder, with a word in it of whose it is. May be run again. Raises InputError where nothing can be
    written, or where somebody else's is already, SweepFailed where Spark is away."""
    try:
        session, folder = session_of(cluster), folder_of(operation)
        whose = f"operation {operation.id} of {resources.settings.database}, {operation.asked_at}, {operation.origin}"
        if not _is_checked(session, folder, whose):
            session.createDataFrame([(whose,)], f"{CHECKED} string").coalesce(1).write.mode("error").parquet(folder)
    except (PySparkException, Py4JError, OSError) as error:
        if not is_alive(cluster):
            raise SweepFailed(cause(str(error))) from None
        raise InputError(f"--parquet {operation.parquet}: can't be written: {cause(str(error))}") from None


def _is_checked(session: SparkSession, folder: str, whose: str) -> bool:
    """Whether a driver of the same operation, who was cut off before he could say so, has made it."""
    try:
        found = session.read.parquet(folder)
        return found.columns == [CHECKED] and [row[0] for row in found.collect()] == [whose]
    except (PySparkException, Py4JError):
        return False  # as writing there will tell


def _is_there(session: SparkSession, path: str) -> bool:
    try:
        _ = session.read.text(path).schema  # nothing is read
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
    """The results of one operation, which a subclass names. Without options, since those are shown."""

    reading: ClassVar[Reading]

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return SCHEMAS[TABLE]

    def reader(self, schema: StructType) -> RecoveryReader:  # noqa: ARG002
        return RecoveryReader(self.reading, 1)


def results(session: SparkSession, resources: Resources, number: int) -> DataFrame:
    """The results of an operation, a row for each process, rule and actor."""
    reading = Reading(resources.settings, TABLE, None, operation=number)
    # A class that no module has: it is sent as it is, with what it reads.
    session.dataSource.register(type("Results", (_Results,), {"reading": reading}))
    return session.read.format(NAME).load()


def session_of(cluster: SparkContext | SparkSession) -> SparkSession:
    """A session that knows our tables."""
    return register(SparkSession(cluster) if isinstance(cluster, SparkContext) else cluster)
