"""A cluster that takes one step at a time: clients, workers and scanners, each with its own memory, on real servers.

Nothing in it waits, and nothing happens beside the step that is taken: see `held_still` for what of the product
is held still for that. Time passes when the test says so (`passing`).
"""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import redis
from pymongo import WriteConcern
from pymongo.errors import PyMongoError

from recovery import Recovery, Settings, heartbeat
from recovery.engine import Outbox, Resources, Slot
from recovery.engine.actors.context import current
from recovery.engine.operators.abort import abort_process
from recovery.engine.operators.redo import redo_process
from recovery.engine.operators.restart import restart_process, restart_selected
from recovery.engine.run import hand, slot
from recovery.engine.run.batch import Batch
from recovery.engine.run.hand import Hand, Relieve, Watch
from recovery.engine.run.pace import Pace
from recovery.engine.run.slot import Hints, Intake
from recovery.errors import BrokerError, StoreError
from recovery.queue import Kept, MessageId, parse_id
from recovery.records import Worker
from recovery.records.ids import holder
from recovery.repair import Repairer
from recovery.retry import Backoff
from recovery.retry.breaker import CircuitBreaker
from recovery.scan import DecisionScanner, GraphScanner, ProcessScanner, Scanner, WorkerScanner, rescue
from recovery.store import Selection, Store, definitions
from tests.documents import database_of
from tests.faults import installed, reach, threads_held
from tests.faults.layer import Told, pause
from tests.scan.making import silent_workers
from tests.stateful.passing import Passing
from tests.stateful.programs import ACTORS, FORCED, HOLDER_ONLY, LIMITED, perform
from tests.world import Mortal, arguments

MESSAGE, APPLY, WORK, IDLE, BEAT, SILENCE, DELAY = 100.0, 100.0, 200.0, 300.0, 30.0, 90.0, 150.0
"""Timeouts in seconds, far over what a test takes."""
LIMIT, LATE = 450.0, 750.0
"""A task's time as a whole, of the actors that have one, and that of a process."""
LONGEST = 40 * MESSAGE
"""No step's deadline is farther away than this, but for those that grow with a process's age."""
PROCESS, COUNTED, BROKEN_LATE = TYPES = ("run", "counted", "broken_late")
"""Process types: without a time-out, with one that is counted, and one that breaks the process."""

SCANNERS: dict[str, Callable[[Resources, Outbox], Scanner[Any]]] = {
    "decisions": DecisionScanner,
    "graphs": GraphScanner,
    "processes": ProcessScanner,
    "workers": lambda resources, outbox: WorkerScanner(resources, outbox, silent_workers(resources)),
}


AWAY = "the host is away"
WAITS = "Outbox.flush"
"""Where a step stands that waits for another."""


class Still(Outbox):
    """An outbox whose background threads the test is: it calls `flush`, one step of a process at a time."""

    def flush(self) -> None:
        # By a step of the same process that pauses: so does this one.
        while self._applying.locked():
            pause(WAITS)
        super().flush()


class StillWatch(Watch):
    """Takes out of no hand what waits there: the test does."""

    def __init__(self) -> None:
        super().__init__()
        self.hands: dict[Hand, Relieve] = {}

    @contextmanager
    def over(self, hand: Hand, relieve: Relieve) -> Iterator[None]:
        self.hands[hand] = relieve
        try:
            yield
        finally:
            del self.hands[hand]

    def relieve(self) -> bool:
        """Take out what waits for a task that runs; whether there was one."""
        slow = [(held, relieve, held.slow()) for held, relieve in self.hands.items()]
        for held, relieve, one in slow:
            if one is not None:
                relieve(held, one)
        return any(one is not None for _, _, one in slow)


class Member:
    """A process of the cluster: what it has in memory dies with it."""

    def __init__(self, settings: Settings, app: Recovery, worker_id: str, hints: Hints) -> None:
        self.resources = Resources.connect(settings)
        self.outbox = Still(self.resources)
        self.watch = StillWatch()
        intake = Intake(hints, Pace(self.resources.settings.batch_size), self.watch)
        self.slot = Slot(self.resources, self.outbox, app.actors, holder(worker_id, 1), Mortal(), intake)
        self.worker = Worker(id=worker_id, name=worker_id, host="here", pid=1, pid_started=1, queues=tuple(app.actors))
        self.taken: dict[str, datetime | None] = dict.fromkeys(app.actors)


