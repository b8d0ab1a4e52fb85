"""A client asks for results all the time, while one primary after the other is lost with what only it had."""

from __future__ import annotations

import random
import threading
import uuid
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest
from pymongo.errors import PyMongoError

from recovery import ProcessBroken, Recovery, ResultTimeout
from recovery.errors import ProcessNotFound, ServerError
from recovery.settings import load
from recovery.stack import ReplicaSet, Stack
from recovery.stack.child import ChildProcess
from recovery.stack.replica_set import Member
from tests.failover import app as served
from tests.failover.app import Gate
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.soak]

APP = "tests.failover.app:app"
FAILOVERS = 100
KINDS = ("draw", "pair", "refuse")
LATEST = 20
"""So many of the processes are asked for all the time: those that the last failovers met."""
WITHIN = 60.0
"""Seconds for what is certain to come: so many are a fault, however slow the machine is."""


class Client(threading.Thread):
    """Asks for each result again and again, and keeps everything that it was told."""

    def __init__(self, app: Recovery) -> None:
        super().__init__(daemon=True)
        self.app = app
        self.told: dict[str, set[str]] = defaultdict(set)
        self.asked: list[str] = []
        self.ending = threading.Event()

    def run(self) -> None:
        while not self.ending.wait(0.01):
            for process_id in self.asked[-LATEST:]:
                self.ask(process_id)

    def ask(self, process_id: str) -> bool:
        """Whether the process is over, as far as is told."""
        try:
            told = repr(self.app.result(process_id, timeout=0))
        except ProcessBroken as error:
            told = str(error)
        except ProcessNotFound:
            told = "there is none"
        except (ResultTimeout, ServerError):
            return False
        self.told[process_id].add(told)
        return True


class End(NamedTuple):
    """How the start task of a process ended: in which attempt, and with which value or message."""

    attempt: str
    word: str


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("three"), mongo_nodes=3) as stack:
        yield stack


def test_a_client_is_never_told_two_things(three: Stack, tmp_path: Path) -> None:
    nodes, seed = three.replica_set, random.randrange(2**32)
    assert nodes is not None
    print(f"seed {seed}")
    chance = random.Random(seed)
    app, workers = hire(three)
    decisions = app.resources.store.database["decisions"]
    client = Client(app)
    client.start()
    seen: set[tuple[str, End]] = set()
    for number in range(FAILOVERS):
        what, gate = f"seed {seed}, failover {number}", Gate(str(tmp_path), number)
        begun = begin(app, gate, what)
        client.asked += begun
        alone = nodes.stop_replication()
        let_end(gate, decisions, begun, what)
        threading.Event().wait(chance.uniform(0, 1.5))  # scanners have the time to apply them, if they would
        seen |= ends(decisions, client.asked[-LATEST:]).items()
        lose(nodes, alone, workers, killed=number % 2 == 0)
    for process_id in client.asked:
        wait_until(lambda process_id=process_id: client.ask(process_id), 180, f"seed {seed}: the end of {process_id}")
    client.ending.set()
    client.join()
    stood = ends(decisions, client.asked)
    taken_back = [process_id for process_id, end in seen if end != stood[process_id]]
    again = len(set(taken_back))
    print(f"{FAILOVERS} failovers, {len(client.asked)} results, {len(taken_back)} ends of {again} taken back")
    assert again >= 0.9 * len(client.asked), f"seed {seed}: hardly anything was lost, so nothing was tried"
    many = {process_id: told for process_id, told in client.told.items() if len(told) != 1}
    assert not many, f"seed {seed}"
    for process_id in client.asked:
        (told,) = client.told[process_id]
        word = stood[process_id].word
        if "$promise" in word:
            first, second = app.result(process_id, timeout=0)
            assert first == second, f"seed {seed}: {process_id} is put together from two attempts"
        else:
            assert word.strip('"') in told, f"seed {seed}: {process_id}"


def hire(three: Stack) -> tuple[Recovery, list[ChildProcess]]:
    """Two workers and a beat on a database of their own: the application that they serve, and the workers."""
    settings = load(
        mongo_uri=three.mongo_uri,
        broker_url=three.broker_url,
        database=f"test_{uuid.uuid4().hex[:12]}",
        apply_timeout=0.4,
        idle_timeout=2.0,
        message_timeout=2.0,
        scan_interval=0.2,
        heartbeat_interval=0.5,
        heartbeat_timeout=2.0,
    )
    app = Recovery(settings)
    app.actors = served.app.actors
    workers = [three.start_worker(APP, concurrency=3, env=settings.environment()) for _ in range(2)]
    three.start_beat(APP, env=settings.environment())
    records = app.resources.store.database["workers"]
    wait_until(lambda: records.count_documents({}) == len(workers), WITHIN, "workers")
    return app, workers


def begin(app: Recovery, gate: Gate, what: str) -> list[str]:
    """A process of each kind whose attempt has its slot, and waits at the gate.

    That has to be so before replication stops. From then on whoever has an end to write keeps its slot: these, but also
    what earlier failovers took back and others bring on.
    """
    begun = [start(app, kind, gate) for kind in KINDS]
    wait_until(lambda: gate.arrived() == set(KINDS), WITHIN, f"{what}: attempts of {begun}")
    return begun


def start(app: Recovery, kind: str, gate: Gate) -> str:
    """A process that is started for certain, and once: a new primary may not serve yet."""

    def started() -> str | None:
        try:
            return app.start(kind, gate.folder, gate.number, custom_id=str(gate.number))
        except ServerError:
            return None

    found = wait_until(started, WITHIN, f"a start of {kind}")
    assert found is not None
    return found


def let_end(gate: Gate, decisions: Any, begun: list[str], what: str) -> None:
    """Open their gate: they end by the primary's word, and nobody acknowledges it."""
    gate.open()

    def ended() -> bool:
        try:
            return len(ends(decisions, begun)) == len(begun)
        except PyMongoError:  # its connections were the last primary's
            return False

    wait_until(ended, WITHIN, f"{what}: ends of {begun}")


def ends(decisions: Any, process_ids: list[str]) -> dict[str, End]:
    """{process: the end of its start task}, of those that have ended by the primary's word."""
    keys = [f"{process_id}/start" for process_id in process_ids]
    found = decisions.find({"_id": {"$in": keys}, "state": "finished"}, {"outcome": True})
    return {document["_id"].partition("/")[0]: _end(document["outcome"]) for document in found}


def _end(outcome: dict[str, Any]) -> End:
    return End(outcome["pass"], outcome.get("value") or outcome["error"]["message"])


def lose(nodes: ReplicaSet, alone: Member, workers: list[ChildProcess], *, killed: bool) -> None:
    """The primary is killed, or stands still until there is another one, with what only it has; so are those who would
    write it again."""
    if killed:
        alone.kill()
    else:
        alone.freeze()
    for worker in workers:
        for slot in psutil.Process(worker.pid).children():
            with suppress(psutil.NoSuchProcess):
                slot.kill()
    nodes.resume_replication()
    wait_until(lambda: nodes.primary() is not alone, WITHIN, "another primary")
    alone.thaw()
    nodes.start()
