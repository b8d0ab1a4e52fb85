"""A real mongod that tests may do anything to, and a write that is under way while they do."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.collection import Collection

from recovery.stack import ReplicaSet
from tests.retry.caught import caught
from tests.waiting import wait_until

Documents = Collection[dict[str, Any]]


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[ReplicaSet]:
    """A set of one that tests may do anything to."""
    mongods = ReplicaSet(tmp_path / "data", lambda name: tmp_path / f"{name}.log", members=1)
    mongods.start()
    try:
        yield mongods
    finally:
        for member in mongods.members:
            member.kill()


@pytest.fixture
def documents(nodes: ReplicaSet) -> Iterator[Documents]:
    """A collection of that one, by a client that tries nothing again and asks this very server."""
    with MongoClient[dict[str, Any]](
        nodes.members[0].address,
        directConnection=True,
        retryWrites=False,
        retryReads=False,
        serverSelectionTimeoutMS=500,
    ) as client:
        yield client["test"]["documents"]


def taking(steps: int) -> dict[str, Any]:
    """A query of which each document takes so many steps, some million in a second."""
    thousand = {"$reduce": {"input": {"$range": [0, 1000]}, "initialValue": 0, "in": {"$add": ["$$value", "$$this"]}}}
    total = {
        "$reduce": {"input": {"$range": [0, steps // 1000]}, "initialValue": 0, "in": {"$add": ["$$value", thousand]}}
    }
    return {"$expr": {"$gte": [total, {"$size": {"$objectToArray": "$$ROOT"}}]}}


class Writing:
    """A write that is under way until somebody ends it."""

    def __init__(self, documents: Documents) -> None:
        documents.insert_many([{"n": n} for n in range(20_000)])
        self._documents = documents
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._write)
        self._thread.start()
        admin = documents.database.client.admin
        wait_until(lambda: self._under_way(admin), 20, "the write")

    def _write(self) -> None:
        slow = taking(20_000)
        self.error = caught(lambda: self._documents.update_many(slow, {"$inc": {"n": 1}}))

    def _under_way(self, admin: Any) -> bool:
        running = admin.aggregate([{"$currentOp": {}}, {"$match": {"op": "update", "secs_running": {"$gte": 0}}}])
        return bool(list(running))

    def ended(self) -> Exception:
        self._thread.join(30)
        assert self.error is not None
        return self.error
