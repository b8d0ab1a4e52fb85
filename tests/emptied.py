"""A database with its collections made once, and emptied for each test: making them takes half a second. Or kept as it
is once a module has filled it, and had again for each of its tests.

A package's conftest takes both fixtures from here.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import pytest
import redis
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from pymongo.collection import Collection
from pymongo.database import Database

import recovery.queue
from recovery.settings import Settings, load
from recovery.stack import Stack
from recovery.store import Store, definitions, layout
from recovery.store.concerns import RESTORABLE
from tests.documents import database_of

REDIS_DATABASE = 15


@pytest.fixture(scope="session")
def lasting(stack: Stack) -> Iterator[Settings]:
    """Settings of a database that lasts as long as the tests of one package."""
    made = load(
        mongo_uri=stack.mongo_uri,
        broker_url=f"{stack.broker_url.rpartition('/')[0]}/{REDIS_DATABASE}",
        database=f"test_{uuid.uuid4().hex[:12]}",
    )
    database = database_of(Store(made))
    layout.create(database)
    yield made
    database.client.drop_database(made.database)


@pytest.fixture
def emptied(lasting: Settings) -> Settings:
    """Settings with all collections there and empty, and an empty broker."""
    empty(lasting)
    return lasting


def empty(settings: Settings) -> None:
    """Have all collections empty, and the broker as one that nothing was pushed to yet."""
    store = Store(settings)
    for name in _filled(database_of(store)):
        database_of(store)[name].with_options(write_concern=RESTORABLE).delete_many({})
    database_of(store)["system.profile"].drop()  # what the test before had asked is none of the next one's
    _broker(settings.broker_url).flushdb()
    recovery.queue.Kept(settings.broker_url).note()  # it lost nothing
    store.catch_up(10)


@contextmanager
def without_index(store: Store, collection: str, index: str) -> Iterator[None]:
    """Within, this index is missing. Afterwards it is there again, for the next test."""
    database_of(store)[collection].drop_index(index)
    try:
        yield
    finally:
        layout.create(database_of(store))


class Kept:
    """All that a database and its broker hold."""

    def __init__(self, settings: Settings) -> None:
        self._settings, self._store = settings, Store(settings)
        self._broker = _broker(settings.broker_url)
        self._records = {name: list(self._collection(name).find()) for name in definitions.VALIDATORS}
        self._keys = {key: dump for key in self._broker.scan_iter() if (dump := self._broker.dump(key)) is not None}

    def restore(self) -> None:
        """Have all of it again, and nothing else."""
        empty(self._settings)
        for name, records in self._records.items():
            if records:
                self._collection(name).insert_many(records)
        self._store.catch_up(10)
        for key, value in self._keys.items():
            self._broker.restore(key, 0, value, replace=True)

    def changed(self) -> list[str]:
        """Collections that are not as they were."""
        return [name for name, records in self._records.items() if list(self._collection(name).find()) != records]

    def _collection(self, name: str) -> Collection[RawBSONDocument]:
        options = CodecOptions(document_class=RawBSONDocument)
        return database_of(self._store)[name].with_options(options, write_concern=RESTORABLE)


def _filled(database: Database[Any]) -> list[str]:
    """The collections that hold something, asked for at once: most tests write to few."""
    first, *others = definitions.VALIDATORS
    union = [{"$unionWith": {"coll": name, "pipeline": _one_named(name)}} for name in others]
    return [found["name"] for found in database[first].aggregate([*_one_named(first), *union])]


def _one_named(name: str) -> list[dict[str, Any]]:
    return [{"$limit": 1}, {"$project": {"_id": False, "name": {"$literal": name}}}]


@lru_cache
def _broker(url: str) -> redis.Redis:
    return redis.Redis.from_url(url)
