"""A real mongod that is killed and comes back: one call at a time finds out, and all that waited go on soon after."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from recovery import Backoff, Recovery, Settings
from recovery.engine.outages import breaker
from recovery.records import DecisionState
from recovery.settings import load
from recovery.stack import ReplicaSet
from recovery.store import layout
from recovery.store.lifecycle.decisions import Decisions
from recovery.store.lifecycle.processes import Processes
from tests.waiting import wait_until
from tests.world import World

pytestmark = pytest.mark.thorough

THREADS = 12


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[ReplicaSet]:
    mongods = ReplicaSet(tmp_path / "data", lambda name: tmp_path / f"{name}.log", members=1)
    mongods.start()
    try:
        yield mongods
    finally:
        for member in mongods.members:
            member.kill()


def test_slots_wait_for_a_mongod_that_is_killed(
    nodes: ReplicaSet, settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ours = load(mongo_uri=nodes.uri, broker_url=settings.broker_url, database="test")
    world = World(ours)
    layout.create(world.store.database)
    app: Recovery = world.app
    app.process("order")(lambda: "done")
    world.start("order")
    caplog.set_level(logging.DEBUG, "recovery")

    insert, sent, away = Processes.insert, list[float](), threading.Event()

    def counted(self: Processes, *args: Any) -> Any:
        if away.is_set():
            sent.append(time.monotonic())
        return insert(self, *args)

    monkeypatch.setattr(Processes, "insert", counted)
    ended: list[float] = []

    def slot() -> None:
        app.start("order")
        ended.append(time.monotonic())

    nodes.members[0].kill()
    away.set()
    server = breaker(ours.mongo_uri)
    slots = [threading.Thread(target=slot) for _ in range(THREADS)]
    # The driver has seen that it is gone. So the first call opens it, long before a wait for a primary is over (20 s);
    # of those that come then none is sent but a trial.
    wait_until(world.store.is_away, 30, "the driver to see it")
    slots[0].start()
    wait_until(lambda: server.state != "closed", 10, "it to open")
    first = len(sent)
    for one in slots[1:]:
        one.start()
    began = time.monotonic()
    wait_until(lambda: time.monotonic() > began + 3, 10, "a while")
    trials = len(sent) - first
    assert trials <= 2, "a trial that waits for a primary, and one more after its time"
    nodes.start()
    back = time.monotonic()
    for one in slots:
        one.join(60)
    assert len(ended) == THREADS
    assert max(ended) - back < 5, "seconds; one on a machine that does nothing else"
    assert server.state == "closed"
    told = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert sum("circuit breaker open for" in line for line in told) == 1
    assert sum("circuit breaker closed after" in line for line in told) == 1
    reasons = {record.retry_reason for record in caplog.records if hasattr(record, "retry_reason")}
    assert "CIRCUIT_BREAKER_OPEN" in reasons
    assert reasons <= {"CIRCUIT_BREAKER_OPEN", "SOCKET_CLOSED_WHILE_IN_FLIGHT", "NODE_NOT_AVAILABLE", "NOT_PRIMARY"}
    assert world.store.database["processes"].count_documents({}) == THREADS + 1, "each once"


def test_the_failure_of_an_actor_is_written_once_its_mongod_is_back_and_not_sent_before(
    nodes: ReplicaSet, settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The application's own mongod is killed while the actor runs."""
    caplog.set_level(logging.DEBUG, "recovery")
    world = World(load(mongo_uri=nodes.uri, broker_url=settings.broker_url, database="test"))
    layout.create(world.store.database)
    server = breaker(world.settings.mongo_uri)
    retry_later, sent = Decisions.retry_later, list[str]()

    def counted(self: Decisions, *args: Any) -> Any:
        sent.append(server.state)
        return retry_later(self, *args)

    monkeypatch.setattr(Decisions, "retry_later", counted)

    def refused() -> list[logging.LogRecord]:
        return [one for one in caplog.records if getattr(one, "retry_reason", None) == "CIRCUIT_BREAKER_OPEN"]

    def start_again() -> None:
        wait_until(refused, 30, "a call that is not sent, because the breaker is open")
        assert sent == []
        nodes.start()

    @world.app.process(retry=Backoff(initial=60, jitter=(0, 0)))
    def order() -> None:
        world.store.catch_up(10)  # else the claim may be lost with the mongod
        nodes.members[0].kill()
        wait_until(world.store.is_away, 30, "the driver to see it")
        starting.start()
        raise ConnectionResetError(104, "reset")

    starting = threading.Thread(target=start_again)
    process_id = world.start(order)
    world.pump()
    starting.join(30)
    decision = world.store.decisions.get(f"{process_id}/start")
    assert decision is not None and decision.state is DecisionState.DELAYED
    assert decision.retry is not None and (decision.retry.count, decision.attempts) == (1, 1)
    assert server.state == "closed" and len(sent) == 1


def test_an_idle_process_knows_by_its_driver(nodes: ReplicaSet, settings: Settings) -> None:
    """Nobody has asked since it went: the first to ask does not wait for a primary with all the others."""
    ours = load(mongo_uri=nodes.uri, broker_url=settings.broker_url, database="test")
    store = World(ours).store
    assert not store.is_away(), "nobody has looked yet"
    store.now()
    assert not store.is_away()
    nodes.members[0].kill()
    wait_until(store.is_away, 30, "the driver to see it")
    nodes.start()
    store.now()
    assert not store.is_away()
