"""Every key of Redis that workers, beat or kombu use, replaced by every other type while they run: nobody writes a
trace, and processes of another actor end as before."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable

import pytest
import redis

from recovery.queue.message import NUDGE, SPARK_QUEUE
from recovery.queue.untrusted import ASIDE
from recovery.stack.child import ChildProcess
from tests.cluster.conftest import Cluster
from tests.cluster.conftest import cluster as cluster
from tests.waiting import wait_until
from tests.worker.test_messages import goes_on, no_trace

pytestmark = pytest.mark.cluster

PRIORITIES = ("", *(f"\x06\x16{priority}" for priority in (3, 6, 9)))
"""What kombu adds to a queue's name for each priority."""
QUEUES = [f"{name}{priority}" for name in ("slow", NUDGE) for priority in PRIORITIES]
OTHERS = [SPARK_QUEUE, "celery", "celery.pidbox", "celeryev", "unacked", "unacked_index", "unacked_mutex"]
EXCHANGES = ("celery.pidbox", "reply.celery.pidbox", "recovery.default", "celeryev", "slow", NUDGE, SPARK_QUEUE)
TABLES = [
    "_kombu.binding_deadlines",
    *(f"_kombu.{table}.{name}" for table in ("binding", "binding_permanent") for name in EXCHANGES),
]
MORE = 5.0
"""Seconds that a process of another actor may take longer."""

MAKE: dict[str, Callable[[redis.Redis, str], object]] = {
    "string": lambda server, key: server.set(key, "theirs"),
    "hash": lambda server, key: server.hset(key, "theirs", "kept"),
    "set": lambda server, key: server.sadd(key, "theirs", "\x06\x16", b"\xff"),
    "zset": lambda server, key: server.zadd(key, {"theirs": 1.0}),
    "stream": lambda server, key: server.xadd(key, {"theirs": "kept"}),
    "list": lambda server, key: server.rpush(key, "theirs"),
}


def check(cluster: Cluster, cases: Iterable[tuple[str, str]]) -> None:
    server = redis.Redis.from_url(cluster.settings.broker_url)
    worker, beat = cluster.worker(), cluster.beat()
    assert goes_on(cluster)
    usual = duration(cluster)
    for key, kind in cases:
        server.delete(key)
        MAKE[kind](server, key)
        took = duration(cluster)
        if key in QUEUES:
            wait_until(lambda key=key: not server.exists(key) or server.type(key) == b"list", MORE, f"{key!r} aside")
        assert took < usual + MORE, f"{key!r} as a {kind}: {took:.1f} s, and {usual:.1f} s without"
        assert worker.running and beat.running, (key, kind)
        quiet(cluster, worker, beat, f"{key!r} as a {kind}")
    set_aside = {key.decode() for key in server.scan_iter(f"*.{ASIDE}.*")}
    said = cluster.log(worker)
    assert set_aside and (f".{ASIDE}." in said)
    worker.stop(30)
    beat.stop(30)
    assert worker.exit_code == 0
    quiet(cluster, worker, beat, "at the end")
    # A worker that starts finds them all, too.
    for key, kind in cases:
        server.delete(key)
        MAKE[kind](server, key)
    second = cluster.worker()
    assert goes_on(cluster)
    no_trace(cluster, second)


def duration(cluster: Cluster) -> float:
    began = time.monotonic()
    assert goes_on(cluster)
    return time.monotonic() - began


def quiet(cluster: Cluster, worker: ChildProcess, beat: ChildProcess, when: str) -> None:
    for child in (worker, beat):
        assert "Traceback" not in cluster.log(child), f"{child.name}: {when}: {cluster.log(child)[-3000:]}"


def wrong(key: str) -> list[str]:
    """The types that a key must not have."""
    if key in QUEUES or key in OTHERS:
        return [kind for kind in MAKE if kind != "list"]
    return [kind for kind in MAKE if kind != ("zset" if key.endswith("deadlines") else "set")]


CASES = [(key, kind) for key in (*QUEUES, *OTHERS, *TABLES) for kind in wrong(key)]


def test_each_key_is_something_else(cluster: Cluster, seed: int) -> None:
    chance = random.Random(seed)
    keys = [QUEUES[0], QUEUES[1], QUEUES[4], *chance.sample([*OTHERS, *TABLES], 5), "_kombu.binding.celery.pidbox"]
    check(cluster, [(key, chance.choice(wrong(key))) for key in dict.fromkeys(keys)])


@pytest.mark.soak
def test_every_key_with_every_type(cluster: Cluster, seed: int) -> None:
    chance = random.Random(seed)
    check(cluster, chance.sample(CASES, len(CASES)))