class Cluster:
    """Everything of one example. The database is emptied first; its collections are there."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings.model_copy(
            update={
                "message_timeout": MESSAGE,
                "apply_timeout": APPLY,
                "idle_timeout": IDLE,
                "heartbeat_interval": BEAT,
                "heartbeat_timeout": SILENCE,
            }
        )
        self.mended = False
        """Whether what raises "until mended" goes well from now on."""
        self.app = make_app(self.settings, lambda: self.mended)
        self.database = database_of(Store(self.settings))
        self.redis = redis.Redis.from_url(settings.broker_url)
        self.passing = Passing(self.database)
        self._numbers = itertools.count(1)
        for name in definitions.VALIDATORS:
            self.database[name].with_options(write_concern=WriteConcern(1)).delete_many({})
        self.redis.flushdb()
        Kept(settings.broker_url).note()
        Store(self.settings).queues.served(self.app.actors)
        self.tell()

    def tell(self) -> None:
        """Save the actors' settings, as a worker does when it starts."""
        store, actors = Store(self.settings), self.app.actors.values()
        store.actors.save(actor.preferences for actor in actors)
        store.process_types.save(actor.process_type for actor in actors if actor.process_type is not None)

    def member(self) -> Member:
        """A process that starts now: its memory is empty."""
        return Member(self.settings, self.app, f"w{next(self._numbers)}", self.hints)

    def hints(self, queue: str, count: int) -> list[MessageId]:
        """What a slot takes by itself, past its worker."""
        texts: Any = self.redis.rpop(queue, count) or []
        return [told for text in texts if (told := parse_id(json.loads(text)["headers"]["id"])) is not None]

    def start(self, program: Any, custom_id: str, kind: str = PROCESS, if_exists: Any = "return") -> str:
        """A client asks for a process, and registers it before it does anything else."""
        app = make_app(self.settings)
        process_id = app.start(kind, program, custom_id=custom_id, if_exists=if_exists)
        app.registrar.flush()
        return process_id

    def processes(self) -> list[str]:
        """All of them, in the order of their starts."""
        return sorted(document["_id"] for document in self.database["processes"].find({}, {"_id": True}))

    def failed(self, which: int) -> tuple[str | None, str | None]:
        """One of the tasks that are listed for an operator, and its process; without one a process."""
        listed = sorted(document["_id"] for document in self.database["interruptions"].find({}, {"_id": True}))
        keys = listed or self.processes()
        if not keys:
            return None, None
        process_id, _, task = keys[which % len(keys)].partition("/")
        return process_id, task or None

    def restart(self, member: Member, process_id: str | None, task: str | None = None) -> None:
        """An operator restarts a task, what failed of a process, or all that failed. Raises InputError if there is
        nothing to restart."""
        if process_id is None:
            restart_selected(member.resources, Selection())
        else:
            restart_process(member.resources, process_id, task)

    def abort(self, member: Member, process_id: str) -> None:
        """An operator aborts a process. Raises InputError for one that has finished."""
        abort_process(member.resources, process_id, "not wanted any more")

    def redo(self, member: Member, process_id: str, which: int) -> None:
        """An operator has a process done again from the `which`-th of its tasks. Raises InputError for one that was
        aborted or is being restarted."""
        tasks = self.database["decisions"].find({"_id": {"$regex": f"^{process_id}/"}}, {"_id": True}).sort("_id", 1)
        names = [document["_id"].partition("/")[2] for document in tasks]
        if names:
            redo_process(member.resources, process_id, "its data was wrong", [names[which % len(names)]])

    def take(self, member: Member, which: int = 0) -> dict[str, Any] | None:
        """A worker takes the next message of the queues that have one, beginning with the `which`-th."""
        names = sorted(self.app.actors)
        which %= len(names)
        found: Any = self.redis.lmpop(len(names), *names[which:], *names[:which], direction="RIGHT")
        if found is None:
            return None
        message: dict[str, Any] = json.loads(found[1][0])
        name, told = message["headers"]["task"], parse_id(message["headers"]["id"])
        queued_at = self.passing.corrected(told.queued_at if told else None)
        if queued_at is not None:
            member.taken[name] = max(queued_at, member.taken[name] or queued_at)
        return message

    def run(self, member: Member, message: dict[str, Any]) -> None:
        """Its slot runs what the message says; as a worker does it, a lost connection ends the attempt only."""
        member.slot.run(self.app.actors[message["headers"]["task"]], *arguments(message))

    def beat(self, member: Member) -> None:
        """What its lifeline tells."""
        member.resources.store.workers.beat(member.worker, SILENCE)
        taken, member.taken = member.taken, dict.fromkeys(member.taken)
        member.resources.store.queues.polled(taken)

    def scan(self, member: Member, name: str, page: int) -> str | None:
        """One run of a scanner; the connection that it lost, if one."""
        scanner = SCANNERS[name](member.resources, member.outbox)
        scanner.page = page
        return scanner.run_once().error

    def rescue(self, member: Member, lost: str) -> None:
        """A worker is seen to be gone."""
        rescue(member.resources, Repairer(member.resources, member.outbox), [lost])

    def bring_to_end(self, member: Member) -> None:
        """Everything that can be done now, without a fault."""
        while message := self.take(member):
            self.run(member, message)
        member.outbox.flush()
        self.beat(member)
        for name in SCANNERS:
            error = self.scan(member, name, 1000)
            assert error is None, error


