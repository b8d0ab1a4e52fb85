"""What breaks in a demo with `--chaos`, for how long, and how it is mended.

Each fault is a context: entered, something is broken, and it says what; left, it is mended as an operator or an
orchestrator would. In between `LASTS` goes by. Faults of servers that are not ours are left out.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from enum import StrEnum
from functools import partial

from recovery.demo.chaos import Chaos
from recovery.demo.workforce import Workforce
from recovery.queue import Broker
from recovery.stack import ReplicaSet, Stack, Valkey

Fault = Callable[[], AbstractContextManager[str]]


class Kind(StrEnum):
    """The kinds of faults."""

    WORKER_KILLED = "worker_killed"
    POOL_PROCESS_KILLED = "pool_process_killed"
    WORKER_FROZEN = "worker_frozen"
    BEAT_KILLED = "beat_killed"
    SECOND_BEAT = "second_beat"
    PRIMARY_KILLED = "primary_killed"
    PRIMARY_STEPPED_DOWN = "primary_stepped_down"
    PRIMARY_FROZEN = "primary_frozen"
    PRIMARY_LOST = "primary_lost"
    """Replication stops, then the primary dies: what it wrote meanwhile is gone."""
    VALKEY_KILLED = "valkey_killed"
    VALKEY_LOST = "valkey_lost"
    MESSAGES_DROPPED = "messages_dropped"


LASTS: Mapping[Kind, float] = {
    # Longer than the demo's heartbeat_timeout of 3 s: the worker is taken for lost, and comes back.
    Kind.WORKER_FROZEN: 5.0,
    Kind.BEAT_KILLED: 3.0,
    Kind.SECOND_BEAT: 3.0,
    # Longer than an election, so that there are two of them.
    Kind.PRIMARY_KILLED: 5.0,
    Kind.PRIMARY_FROZEN: 6.0,
    Kind.PRIMARY_LOST: 5.0,
    Kind.VALKEY_KILLED: 2.0,
    Kind.VALKEY_LOST: 2.0,
}
"""Seconds until it is mended; what is not here is at once."""


LAGS = 4.0
"""Seconds that a primary writes alone before it is lost: longer than the demo's apply_timeout of 2 s, from which on
others would apply what is not acknowledged."""


def faults(stack: Stack, workforce: Workforce, broker: Broker, chaos: Chaos) -> dict[Kind, Fault]:
    """The faults that this stack can have."""
    found: dict[Kind, Fault] = {
        Kind.WORKER_KILLED: partial(_worker_killed, workforce),
        Kind.POOL_PROCESS_KILLED: partial(_pool_process_killed, workforce),
        Kind.WORKER_FROZEN: partial(_worker_frozen, workforce),
        Kind.BEAT_KILLED: partial(_beat_killed, workforce),
        Kind.SECOND_BEAT: partial(_second_beat, workforce),
        Kind.MESSAGES_DROPPED: partial(_messages_dropped, workforce, broker, chaos),
    }
    if (nodes := stack.replica_set) is not None:
        found |= {
            Kind.PRIMARY_KILLED: partial(_primary_killed, nodes),
            Kind.PRIMARY_STEPPED_DOWN: partial(_primary_stepped_down, nodes),
            Kind.PRIMARY_FROZEN: partial(_primary_frozen, nodes),
            Kind.PRIMARY_LOST: partial(_primary_lost, nodes),
        }
    if (valkey := stack.valkey) is not None:
        found |= {
            Kind.VALKEY_KILLED: partial(_valkey_killed, valkey, keeps=True),
            Kind.VALKEY_LOST: partial(_valkey_killed, valkey, keeps=False),
        }
    return found


@contextmanager
def _worker_killed(workforce: Workforce) -> Iterator[str]:
    yield f"{workforce.kill_worker()} killed with its pool"


@contextmanager
def _pool_process_killed(workforce: Workforce) -> Iterator[str]:
    yield f"a pool process of {workforce.kill_pool_process()} killed"


@contextmanager
def _worker_frozen(workforce: Workforce) -> Iterator[str]:
    worker = workforce.choose_worker()
    worker.freeze()
    try:
        yield f"{worker.name} frozen with its pool"
    finally:
        worker.thaw()


@contextmanager
def _beat_killed(workforce: Workforce) -> Iterator[str]:
    workforce.kill_beat()
    try:
        yield "beat killed"
    finally:
        workforce.hire_beat()


@contextmanager
def _second_beat(workforce: Workforce) -> Iterator[str]:
    workforce.hire_beat()
    try:
        yield "a second beat started"
    finally:
        workforce.kill_beat()


@contextmanager
def _messages_dropped(workforce: Workforce, broker: Broker, chaos: Chaos) -> Iterator[str]:
    queue = chaos.choose(workforce.queues)
    dropped = max(0, broker.depths([queue])[queue] - 1)
    broker.cut(queue, 1)
    yield f"{dropped} messages of {queue} dropped"


@contextmanager
def _primary_killed(nodes: ReplicaSet) -> Iterator[str]:
    primary = nodes.primary()
    primary.kill()
    try:
        yield f"{primary.label} killed, the primary"
    finally:
        nodes.start()


@contextmanager
def _primary_stepped_down(nodes: ReplicaSet) -> Iterator[str]:
    yield f"{nodes.step_down().label} stepped down, the primary"


@contextmanager
def _primary_frozen(nodes: ReplicaSet) -> Iterator[str]:
    primary = nodes.primary()
    primary.freeze()
    try:
        yield f"{primary.label} frozen, the primary"
    finally:
        primary.thaw()


@contextmanager
def _primary_lost(nodes: ReplicaSet) -> Iterator[str]:
    primary = nodes.stop_replication()
    try:
        threading.Event().wait(LAGS)
        primary.kill()
        nodes.resume_replication()
        yield f"{primary.label} killed, the primary, with all that it wrote for {LAGS:g} s"
    finally:
        nodes.resume_replication()
        nodes.start()


@contextmanager
def _valkey_killed(valkey: Valkey, *, keeps: bool) -> Iterator[str]:
    valkey.kill()
    if not keeps:
        valkey.lose_data()
    try:
        yield "Valkey killed" if keeps else "Valkey killed, its data lost"
    finally:
        valkey.start()
