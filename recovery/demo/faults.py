"""What breaks in a demo with `--chaos`, for how long, and how it is mended.

Each fault is a context: entered, something is broken, and it says what; left, it is mended as an operator or an
orchestrator would. In between `LASTS` goes by, or less where what the fault is for has come about. Faults of servers
that are not ours are left out.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial

from recovery.demo.chaos import Chaos
from recovery.demo.freezing import AtWork, Lasting, freeze_at_work
from recovery.demo.kinds import Kind
from recovery.demo.workforce import Workforce
from recovery.engine import Resources
from recovery.queue import Broker
from recovery.stack import ReplicaSet, Stack, Valkey


def _never() -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Broken:
    """What is broken now, in words."""

    what: str
    is_over: Callable[[], bool] = _never
    """Whether it may be mended before its time: what it is for has come about."""


Fault = Callable[[], AbstractContextManager[Broken]]


TAKEN_FOR_LOST = 5.0
"""Seconds that a worker stands still at the least: longer than the demo's heartbeat_timeout of 3 s."""
SEEN_TIMEOUT = 2.0
"""Seconds in which what others did instead was seen: the demo reads it every second."""
LAGS = 4.0
"""Seconds that a primary writes alone before it is lost: longer than the demo's apply_timeout of 2 s, from which on
others would apply what is not acknowledged."""


def faults(stack: Stack, workforce: Workforce, resources: Resources, chaos: Chaos) -> dict[Kind, Fault]:
    """The faults that this stack can have."""
    found: dict[Kind, Fault] = {
        Kind.WORKER_KILLED: partial(_worker_killed, workforce),
        Kind.POOL_PROCESS_KILLED: partial(_pool_process_killed, workforce),
        Kind.WORKER_FROZEN: partial(_worker_frozen, workforce, AtWork(resources.store)),
        Kind.BEAT_KILLED: partial(_beat_killed, workforce),
        Kind.SECOND_BEAT: partial(_second_beat, workforce),
        Kind.MESSAGES_DROPPED: partial(_messages_dropped, workforce, resources.broker, chaos),
    }
    if (nodes := stack.replica_set) is not None:
        found |= {
            Kind.PRIMARY_KILLED: partial(_primary_killed, nodes),
            Kind.PRIMARY_STEPPED_DOWN: partial(_primary_stepped_down, nodes),
            Kind.PRIMARY_FROZEN: partial(_primary_frozen, nodes),
            Kind.PRIMARY_LOST: partial(_primary_lost, nodes),
            Kind.MONGODB_AWAY: partial(_mongodb_away, nodes),
        }
    if (valkey := stack.valkey) is not None:
        found |= {
            Kind.VALKEY_KILLED: partial(_valkey_killed, valkey, keeps=True),
            Kind.VALKEY_LOST: partial(_valkey_killed, valkey, keeps=False),
        }
    return found


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
        yield Broken("MongoDB killed, all of it")
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
