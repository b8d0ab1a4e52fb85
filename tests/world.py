"""A small world: real servers, and slots and scanners in the test's own process instead of Celery workers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any
from unittest.mock import patch

import redis

from recovery import Recovery, Settings
from recovery.engine import Actor, Host, Slot, Started
from recovery.engine.run.batch import Batch
from recovery.errors import BrokerError
from recovery.queue import Kept
from recovery.records import Decision, Process
from recovery.scan import DecisionScanner, GraphScanner, ProcessScanner
from recovery.store import Store
from tests.documents import database_of
from tests.faults import Died
from tests.waiting import wait_until


class Mortal(Host):
    """A process that ends where a test says so."""

    def ends(self, error: BaseException) -> bool:
        return isinstance(error, Died) or super().ends(error)


class World:
    """One application on one database and one broker, whose collections are there."""

    def __init__(self, settings: Settings, app: Recovery | None = None, **changes: float) -> None:
        # Short deadlines: what is cut off is looked at within half a second.
        short = {"apply_timeout": 0.3, "message_timeout": 0.3, "idle_timeout": 0.4, "heartbeat_interval": 0.2}
        self.settings = settings.model_copy(update=short | changes)
        self.app = app or Recovery(self.settings)
        self.redis = redis.Redis.from_url(settings.broker_url)
        with suppress(BrokerError):  # some tests are of one that takes nothing
            Kept(settings.broker_url).note()
        self._told = 0

    @property
    def store(self) -> Store:
        return self.app.resources.store

    def start(self, process: Actor[..., Any] | str, /, *args: Any, **options: Any) -> str:
        """Start a process. When this returns it is registered, and its message is in its queue."""
        process_id = self.app.start(process, *args, **options)
        self.app.registrar.flush()
        return process_id

    def start_many(self, process: Actor[..., Any] | str, /, *args: Any, **options: Any) -> list[Started]:
        """Start many processes. When this returns they are registered, and their messages are in their queue."""
        started = self.app.start_many(process, *args, **options)
        self.app.registrar.flush()
        return started

    def flush(self) -> None:
        """Register what was started, and apply what has ended."""
        self.app.registrar.flush()
        self.app.outbox.flush()

    def lose_messages(self) -> None:
        """All that wait, and nothing shows that it was all."""
        self.redis.flushdb()
        Kept(self.settings.broker_url).note()

    def tell(self) -> None:
        """What workers do when they start: save the settings of their actors."""
        if self._told != len(self.app.actors):
            self.store.actors.save(actor.preferences for actor in self.app.actors.values())
            kinds = (actor.process_type for actor in self.app.actors.values())
            self.store.process_types.save(kind for kind in kinds if kind is not None)
            self._told = len(self.app.actors)

    def pump(self, holder: str = "survivor#1", serve: Mapping[str, Actor[..., Any]] | None = None) -> int:
        """Take and run messages until no more come; how many there were. Of the actors in `serve`, or of all."""
        self.tell()
        served = self.app.actors if serve is None else serve
        self.app.registrar.flush()
        slot, taken = Slot(self.app.resources, self.app.outbox, served, holder, Mortal()), 0
        while True:
            while message := self.pop(served):
                slot.run(served[message["headers"]["task"]], *arguments(message))
                taken += 1
            # What is applied now, or just was in the outbox's own threads, may have made tasks ready.
            self.flush()
            if not any(self.redis.llen(queue) for queue in served):
                break
        # What a worker's lifeline tells with its heartbeats: all queues are polled.
        self.store.queues.polled(dict.fromkeys(served))
        return taken

    def take_one(self, queue: str, holder: str = "survivor#1") -> None:
        """Take and run one message of a queue, which must be there."""
        self.tell()
        message = self.pop([queue])
        assert message is not None, f"no message in {queue}"
        Slot(self.app.resources, self.app.outbox, self.app.actors, holder).run(
            self.app.actors[queue], *arguments(message)
        )
        self.flush()

    def scan(self) -> None:
        """One run of each scanner."""
        self.tell()
        for scanner in (DecisionScanner, GraphScanner, ProcessScanner):
            result = scanner(self.app.resources, self.app.outbox).run_once()
            assert result.error is None, result

    def process(self, process_id: str) -> Process:
        process = self.store.processes.get(process_id)
        assert process is not None
        return process

    def decisions(self, process_id: str) -> dict[str, Decision]:
        return dict(self.store.snapshots([process_id])[0].decisions)

    def bring_to_end(self, process_id: str, timeout: float = 15.0) -> Process:
        """Pump and scan until the process has ended."""

        def ended() -> bool:
            self.pump()
            self.scan()
            return self.process(process_id).state != "running"

        wait_until(ended, timeout, f"the end of process {process_id}")
        return self.process(process_id)

    def run(self, process: Actor[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Start a process, bring it to its end, and give its result."""
        process_id = self.start(process, *args, **kwargs)
        self.bring_to_end(process_id)
        return self.app.result(process_id, timeout=0)

    def pop(self, queues: Iterable[str]) -> dict[str, Any] | None:
        """The next message of the first of these queues that has one."""
        for queue in queues:
            text: Any = self.redis.rpop(queue)
            if text is not None:
                message: dict[str, Any] = json.loads(text)
                return message
        return None

    def counts(self) -> dict[str, int]:
        """{collection: records} of the four kinds that describe processes."""
        names = ("processes", "tasks", "decisions", "graphs")
        return {name: database_of(self.store)[name].count_documents({}) for name in names}


def arguments(message: dict[str, Any]) -> list[str]:
    """The decision's id and the pass that a message brings."""
    found: list[str] = json.loads(message["body"])[0]
    return found


@contextmanager
def by_message_only() -> Iterator[None]:
    """Every task goes through Redis: none is claimed on the spot."""
    with patch.object(Batch, "_room_alone", nothing_on_the_spot):
        yield


def nothing_on_the_spot(_self: Batch, _actor: str) -> int:
    return 0


def check_quiet(world: World, process_id: str) -> None:
    """The invariants of docs/records.md on a process that has ended, by queries that use none of our logic."""
    database = database_of(world.app.resources.store)
    of_it = {"_id": {"$regex": f"^{process_id}/"}}

    def at_rest() -> bool:
        world.pump()
        world.scan()
        live = {"recoveryTime": {"$exists": True}}
        return not (
            database["decisions"].count_documents({**of_it, **live})
            + database["graphs"].count_documents({"_id": process_id, **live})
            + database["processes"].count_documents({"_id": process_id, **live})
        )

    wait_until(at_rest, 10, "all records at rest")
    tasks = {d["_id"] for d in database["tasks"].find(of_it)}
    decisions = list(database["decisions"].find(of_it))
    graph = database["graphs"].find_one({"_id": process_id})
    process = database["processes"].find_one({"_id": process_id})
    assert graph is not None and process is not None
    assert {d["_id"] for d in decisions} == tasks, "a decision for each task, and no other"
    assert all(d["state"] == "finished" for d in decisions), "every task is decided"
    children = {f"{process_id}/{child['_id']}" for d in decisions for child in d.get("children", [])}
    assert children | {f"{process_id}/start"} == tasks, "every child of an accepted decision, and no other"
    assert graph["notFinished"] == {}
    assert sorted(graph["finished"]) == sorted(t.partition("/")[2] for t in tasks), "applied, each once"
    for name, live in (("decisions", ["queued", "working", "delayed"]), ("processes", ["running"])):
        assert database[name].count_documents({"state": {"$in": live}, "recoveryTime": None}) == 0
