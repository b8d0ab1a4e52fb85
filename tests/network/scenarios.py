"""What is cut from what: each scenario is a generator that cuts, heals and yields how many seconds pass until it goes
on. It may go on for longer than it is played."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator

from tests.network.cluster import BEAT, CLIENT, MONGODB, PORT, REDIS, Cluster, secondaries

Steps = Iterator[float]
Scenario = Callable[[Cluster], Steps]
WORKER = "worker2"
"""The worker that is cut off, where it is not the one beside the beat."""
LONG = 3600.0


def play(cluster: Cluster, steps: Steps, seconds: float) -> None:
    """Go through a scenario's steps for so many seconds, then heal."""
    until, pause = time.monotonic() + seconds, threading.Event()
    try:
        for step in steps:
            if (left := until - time.monotonic()) <= 0:
                break
            pause.wait(min(step, left))
    finally:
        cluster.hosts.heal()


def _primary(cluster: Cluster) -> str:
    primary = cluster.primary()
    assert primary is not None, "no primary to be cut off"
    return primary


def primary_from_all(cluster: Cluster) -> Steps:
    """The primary's machine is cut off."""
    cluster.hosts.isolate(_primary(cluster))
    yield LONG


def primary_from_secondaries(cluster: Cluster) -> Steps:
    """The primary is cut from the secondaries alone; clients still reach it."""
    primary = _primary(cluster)
    cluster.hosts.cut(primary, secondaries(primary))
    yield LONG


def primary_is_not_heard(cluster: Cluster) -> Steps:
    """What the primary sends to the secondaries gets lost."""
    primary = _primary(cluster)
    for other in secondaries(primary):
        cluster.hosts.drop(primary, other)
    yield LONG


def primary_does_not_hear(cluster: Cluster) -> Steps:
    """What the secondaries send to the primary gets lost."""
    primary = _primary(cluster)
    for other in secondaries(primary):
        cluster.hosts.drop(other, primary)
    yield LONG


def worker_from_mongodb(cluster: Cluster) -> Steps:
    """One of two workers does not reach MongoDB, and reaches Redis."""
    return from_mongodb(cluster, WORKER)


def from_mongodb(cluster: Cluster, worker: str) -> Steps:
    """The same of this worker."""
    cluster.hosts.cut(worker, MONGODB)
    yield LONG


def worker_from_redis(cluster: Cluster) -> Steps:
    """One of two workers does not reach Redis, and reaches MongoDB."""
    cluster.hosts.cut(WORKER, [REDIS])
    yield LONG


def worker_from_both(cluster: Cluster) -> Steps:
    """One of two workers reaches no server."""
    cluster.hosts.cut(WORKER, [*MONGODB, REDIS])
    yield LONG


def redis_from_all(cluster: Cluster) -> Steps:
    """Nobody reaches Redis."""
    cluster.hosts.isolate(REDIS)
    yield LONG


def host_of_beat(cluster: Cluster) -> Steps:
    """The machine with the beat and a worker is cut off."""
    cluster.hosts.isolate(BEAT)
    yield LONG


def flapping_worker(cluster: Cluster) -> Steps:
    """A worker's link goes on and off."""
    return _flap(cluster, WORKER)


def flapping_redis(cluster: Cluster) -> Steps:
    """The link of Redis goes on and off."""
    return _flap(cluster, REDIS)


def _flap(cluster: Cluster, host: str) -> Steps:
    while True:
        cluster.hosts.isolate(host)
        yield 2
        cluster.hosts.heal()
        yield 2


def client_again_and_again(cluster: Cluster) -> Steps:
    """The client is cut from MongoDB while it starts processes: both ways, or its requests or the answers get lost."""
    while True:
        for to, back in ((True, True), (False, True), (True, False)):
            for member in MONGODB:
                if to:
                    cluster.hosts.drop(CLIENT, member)
                if back:
                    cluster.hosts.drop(member, CLIENT)
            yield 9
            cluster.hosts.heal()
            yield 4


def dead_connections(cluster: Cluster) -> Steps:
    """Again and again all connections of a worker to MongoDB die without a word, and new ones are served at once."""
    while True:
        cluster.hosts.heal()
        cluster.hosts.cut_connections(WORKER, PORT, MONGODB)
        yield 14


def new_address(cluster: Cluster) -> Steps:
    """A worker's machine is given another address, and its own one again at the end."""
    cluster.hosts.change_address(WORKER, 23)
    try:
        yield LONG
    finally:
        cluster.hosts.change_address(WORKER, 22)


def slow_and_lossy(loss_percent: float, delay_ms: float) -> Scenario:
    """All packets are late, and some are lost."""

    def scenario(cluster: Cluster) -> Steps:
        with cluster.slow_switch(loss_percent, delay_ms):
            yield LONG

    return scenario


ALL: dict[str, Scenario] = {
    one.__name__: one
    for one in (
        primary_from_all, primary_from_secondaries, primary_is_not_heard, primary_does_not_hear,
        worker_from_mongodb, worker_from_redis, worker_from_both, redis_from_all, host_of_beat,
        flapping_worker, flapping_redis, client_again_and_again, dead_connections, new_address,
    )
}  # fmt: skip
ALL["loss_of_5_percent_50_ms"] = slow_and_lossy(5, 50)
ALL["loss_of_30_percent_200_ms"] = slow_and_lossy(30, 200)


def random_cuts(cluster: Cluster, seed: int) -> Steps:
    """Another cut each 4 to 18 s, of a random kind and by the seed; in two of nine cases the network is whole."""
    drawn = random.Random(seed)
    kinds = [_none, _none, _any_primary, _any_primary_split, _one_way, _host, _pairs, _halves, _mute]
    while True:
        cluster.hosts.heal()
        drawn.choice(kinds)(cluster, drawn)
        yield drawn.uniform(4, 18)


def _none(_cluster: Cluster, _drawn: random.Random) -> None:
    return


def _any_primary(cluster: Cluster, _drawn: random.Random) -> None:
    if (primary := cluster.primary()) is not None:
        cluster.hosts.isolate(primary)


def _any_primary_split(cluster: Cluster, _drawn: random.Random) -> None:
    if (primary := cluster.primary()) is not None:
        cluster.hosts.cut(primary, secondaries(primary))


def _one_way(cluster: Cluster, drawn: random.Random) -> None:
    for _ in range(4):
        source, target = drawn.sample(sorted(cluster.hosts.addresses), 2)
        cluster.hosts.drop(source, target)


def _host(cluster: Cluster, drawn: random.Random) -> None:
    cluster.hosts.isolate(drawn.choice(sorted(cluster.hosts.addresses)))


def _pairs(cluster: Cluster, drawn: random.Random) -> None:
    for _ in range(4):
        one, other = drawn.sample(sorted(cluster.hosts.addresses), 2)
        cluster.hosts.cut(one, [other])


def _halves(cluster: Cluster, drawn: random.Random) -> None:
    every = sorted(cluster.hosts.addresses)
    half = drawn.sample(every, 3)
    for host in half:
        cluster.hosts.cut(host, [other for other in every if other not in half])


def _mute(cluster: Cluster, drawn: random.Random) -> None:
    host = drawn.choice(sorted(cluster.hosts.addresses))
    for other in cluster.hosts.others(host):
        cluster.hosts.drop(host, other)