def make_app(settings: Settings, mended: Callable[[], bool] = lambda: False) -> Recovery:
    """The actors that programs are done by."""
    app = Recovery(settings)

    def schedule(node: Any, inputs: list[Any]) -> Any:
        actor = app.actors[node["actor"]]
        if node["later"] or node["fallible"]:
            actor = actor.options(delay=DELAY if node["later"] else None, fallible=node["fallible"])
        return actor.schedule(node, inputs)

    def body(node: Any, inputs: list[Any]) -> Any:
        reach("Actor.body")
        if node["beats"]:
            heartbeat()
        retried = current("a node").decision.retry
        if (retried.count if retried is not None else 0) < node["away"]:
            raise ConnectionRefusedError(AWAY)
        return perform(node, inputs, schedule, node["raises"] == "always" or (node["raises"] and not mended()))

    # A task that is cut off often is not what is tested here: it is never given up.
    soon = Backoff(initial=DELAY, coefficient=1, jitter=(0, 0), maximum=DELAY, total=3000 * 86_400)
    options: Any = {"worker_timeout": WORK, "max_work_timeouts": 1_000_000, "retry": soon}
    for name in ACTORS:
        limit = {"task_timeout": LIMIT if name in (LIMITED, FORCED) else 0.0}
        forced = name == FORCED
        app.actor(name, accept_first=name != HOLDER_ONLY, **options, **limit, force_finish_after_task_timeout=forced)(
            body
        )
    for name in TYPES:
        late: Any = {"process_timeout": LATE, "break_after_process_timeout": name == BROKEN_LATE}
        app.process(name, idle_timeout=IDLE, **options, **({} if name == PROCESS else late))(
            lambda node: body(node, [])
        )
    return app


class _Reported(logging.Handler):
    """Errors that the product logged and went on: here each is a bug."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if not isinstance(error, StoreError | BrokerError | PyMongoError | redis.RedisError):
            self.found.append(f"{record.getMessage()} ({error!r})")


@contextmanager
def held_still(told: Told | None = None) -> Iterator[list[str]]:
    """Faults can be planned, and nothing of the product runs by itself. Yields the errors that it logs.

    What is replaced, beside the threads of appliers and registrars (`threads_held`): the clock by which trying again
    gets tired (each look at it takes 7 s, so that some tries fit), its pauses, and the breaker, which goes by a clock
    that nobody stops. So does the time in which settings have to be read: a machine that stands still for seconds is no
    fault that was planned.
    """
    tries, room = itertools.count(step=7), Batch._room_alone
    reported, logger = _Reported(), logging.getLogger("recovery")
    level, propagates = logger.level, logger.propagate
    with ExitStack() as still:
        still.enter_context(installed(told))
        still.enter_context(threads_held())
        still.enter_context(patch("recovery.engine.outages.time", SimpleNamespace(monotonic=lambda: next(tries))))
        still.enter_context(patch("recovery.engine.outages.pause", lambda _: 0.0))
        still.enter_context(patch("recovery.store.lifecycle.preferences.ANSWER_TIMEOUT", 60.0))
        never = CircuitBreaker("never open", failures=10**9)
        still.enter_context(patch("recovery.engine.outages.breaker", lambda _: never))
        still.enter_context(patch.object(Batch, "_room_alone", lambda *of: Batched.on_the_spot and room(*of)))
        still.enter_context(patch.object(slot, "GO_ON_FOR", 1e9))
        still.enter_context(patch.object(hand, "LONGEST", 1e9))
        still.enter_context(patch.object(hand, "SLOW", -1.0))
        still.enter_context(patch.object(Pace, "room", lambda *_: Batched.size))
        still.enter_context(patch.object(Pace, "is_short", lambda *_: Batched.size > 1 or Batched.goes_on))
        still.enter_context(patch.object(Pace, "fits", lambda *_: Batched.size if Batched.size > 1 else 0))
        Batched.on_the_spot, Batched.size, Batched.goes_on = True, 1, False
        logger.addHandler(reported)
        logger.setLevel(logging.ERROR)
        logger.propagate = False
        try:
            yield reported.found
        finally:
            logger.removeHandler(reported)
            logger.setLevel(level)
            logger.propagate = propagates


class Batched:
    """How many tasks a slot takes at once, and whether it goes on with others one by one."""

    on_the_spot = True
    size = 1
    goes_on = False


def go_on(on_the_spot: bool, size: int = 1, *, by_itself: bool = False) -> None:
    """Whether whoever ends a task runs what became ready by it, for as long as there is any; else nothing of it. Of how
    many tasks a batch is. And whether a slot takes what else is queued `by_itself`, one by one; batches are always.

    From now on and until `held_still` ends.
    """
    Batched.on_the_spot, Batched.size, Batched.goes_on = on_the_spot, size, by_itself


def work(cluster: Cluster) -> None:
    """A worker takes the next message and runs it, and writes what is applied."""
    member = cluster.member()
    message = cluster.take(member)
    assert message is not None
    cluster.run(member, message)
    member.outbox.flush()
