"""What the plan of an operation found, as a data frame: summed up with SQL, and on demand written to Parquet."""

from __future__ import annotations

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession

from recovery.engine import Resources
from recovery.errors import InputError, SweepFailed
from recovery.operations.advance import LOOK_EVERY, MAX_SUMS, totals_so_far
from recovery.records import Operation, Sum
from recovery.sweep.job import cause
from recovery.sweep.source import register

FROM = 10_000
"""Processes. Fewer are summed up by MongoDB before Spark has its plan: some seconds, the first time."""
CHECKED = "recovery_checks_that_it_can_write"
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
            # What is there is our own: it was not there when it was checked.
            frame.drop("operation").write.mode("overwrite").parquet(folder_of(operation))
        found = session.sql(SUMS, results=frame, most=MAX_SUMS).collect()
    except (PySparkException, Py4JError) as error:
        raise SweepFailed(cause(str(error))) from None
    written = operation.evolve(sums=tuple(map(_sum, found)), parquet_written=operation.awaits_parquet or None)
    resources.store.operations.save(written, LOOK_EVERY)


def folder_of(operation: Operation) -> str:
    """Where its results are written: Spark reads the folder around it as a table of all operations there."""
    return f"{operation.parquet}/operation={operation.id}"


def check_target(cluster: SparkContext | SparkSession, operation: Operation) -> None:
    """Make the folder, with no rows in it. May be run again. Raises InputError where nothing can be written, or where
    somebody else's is already, SweepFailed where Spark is away."""
    session, folder = session_of(cluster), folder_of(operation)
    empty = session.createDataFrame([], f"{CHECKED} int")
    try:
        if not _is_checked(session, folder):
            empty.write.mode("error").parquet(folder)
    except Py4JNetworkError as error:
        raise SweepFailed(cause(str(error))) from None
    except (PySparkException, Py4JError) as error:
        raise InputError(f"--parquet {operation.parquet}: can't be written: {cause(str(error))}") from None


def _is_checked(session: SparkSession, folder: str) -> bool:
    """Whether somebody who was cut off before he could say so has made it."""
    try:
        return bool(session.read.parquet(folder).columns == [CHECKED])
    except (PySparkException, Py4JError):
        return False  # as writing there will tell


def results(session: SparkSession, resources: Resources, number: int) -> DataFrame:
    """The results of an operation."""
    reader = session.read.format("recovery").option("table", "results").option("operation", str(number))
    settings = resources.settings
    return reader.option("uri", settings.mongo_uri).option("database", settings.database).load()


def session_of(cluster: SparkContext | SparkSession) -> SparkSession:
    """A session that knows our tables."""
    return register(SparkSession(cluster) if isinstance(cluster, SparkContext) else cluster)


def _sum(row: Row) -> Sum:
    return Sum(type=row["type"], rule=row["rule"], actor=row["actor"], count=row["count"])
