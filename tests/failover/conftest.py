"""A replica set that loses what was not acknowledged."""

from __future__ import annotations

import os
import signal
import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

import pytest

from recovery import Recovery, Settings
from recovery.records import Decision
from recovery.settings import load
from recovery.stack import ReplicaSet, Stack
from recovery.store import layout
from recovery.store.concerns import current
from tests.documents import database_of
from tests.store.writing import get
from tests.waiting import wait_until
from tests.world import World

T = TypeVar("T")

ELECTED_TIMEOUT = 60.0


class Background(Generic[T]):
    """Something that may hang, in a thread of its own."""

    def __init__(self, work: Callable[[], T]) -> None:
        self.result: T | None = None
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(work,), daemon=True)
        self._thread.start()

    def _run(self, work: Callable[[], T]) -> None:
        try:
            self.result = work()
        except BaseException as error:
            self.error = error

    def over(self, within: float) -> bool:
        """Whether it has ended, by itself, after so many seconds at the most."""
        self._thread.join(within)
        return not self._thread.is_alive()


class Failover:
    """One application on the set, and the loss of what only the primary has."""

    def __init__(self, nodes: ReplicaSet, settings: Settings) -> None:
        self.nodes = nodes
        self.world = World(settings)
        layout.create(database_of(self.world.store))

    @property
    def app(self) -> Recovery:
        return self.world.app

    def replicated(self) -> None:
        """All members have all that there is now."""
        self.world.store.catch_up(30)

    def stop_replication(self) -> None:
        """From here on nothing is acknowledged, and all will be lost."""
        self.world.tell()
        self.replicated()
        self.nodes.stop_replication()

    def lose_primary(self) -> None:
        """The primary dies with what it alone has; another one is elected, and the old one comes back without."""
        primary = self.nodes.primary()
        primary.kill()
        self.nodes.resume_replication()
        wait_until(lambda: self.nodes.primary() is not primary, ELECTED_TIMEOUT, "another primary")
        self.nodes.start()
        # The clients of this process learn of it with their next command.
        wait_until(self._answers, ELECTED_TIMEOUT, "an answer")
        self.replicated()

    def _answers(self) -> bool:
        try:
            self.world.store.now()
        except Exception:
            return False
        return True

    def finish_and_die(self, actor: str) -> Decision:
        """A worker takes the task of an actor and finishes it, where nothing is acknowledged any more, and is killed;
        the decision as the primary alone has it."""
        child = os.fork()
        if child == 0:
            try:
                World(self.world.settings, self.app).take_one(actor, holder="mortal#1")
            finally:
                os._exit(0)
        try:
            wait_until(lambda: self.finished(actor), 20, f"an end of {actor}")
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        (decision,) = self.finished(actor)
        return decision

    def finished(self, actor: str) -> list[Decision]:
        """The finished decisions of an actor, as the primary alone has them."""
        found = database_of(self.world.store)["decisions"].find({"actor": actor, "state": "finished"}, {"_id": True})
        return [get(self.world.store, document["_id"]) for document in found]

    def overdue(self, *collections: str) -> None:
        """All deadlines in these collections are past, by the primary's word."""
        for name in collections or ("decisions", "graphs", "processes"):
            live: dict[str, Any] = {"recoveryTime": {"$exists": True}}
            stages = [{"$set": {"recoveryTime": {"$subtract": ["$$NOW", 1000]}}}]
            current(database_of(self.world.store)[name]).update_many(live, stages)


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("three"), mongo_nodes=3) as stack:
        yield stack


@pytest.fixture
def failover(three: Stack) -> Iterator[Failover]:
    nodes = three.replica_set
    assert nodes is not None
    database = f"test_{uuid.uuid4().hex[:12]}"
    settings = load(mongo_uri=three.mongo_uri, broker_url=three.broker_url, database=database)
    yield Failover(nodes, settings)
    nodes.resume_replication()
    nodes.start()
