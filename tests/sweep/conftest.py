"""One Spark session for all tests of the sweep; a sweep uses the session that is there and leaves it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from recovery.settings import Settings
from recovery.sweep.session import spark
from tests.sweep.database import Database


@pytest.fixture(scope="session")
def session() -> Iterator[None]:
    """A Spark session that outlives the tests' sweeps."""
    with spark(Settings(spark_master="local[2]")):
        yield


@pytest.fixture
def database(settings: Settings) -> Database:
    """An empty database with its collections, and what workers told of their queues."""
    return Database(settings)
