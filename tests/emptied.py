"""A database with its collections made once, and emptied for each test: making them takes half a second.

A package's conftest takes both fixtures from here.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import pytest
import redis
from pymongo.database import Database

from recovery.settings import Settings, load
from recovery.stack import Stack
from recovery.store import Store, schema
from recovery.store.concerns import ACKNOWLEDGED

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
    for name in _filled(database):
        database[name].with_options(write_concern=ACKNOWLEDGED).delete_many({})
    _broker(lasting.broker_url).flushdb()
    return lasting


def _filled(database: Database[Any]) -> list[str]:
    """The collections that hold something, asked for at once: most tests write to few."""
    first, *others = schema.VALIDATORS
    union = [{"$unionWith": {"coll": name, "pipeline": _one_named(name)}} for name in others]
    return [found["name"] for found in database[first].aggregate([*_one_named(first), *union])]


def _one_named(name: str) -> list[dict[str, Any]]:
    return [{"$limit": 1}, {"$project": {"_id": False, "name": {"$literal": name}}}]


@lru_cache
def _broker(url: str) -> redis.Redis:
    return redis.Redis.from_url(url)
