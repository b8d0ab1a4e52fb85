"""Three real mongods: a primary that is killed, frozen or steps down is followed by another."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient, WriteConcern

from recovery.stack import Member, ReplicaSet, Stack
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def replica_set(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplicaSet]:
    with Stack(tmp_path_factory.mktemp("a set"), broker_url="redis://unused", mongo_nodes=3) as stack:
        assert stack.mongod is None and stack.replica_set is not None
        yield stack.replica_set


@pytest.fixture
def mongo(replica_set: ReplicaSet) -> Iterator[MongoClient[dict[str, Any]]]:
    with MongoClient[dict[str, Any]](replica_set.uri) as client:
        yield client


def other_primary(replica_set: ReplicaSet, than: Member) -> Member:
    return wait_until(lambda: found if (found := replica_set.primary()) is not than else None, 20, "another primary")


def test_a_primary_that_is_killed(replica_set: ReplicaSet, mongo: MongoClient[dict[str, Any]]) -> None:
    majority = mongo.db.things.with_options(write_concern=WriteConcern("majority"))
    majority.insert_one({"_id": 1})
    first = replica_set.primary()
    assert len(replica_set.secondaries()) == 2
    first.kill()
    assert other_primary(replica_set, first).running
    assert mongo.db.things.find_one() == {"_id": 1}
    first.start()
    replica_set.start()


def test_a_primary_that_steps_down(replica_set: ReplicaSet) -> None:
    first = replica_set.step_down()
    assert other_primary(replica_set, first) in replica_set.members


def test_a_primary_that_is_frozen(replica_set: ReplicaSet) -> None:
    first = replica_set.primary()
    first.freeze()
    assert first.frozen and first.running
    second = other_primary(replica_set, first)
    first.thaw()
    assert not first.frozen
    wait_until(lambda: first.hello().get("secondary"), 20, "the old primary to be a secondary")
    assert replica_set.primary() is second


@pytest.mark.soak
def test_its_data_moves_to_other_ports(tmp_path: Path) -> None:
    for number in (1, 2):
        stack = Stack(tmp_path, broker_url="redis://unused", mongo_nodes=3)
        with stack, MongoClient[dict[str, Any]](stack.mongo_uri) as mongo:
            mongo.db.things.insert_one({"_id": number})
            assert mongo.db.things.count_documents({}) == number
