"""A database with its collections made once, and emptied for each test: making them takes half a second.

A package's conftest takes both fixtures from here.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
import redis

from recovery.settings import Settings, load
from recovery.stack import Stack
from recovery.store import Store, schema
from recovery.store.expressions import RESTORABLE

REDIS_DATABASE = 15


@pytest.fixture(scope="session")
def lasting(stack: Stack) -> Iterator[Settings]:
    """Settings of a database that lasts as long as the tests of one package."""
    made = load(
        mongo_uri=stack.mongo_uri,
        broker_url=f"{stack.broker_url.rpartition('/')[0]}/{REDIS_DATABASE}",
        database=f"test_{uuid.uuid4().hex[:12]}",
    )
    database = Store(made).database
    schema.create(database)
    yield made
    database.client.drop_database(made.database)


@pytest.fixture
def emptied(lasting: Settings) -> Settings:
    """Settings with all collections there and empty, and an empty broker."""
    database = Store(lasting).database
    for name in schema.VALIDATORS:
        database[name].with_options(write_concern=RESTORABLE).delete_many({})
    with redis.Redis.from_url(lasting.broker_url) as broker:
        broker.flushdb()
    return lasting
