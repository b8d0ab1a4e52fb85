"""Errors of a real mongod, as pymongo raises them: what they are, and what becomes of them."""

from __future__ import annotations

import resource
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.errors import PyMongoError

from recovery.errors import StoreError
from recovery.retry.in_place import by_driver
from recovery.settings import Settings
from recovery.stack import ReplicaSet
from recovery.store.driver_errors import ours
from tests.retry.caught import caught
from tests.retry.outcome import Outcome, outcome
from tests.retry.real_mongod import Documents, Writing, taking
from tests.retry.real_mongod import documents as documents
from tests.retry.real_mongod import nodes as nodes
from tests.waiting import wait_until

pytestmark = pytest.mark.thorough

AWAY = Outcome.passes("MONGODB_AWAY", "NODE_NOT_AVAILABLE")
NOT_PRIMARY = Outcome.passes("MONGODB_NOT_PRIMARY", "NOT_PRIMARY")
FULL = Outcome.passes("MONGODB_OVERLOADED", "SERVER_OVERLOADED")
CHANGED = Outcome.in_flight("MONGODB_STEPPED_DOWN", "STATE_CHANGED_IN_FLIGHT")
LOST = Outcome.in_flight("MONGODB_CONNECTION_LOST", "SOCKET_CLOSED_WHILE_IN_FLIGHT")
TIMED_OUT = Outcome.in_flight("MONGODB_TIMED_OUT", "TIMEOUT_IN_FLIGHT")
DENIED = Outcome.stays("MONGODB_DENIED")
REFUSED = Outcome.stays("MONGODB_REFUSED")


def seen(error: Exception) -> Outcome:
    """By the catalogues, and by those for our own calls: through the store's translation the same."""
    assert isinstance(error, PyMongoError)
    said = outcome(error)
    translated = ours(error)
    translated.__cause__ = error
    assert isinstance(translated, StoreError)
    assert outcome(translated, by_driver) == said
    return said


def test_it_steps_down(nodes: ReplicaSet, documents: Documents) -> None:
    writing = Writing(documents)
    documents.database.client.admin.command("replSetStepDown", 60, force=True)
    assert seen(writing.ended()) == CHANGED, "in the middle of a write"
    assert seen(caught(lambda: documents.insert_one({}))) == NOT_PRIMARY, "and refuses the next"
    with MongoClient[Any](nodes.uri, serverSelectionTimeoutMS=200) as client:
        assert seen(caught(lambda: client["test"]["documents"].insert_one({}))) == AWAY, "and there is no other"


def test_it_shuts_down(nodes: ReplicaSet, documents: Documents) -> None:
    writing = Writing(documents)
    child = nodes.members[0].child
    assert child is not None
    child.terminate()
    assert seen(writing.ended()) in (CHANGED, LOST), "it may say so, or hang up"
    wait_until(lambda: not nodes.members[0].running, 30, "its end")
    assert seen(caught(lambda: documents.insert_one({}))) in (LOST, AWAY)
    assert seen(caught(lambda: documents.insert_one({}))) == AWAY


def test_it_is_killed_in_mid_command(nodes: ReplicaSet, documents: Documents) -> None:
    writing = Writing(documents)
    nodes.members[0].kill()
    assert seen(writing.ended()) == LOST


def test_its_disk_is_full(nodes: ReplicaSet, documents: Documents) -> None:
    """What it says while it still can, and what really happens: it may write no more to its files, and ends."""
    documents.insert_one({})
    said = {"failCommands": ["insert"], "errorCode": 14031}
    nodes.members[0].command("configureFailPoint", "failCommand", mode={"times": 1}, data=said)
    assert seen(caught(lambda: documents.insert_one({}))) == FULL

    child = nodes.members[0].child
    assert child is not None
    resource.prlimit(child.pid, resource.RLIMIT_FSIZE, (4096, 4096))

    def write() -> None:
        for _ in range(1000):
            documents.with_options().insert_one({"x": "x" * 100_000})

    assert seen(caught(write)) in (LOST, FULL)
    wait_until(lambda: not nodes.members[0].running, 30, "its end")
    assert seen(caught(lambda: documents.insert_one({}))) == AWAY


def test_it_refuses_a_login(settings: Settings) -> None:
    there = settings.mongo_uri.removeprefix("mongodb://")
    with MongoClient[Any](f"mongodb://nobody:secret@{there}", serverSelectionTimeoutMS=5000) as client:
        assert seen(caught(lambda: client["test"]["documents"].insert_one({}))) == DENIED


def test_nobody_listens() -> None:
    with MongoClient[Any]("mongodb://127.0.0.1:1", serverSelectionTimeoutMS=100) as client:
        assert seen(caught(lambda: client["test"]["documents"].insert_one({}))) == AWAY


def test_it_is_slow(settings: Settings) -> None:
    with MongoClient[Any](settings.mongo_uri) as client:
        found = client[settings.database]["documents"]
        found.insert_one({})
        slow = taking(2_000_000)
        assert seen(caught(lambda: found.find(slow).max_time_ms(20).next())) == TIMED_OUT, "its own time limit"
    with MongoClient[Any](settings.mongo_uri, socketTimeoutMS=50, retryReads=False) as client:
        found = client[settings.database]["documents"]
        assert seen(caught(lambda: found.find(slow).next())) == TIMED_OUT, "ours"


def test_what_is_wrong_with_the_call(settings: Settings) -> None:
    with MongoClient[Any](settings.mongo_uri) as client:
        found = client[settings.database]["documents"]
        found.insert_one({"_id": 1})
        assert seen(caught(lambda: found.insert_one({"_id": 1}))) == REFUSED
        assert seen(caught(lambda: found.update_one({}, {"$nonsense": 1}))) == REFUSED
