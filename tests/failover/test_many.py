"""A client asks for results all the time, while one primary after the other is lost with what only it had."""

from __future__ import annotations

import random
import threading
import uuid
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import psutil
import pytest
from pymongo.errors import PyMongoError

from recovery import ProcessBroken, Recovery, ResultTimeout
from recovery.errors import ProcessNotFound, ServerError
from recovery.settings import load
from recovery.stack import ReplicaSet, Stack
from recovery.stack.child import Child
from recovery.stack.replica_set import Member
from tests.failover import app as served
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.soak]

APP = "tests.failover.app:app"
FAILOVERS = 100


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
            for process_id in self.asked[-20:]:
                self.ask(process_id)

    def ask(self, process_id: str) -> bool:
        """Whether the process is over, as far as is told."""
        try:
            self.told[process_id].add(repr(self.app.result(process_id, timeout=0)))
        except ProcessBroken as error:
            self.told[process_id].add(str(error))
        except ProcessNotFound:
            self.told[process_id].add("there is none")
        except (ResultTimeout, PyMongoError, ServerError):
            return False
        return True


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("three"), mongo_nodes=3) as stack:
        yield stack


KINDS = ("draw", "pair", "refuse")


def test_a_client_is_never_told_two_things(three: Stack) -> None:
    nodes, seed = three.replica_set, random.randrange(2**32)
    assert nodes is not None
    print(f"seed {seed}")
    chance = random.Random(seed)
    app, workers = hire(three)
    decisions = app.resources.store.database["decisions"]
    client = Client(app)
    client.start()
    at_risk: dict[str, Any] = {}
    for number in range(FAILOVERS):
        # Each end that waits for a majority takes a slot, of which there are four.
        wait_until(lambda: len(client.asked) - len(client.told) <= 1, 60, f"seed {seed}, failover {number}: ends")
        client.asked += [started(app, kind) for kind in KINDS]
        alone = nodes.stop_replication()
        # The primary's word: what ends now is acknowledged by nobody.
        what = f"seed {seed}, failover {number}: the ends of {client.asked[-3:]}"
        wait_until(lambda: len(ends(decisions, client.asked[-3:])) == len(KINDS), 20, what)
        threading.Event().wait(chance.uniform(0, 1.5))  # scanners have the time to apply them, if they would
        at_risk |= ends(decisions, client.asked[-3:])
        lose(nodes, alone, workers, killed=number % 2 == 0)
    for process_id in client.asked:
        wait_until(lambda process_id=process_id: client.ask(process_id), 180, f"the end of {process_id}")
    client.ending.set()
    client.join()
    taken_back = sum(outcome != ends(decisions, [key])[key] for key, outcome in at_risk.items())
    print(f"{FAILOVERS} failovers, {len(client.asked)} results, {taken_back} ends taken back")
    assert taken_back >= FAILOVERS // 2, f"seed {seed}: hardly anything was lost, so nothing was tried"
    many = {process_id: told for process_id, told in client.told.items() if len(told) != 1}
    assert not many, f"seed {seed}"
    for process_id in client.asked:
        (told,) = client.told[process_id]
        word = ends(decisions, [process_id])[process_id]
        if "$promise" in word:
            first, second = app.result(process_id, timeout=0)
            assert first == second, f"seed {seed}: {process_id} is put together from two attempts"
        else:
            assert word.strip('"') in told, f"seed {seed}: {process_id}"


def hire(three: Stack) -> tuple[Recovery, list[Child]]:
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
    workers = [three.start_worker(APP, concurrency=2, env=settings.environment()) for _ in range(2)]
    three.start_beat(APP, env=settings.environment())
    records = app.resources.store.database["workers"]
    wait_until(lambda: records.count_documents({}) == len(workers), 60, "workers")
    return app, workers


def started(app: Recovery, kind: str) -> str:
    """A process that is started for certain: a new primary may not serve yet."""
    ids: list[str] = []

    def start() -> bool:
        try:
            ids.append(app.start(kind))
        except (PyMongoError, ServerError):
            return False
        return True

    wait_until(start, 60, f"a start of {kind}")
    return ids[0]


def ends(decisions: Any, process_ids: list[str]) -> dict[str, str]:
    """{process: the value or the message that its start task ended with}, by the primary's word."""
    keys = [f"{process_id}/start" for process_id in process_ids]
    found = decisions.find({"_id": {"$in": keys}, "state": "finished"}, {"outcome": True})
    return {
        document["_id"].partition("/")[0]: document["outcome"].get("value") or document["outcome"]["error"]["message"]
        for document in found
    }


def lose(nodes: ReplicaSet, alone: Member, workers: list[Child], *, killed: bool) -> None:
    """The primary is killed, or stands still until there is another one, with what only it has; so are those who would
    write it again."""
    if killed:
        alone.kill()
    else:
        alone.freeze()
    for worker in workers:
        for slot in psutil.Process(worker.pid).children():
            slot.kill()
    nodes.resume_replication()
    wait_until(lambda: nodes.primary() is not alone, 60, "another primary")
    alone.thaw()
    nodes.start()
    nodes.resume_replication()
