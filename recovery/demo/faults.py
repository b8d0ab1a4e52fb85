"""The faults of a demo with `--chaos`: what breaks, for how long, and how it is repaired.

Each fault is a context manager. On entry it breaks something and describes it; on exit it repairs that as an operator
or an orchestrator would. The time in between is `LASTS`, or less if the fault has already had its effect. There are no
faults of servers that the demo did not start.

A frozen worker must prove that stale results are discarded. It does so only if it is frozen in the middle of tasks, and
for so long that other attempts finish them. So a worker is frozen until it has a task while frozen, and stays frozen
until each of these tasks is finished and the demo has had time to read the accepted results.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial

from recovery.demo.options import Chaos, FaultKind
from recovery.demo.workforce import Workforce
from recovery.engine import Resources
from recovery.errors import StoreError
from recovery.queue import Broker
from recovery.records import DecisionState
from recovery.stack import ChildProcess, ReplicaSet, Stack, Valkey
from recovery.store import Store
from recovery.store.views.overview import time_limit

TRIES, BETWEEN_TRIES = 20, 0.05
"""Maximum attempts to freeze a worker that has a task, and seconds between two attempts. After that the worker is
frozen without a task."""
MAX_TASKS = 100
ASK_TIMEOUT = 2.0


class AtWork:
    """Tells which tasks a frozen worker has, and whether others have finished them. If MongoDB is unavailable, the
    answers are no tasks and False."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def tasks(self, pid: int) -> list[str]:
        """Return the ids of the decisions that the worker with this parent process works on."""
        try:
            with time_limit(ASK_TIMEOUT):
                ids = [worker.id for worker in self._store.workers.all() if worker.pid == pid]
                held = self._store.decisions.held_by(ids, MAX_TASKS, DecisionState.WORKING) if ids else []
        except StoreError:
            return []
        return [decision.id for decision in held]

    def is_overtaken(self, tasks: Sequence[str]) -> bool:
        """Return whether all of these decisions are finished."""
        try:
            with time_limit(ASK_TIMEOUT):
                states = self._store.decisions.states(tasks)
        except StoreError:
            return False
        return all(states.get(task) is DecisionState.FINISHED for task in tasks)


class Lasting:
    """Tells whether a condition has held for some seconds, in all calls since."""

    def __init__(self, holds: Callable[[], bool], seconds: float) -> None:
        self._holds, self._seconds = holds, seconds
        self._since: float | None = None

    def __call__(self) -> bool:
        if not self._holds():
            self._since = None
            return False
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        return now - self._since >= self._seconds


def freeze_at_work(worker: ChildProcess, at_work: AtWork) -> list[str]:
    """Freeze a worker in the middle of some tasks, and return their decisions' ids. If it never has a task, freeze it
    anyway."""
    for _ in range(TRIES):
        worker.freeze()
        if tasks := at_work.tasks(worker.pid):
            return tasks
        worker.thaw()
        threading.Event().wait(BETWEEN_TRIES)
    worker.freeze()
    return []


def _never() -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Broken:
    """A fault in effect."""

    what: str
    is_over: Callable[[], bool] = _never
    """Whether the fault may end before its time, because it has had its effect."""


Fault = Callable[[], AbstractContextManager[Broken]]


TAKEN_FOR_LOST = 5.0
"""Minimum seconds that a worker stays frozen: longer than the demo's heartbeat_timeout of 3 s."""
SEEN_TIMEOUT = 2.0
"""Seconds that the tasks of a frozen worker must have been done by other attempts before the worker is thawed. By then
the demo, which reads results every second, has read the results of these attempts."""
LAGS = 4.0
"""Seconds that a primary writes alone before it is lost: longer than the demo's apply_timeout of 2 s, after which other
workers would apply results that are not acknowledged."""


