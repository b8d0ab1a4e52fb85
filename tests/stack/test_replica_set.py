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


def test_a_primary_that_is_frozen(replica_set: ReplicaSet, mongo: MongoClient[dict[str, Any]]) -> None:
    """What it alone had is taken back, though it comes back as soon as there is another one."""
    first = replica_set.stop_replication()
    mongo.db.things.with_options(write_concern=WriteConcern(1)).insert_one({"_id": "alone"})
    first.freeze()
    assert first.frozen and first.running
    replica_set.resume_replication()
    second = other_primary(replica_set, first)
    first.thaw()
    assert not first.frozen
    replica_set.start()
    assert first.hello().get("secondary") and replica_set.primary() is second
    assert mongo.db.things.count_documents({"_id": "alone"}) == 0


def test_a_member_that_breaks_off_is_asked_again(replica_set: ReplicaSet) -> None:
    """As one does that takes back what it alone had: it closes its connections, and the driver asks once more."""
    broken_off = {"failCommands": ["replSetGetConfig"], "closeConnection": True}
    replica_set.members[0].command("configureFailPoint", "failCommand", mode={"times": 3}, data=broken_off)
    replica_set.start()


@pytest.mark.soak
def test_its_data_moves_to_other_ports(tmp_path: Path) -> None:
    for number in (1, 2):
        stack = Stack(tmp_path, broker_url="redis://unused", mongo_nodes=3)
        with stack, MongoClient[dict[str, Any]](stack.mongo_uri) as mongo:
            mongo.db.things.insert_one({"_id": number})
            assert mongo.db.things.count_documents({}) == number
