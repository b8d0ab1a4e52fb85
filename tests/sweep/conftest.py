"""One Spark session for all tests of the sweep; a sweep uses the session that is there and leaves it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from pyspark.sql import DataFrame, SparkSession

from recovery.settings import Settings
from recovery.sweep.session import spark as started
from recovery.sweep.source import register
from tests.sweep.database import Database

POLLED = 600.0
"""Seconds. The first job in a session takes its time, and what was polled before it has to count as polled after it."""


@pytest.fixture(scope="session")
def session() -> Iterator[None]:
    """A Spark session that outlives the tests' sweeps. Its Python workers have the environment of its start."""
    with ExitStack() as stack:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("RECOVERY_HEARTBEAT_TIMEOUT", str(POLLED))
            stack.enter_context(started(Settings(spark_master="local[2]")))
        yield


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"heartbeat_timeout": POLLED})


@pytest.fixture
def database(settings: Settings) -> Database:
    """An empty database with its collections, and what workers told of their queues."""
    return Database(settings)


@pytest.fixture(scope="session")
def spark(session: None) -> Iterator[SparkSession]:  # noqa: ARG001
    """The session, which knows our tables."""
    made = register(SparkSession.builder.getOrCreate())
    made.conf.set("spark.sql.session.timeZone", "UTC")
    made.conf.set("spark.sql.shuffle.partitions", "2")  # a hundred rows are not worth more
    yield made


class Tables:
    """The tables of one database."""

    def __init__(self, spark: SparkSession, settings: Settings) -> None:
        self.spark, self.settings = spark, settings

    def read(self, table: str, **options: str) -> DataFrame:
        reader = self.spark.read.format("recovery").option("table", table)
        reader = reader.option("uri", self.settings.mongo_uri).option("database", self.settings.database)
        for name, value in options.items():
            reader = reader.option(name, value)
        return reader.load()


@pytest.fixture
def tables(spark: SparkSession, database: Database, settings: Settings) -> Tables:  # noqa: ARG001
    """The tables of the empty database."""
    return Tables(spark, settings)