def faults(stack: Stack, workforce: Workforce, resources: Resources, chaos: Chaos) -> dict[FaultKind, Fault]:
    """Return the faults that this stack can have."""
    possible: dict[FaultKind, Fault] = {
        FaultKind.WORKER_KILLED: partial(_worker_killed, workforce),
        FaultKind.POOL_PROCESS_KILLED: partial(_pool_process_killed, workforce),
        FaultKind.WORKER_FROZEN: partial(_worker_frozen, workforce, AtWork(resources.store)),
        FaultKind.BEAT_KILLED: partial(_beat_killed, workforce),
        FaultKind.SECOND_BEAT: partial(_second_beat, workforce),
        FaultKind.MESSAGES_DROPPED: partial(_messages_dropped, workforce, resources.broker, chaos),
    }
    if (nodes := stack.replica_set) is not None:
        possible |= {
            FaultKind.PRIMARY_KILLED: partial(_primary_killed, nodes),
            FaultKind.PRIMARY_STEPPED_DOWN: partial(_primary_stepped_down, nodes),
            FaultKind.PRIMARY_FROZEN: partial(_primary_frozen, nodes),
            FaultKind.PRIMARY_LOST: partial(_primary_lost, nodes),
            FaultKind.MONGODB_AWAY: partial(_mongodb_away, nodes),
        }
    if (valkey := stack.valkey) is not None:
        possible |= {
            FaultKind.VALKEY_KILLED: partial(_valkey_killed, valkey, keeps=True),
            FaultKind.VALKEY_LOST: partial(_valkey_killed, valkey, keeps=False),
        }
    return possible


@contextmanager
def _worker_killed(workforce: Workforce) -> Iterator[Broken]:
    yield Broken(f"{workforce.kill_worker()} killed with its pool")


@contextmanager
def _pool_process_killed(workforce: Workforce) -> Iterator[Broken]:
    yield Broken(f"a pool process of {workforce.kill_pool_process()} killed")


@contextmanager
def _worker_frozen(workforce: Workforce, at_work: AtWork) -> Iterator[Broken]:
    worker = workforce.choose_worker()
    tasks = freeze_at_work(worker, at_work)
    overtaken = Lasting(lambda: at_work.is_overtaken(tasks), SEEN_TIMEOUT)
    lost_at = time.monotonic() + TAKEN_FOR_LOST
    try:
        yield Broken(
            f"{worker.name} frozen with its pool, tasks at work: {len(tasks)}",
            lambda: time.monotonic() > lost_at and overtaken(),
        )
    finally:
        worker.thaw()


@contextmanager
def _beat_killed(workforce: Workforce) -> Iterator[Broken]:
    workforce.kill_beat()
    try:
        yield Broken("beat killed")
    finally:
        workforce.hire_beat()


@contextmanager
def _second_beat(workforce: Workforce) -> Iterator[Broken]:
    workforce.hire_beat()
    try:
        yield Broken("a second beat started")
    finally:
        workforce.kill_beat()


@contextmanager
def _messages_dropped(workforce: Workforce, broker: Broker, chaos: Chaos) -> Iterator[Broken]:
    queue = chaos.choose(workforce.queues)
    dropped = max(0, broker.depths([queue])[queue] - 1)
    broker.cut(queue, 1)
    yield Broken(f"{dropped} messages of {queue} dropped")


@contextmanager
def _primary_killed(nodes: ReplicaSet) -> Iterator[Broken]:
    primary = nodes.primary()
    primary.kill()
    try:
        yield Broken(f"{primary.label} killed, the primary")
    finally:
        nodes.start()


@contextmanager
def _primary_stepped_down(nodes: ReplicaSet) -> Iterator[Broken]:
    yield Broken(f"{nodes.step_down().label} stepped down, the primary")


@contextmanager
def _primary_frozen(nodes: ReplicaSet) -> Iterator[Broken]:
    primary = nodes.primary()
    primary.freeze()
    try:
        yield Broken(f"{primary.label} frozen, the primary")
    finally:
        primary.thaw()


@contextmanager
def _primary_lost(nodes: ReplicaSet) -> Iterator[Broken]:
    primary = nodes.stop_replication()
    try:
        threading.Event().wait(LAGS)
        primary.kill()
        nodes.resume_replication()
        yield Broken(f"{primary.label} killed, the primary, with all that it wrote for {LAGS:g} s")
    finally:
        nodes.resume_replication()
        nodes.start()


@contextmanager
def _mongodb_away(nodes: ReplicaSet) -> Iterator[Broken]:
    for member in nodes.members:
        member.kill()
    try:
        yield Broken("all of MongoDB killed")
    finally:
        nodes.start()


@contextmanager
def _valkey_killed(valkey: Valkey, *, keeps: bool) -> Iterator[Broken]:
    valkey.kill()
    if not keeps:
        valkey.lose_data()
    try:
        yield Broken("Valkey killed" if keeps else "Valkey killed, its data lost")
    finally:
        valkey.start()
