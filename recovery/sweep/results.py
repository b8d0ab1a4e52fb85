"""What the plan of an operation found, as a data frame.

The address of MongoDB goes to executors with what they are to read, in bytes: nothing that Spark shows, of a plan or of
a request of Spark Connect's, has it.
"""

from __future__ import annotations

from typing import ClassVar

from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from recovery.engine import Resources
from recovery.sweep.source import register
from recovery.sweep.source.reader import RecoveryReader
from recovery.sweep.source.rows import SCHEMAS, Reading

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
