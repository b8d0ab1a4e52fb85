"""What the plan of an operation found, as a data frame: summed up with SQL, and on demand written to Parquet."""

from __future__ import annotations

from py4j.protocol import Py4JError
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
SUMS = """
SELECT type, rule, actor, sum(count) AS count
FROM {results}
WHERE rule IS NOT NULL
GROUP BY type, rule, actor
ORDER BY count DESC, type, rule, actor
LIMIT {most}
"""


def are_wanted(resources: Resources, operation: Operation) -> bool:
    """Whether an operation whose phase is done is to be summed up here."""
    if operation.sums or not operation.has_findings:
        return False
    return operation.parquet is not None or totals_so_far(resources, operation).found >= FROM


def save(cluster: SparkContext | SparkSession, resources: Resources, operation: Operation) -> None:
    """Save the sums with the operation, and write its results to Parquet. Raises SweepFailed."""
    session = session_of(cluster)
    try:
        frame = results(session, resources, operation.id)
        if operation.parquet is not None:
            frame.write.mode("overwrite").parquet(operation.parquet)
        found = session.sql(SUMS, results=frame, most=MAX_SUMS).collect()
    except (PySparkException, Py4JError) as error:
        raise SweepFailed(cause(str(error))) from None
    resources.store.operations.save(operation.evolve(sums=tuple(map(_sum, found))), LOOK_EVERY)


def check_target(cluster: SparkContext | SparkSession, target: str) -> None:
    """Raise InputError if nothing can be written there, or something is there already: before an hour's work."""
    session = session_of(cluster)
    try:
        session.createDataFrame([], "nothing int").write.mode("error").parquet(target)
    except (PySparkException, Py4JError) as error:
        raise InputError(f"--parquet {target}: can't be written: {cause(str(error))}") from None


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
