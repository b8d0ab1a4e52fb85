"""Real servers that fail while an actor uses them: what becomes of the actor's task.

`tests/retry/test_real_*.py` have more errors of the same servers, without an application. Nothing here knows how errors
are classified.
"""

from __future__ import annotations

import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from pymongo import MongoClient

from recovery import Settings
from recovery.records import DecisionState, ProcessState
from recovery.stack import ReplicaSet
from recovery.stack.server_process import free_port
from tests.retry.caught import caught
from tests.retry.real_http import server as server
from tests.retry.real_mongod import Documents, Writing, taking
from tests.retry.real_mongod import documents as documents
from tests.retry.real_mongod import nodes as nodes
from tests.retry.real_valkey import Own, busy, client, killed_in_mid_command
from tests.retry.real_valkey import valkey as valkey
from tests.waiting import wait_until
from tests.world import World

pytestmark = pytest.mark.thorough


@dataclass(frozen=True)
class Fate:
    """What becomes of a task whose attempt fails with an error."""

    reason: str
    retried: bool = True
    """Whether it is retried if its actor is idempotent."""
    retried_always: bool = True
    """The same if the actor is not."""


def passes(reason: str) -> Fate:
    return Fate(reason)


def in_flight(reason: str) -> Fate:
    return Fate(reason, retried_always=False)


ENDS = Fate("UNKNOWN", retried=False, retried_always=False)
AWAY = passes("NODE_NOT_AVAILABLE")
LOST = in_flight("SOCKET_CLOSED_WHILE_IN_FLIGHT")
TIMED_OUT = in_flight("TIMEOUT_IN_FLIGHT")


def fate(world: World, use: Callable[[], object]) -> Fate:
    """Have an actor use a server that fails. An actor that is not idempotent then fails with the same error."""
    errors: list[Exception] = []

    def order() -> None:
        if not errors:
            errors.append(caught(use))
        raise errors[0]

    world.app.actors.clear()
    found = [_attempted(world, name, order, idempotent=name == "order") for name in ("order", "order_once")]
    (reason, retried), (other, retried_always) = found
    assert reason == other
    return Fate(reason, retried, retried_always)


def _attempted(world: World, name: str, function: Callable[[], None], **settings: Any) -> tuple[str, bool]:
    """Run an attempt. Return the reason of its error, and whether it is retried."""
    process_id = world.start(world.app.process(name, **settings)(function))
    world.pump()
    decision, process = world.store.decisions.get(f"{process_id}/start"), world.process(process_id)
    assert decision is not None
    if decision.state is DecisionState.DELAYED:
        assert decision.retry is not None
        return decision.retry.reason, True
    assert process.state is ProcessState.BROKEN
    assert process.error is not None and process.error.reason is not None
    return process.error.reason, False


def test_an_actor_whose_mongod_is_full_or_slow_or_steps_down(
    world: World, nodes: ReplicaSet, documents: Documents
) -> None:
    mongod = nodes.members[0]
    documents.insert_one({})
    full = {"failCommands": ["insert"], "errorCode": 14031}
    mongod.command("configureFailPoint", "failCommand", mode={"times": 1}, data=full)
    assert fate(world, lambda: documents.insert_one({})) == passes("SERVER_OVERLOADED")
    assert fate(world, lambda: documents.find(taking(2_000_000)).max_time_ms(20).next()) == TIMED_OUT

    def steps_down() -> None:
        writing = Writing(documents)
        documents.database.client.admin.command("replSetStepDown", 60, force=True)
        raise writing.ended()

    assert fate(world, steps_down) == in_flight("STATE_CHANGED_IN_FLIGHT")
    assert fate(world, lambda: documents.insert_one({})) == passes("NOT_PRIMARY")


def test_an_actor_whose_mongod_shuts_down_or_is_killed(world: World, nodes: ReplicaSet, documents: Documents) -> None:
    def shuts_down() -> None:
        writing, child = Writing(documents), nodes.members[0].child
        assert child is not None
        child.terminate()
        raise writing.ended()

    said = fate(world, shuts_down)
    assert said in (in_flight("STATE_CHANGED_IN_FLIGHT"), LOST), "it may say so, or hang up"
    wait_until(lambda: not nodes.members[0].running, 30, "its end")
    caught(lambda: documents.insert_one({}))  # of a connection that was there
    assert fate(world, lambda: documents.insert_one({})) == AWAY
    nodes.start()

    def is_killed() -> None:
        writing = Writing(documents)
        nodes.members[0].kill()
        raise writing.ended()

    assert fate(world, is_killed) == LOST


def test_an_actor_whom_a_mongod_refuses_a_login(world: World, settings: Settings) -> None:
    there = settings.mongo_uri.removeprefix("mongodb://")
    with MongoClient[Any](f"mongodb://nobody:secret@{there}", serverSelectionTimeoutMS=5000) as stranger:
        assert fate(world, lambda: stranger["test"]["documents"].insert_one({})) == ENDS


def test_an_actor_whose_valkey_can_not_do_it_now(world: World, valkey: Own, settings: Settings) -> None:
    with client(valkey) as asking, client(valkey) as other:
        assert fate(world, lambda: _raise(busy(valkey))) == passes("REDIS_BUSY")
        asking.config_set("maxmemory", "1mb")
        assert fate(world, lambda: asking.set("key", "x" * 2_000_000)) == passes("REDIS_OUT_OF_MEMORY")
        asking.config_set("maxclients", 1)
        assert fate(world, other.ping) == passes("SERVER_OVERLOADED")
        asking.config_set("maxclients", 100)
        host, port = settings.broker_url.removeprefix("redis://").partition("/")[0].split(":")
        asking.replicaof(host, port)
        assert fate(world, lambda: asking.set("key", 1)) == passes("REDIS_READ_ONLY")
    with client(valkey, username="nobody", password="secret") as stranger:
        assert fate(world, stranger.ping) == ENDS


def test_an_actor_whose_valkey_is_frozen_or_loading_or_killed(world: World, valkey: Own) -> None:
    with client(valkey, socket_timeout=0.1) as asking:
        asking.ping()
        valkey.freeze()
        assert fate(world, lambda: asking.get("key")) == TIMED_OUT
        valkey.thaw()
    valkey.restart_slowly()
    with client(valkey) as asking:
        assert fate(world, lambda: asking.get("last")) == passes("REDIS_LOADING")
    valkey.kill()
    valkey.options = ()
    valkey.start()
    assert fate(world, lambda: _raise(killed_in_mid_command(valkey))) == LOST
    with client(valkey) as asking:
        assert fate(world, lambda: asking.get("key")) == AWAY


def _raise(error: Exception) -> None:
    raise error


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("429-later", passes("HTTP_TOO_MANY_REQUESTS")),
        ("503-later", passes("HTTP_SERVICE_UNAVAILABLE")),
        ("502", in_flight("HTTP_GATEWAY")),
        ("404", ENDS),
        ("reset", LOST),
        ("hangs-up", LOST),
        ("half", LOST),
        ("slow", TIMED_OUT),
    ],
)
def test_an_actor_whose_http_server_fails(world: World, server: str, path: str, expected: Fate) -> None:
    limit = 0.3 if path == "slow" else 30

    def ask() -> bytes:
        with urllib.request.urlopen(f"{server}/{path}", timeout=limit) as answer:
            return bytes(answer.read())

    assert fate(world, ask) == expected


def test_an_actor_whose_http_server_is_not_there(world: World) -> None:
    url = f"http://127.0.0.1:{free_port()}/"
    assert fate(world, lambda: urllib.request.urlopen(url, timeout=30)) == AWAY
