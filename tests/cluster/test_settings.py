"""What an operator sets, blocks and unblocks while real workers run, with both kinds of pool."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from recovery.engine.operators.overrides import ActorOverrides
from recovery.stack import Valkey
from tests.cluster import app
from tests.cluster.conftest import Cluster
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster

POOLS = ["prefork", "threads"]
LONG = ["prefork", pytest.param("threads", marks=pytest.mark.soak)]
SOON = 15.0
"""Far more than the few seconds that it takes, for a machine that is busy."""

QUICK: dict[str, Any] = {"heartbeat_interval": 0.5, "heartbeat_timeout": 3.0, "message_timeout": 1.0}


def paused(cluster: Cluster) -> list[list[str]]:
    return [worker.get("paused", []) for worker in cluster.database["workers"].find()]


def polled_at(cluster: Cluster) -> datetime | None:
    queue = cluster.app.resources.store.queues.all().get("slow")
    return queue.polled_at if queue else None


def begins_slow(cluster: Cluster) -> bool:
    process_id = cluster.app.start("one_slow", cluster.folder, 600)
    of_it = {"_id": {"$gt": process_id}, "actor": "slow", "state": {"$ne": "waiting"}}
    decision = wait_until(lambda: cluster.database["decisions"].find_one(of_it), SOON, "the task")
    return bool(decision["state"] != "queued")


@pytest.mark.parametrize("pool", LONG)
def test_block_and_unblock(cluster: Cluster, pool: str) -> None:
    """What runs goes on, nothing else is begun or lost, a worker that starts meanwhile does not begin it either."""
    store = cluster.app.resources.store
    cluster.beat()
    cluster.worker(pool=pool, **QUICK)
    first = cluster.app.start("one_slow", cluster.folder, 600)
    cluster.wait_began(1)
    # A message may be taken before the first heartbeat tells that its queue is polled; of what is blocked none does.
    wait_until(lambda: polled_at(cluster), SOON, "the worker to say that it polls")
    assert store.actors.block("slow")
    wait_until(lambda: paused(cluster) == [["slow"]], SOON, "the worker to stop consuming")
    cluster.go()
    assert cluster.app.result(first, timeout=SOON), "the attempt that ran goes on"
    second = cluster.worker(pool=pool, **QUICK)
    wait_until(lambda: paused(cluster) == [["slow"], ["slow"]], SOON, "a worker that starts not to consume")

    begun, polled = len(cluster.began()), polled_at(cluster)
    waiting = [cluster.app.start("one_slow", cluster.folder, 600) for _ in range(8)]
    slow = {"actor": "slow", "state": "queued"}
    moved = slow | {"$expr": {"$gt": ["$recoveryTime", {"$add": ["$queuedAt", 1500]}]}}
    count = cluster.database["decisions"].count_documents
    # They are looked at in the meantime, and left alone.
    wait_until(lambda: count(moved) == len(waiting), SOON, "their deadlines to move")
    assert {d["queuedAt"] - d["enqueuedAt"] for d in cluster.database["decisions"].find(slow)} == {timedelta()}
    assert cluster.app.result(cluster.app.start("one_long", cluster.folder, 0.1), timeout=SOON), "others go on"
    assert len(cluster.began()) == begun + 1, "and nothing but that was begun"
    assert polled_at(cluster) == polled, "nobody says that it is polled"

    assert store.actors.unblock("slow")
    for process_id in waiting:
        assert cluster.app.result(process_id, timeout=SOON)
    assert second.running


@pytest.mark.parametrize("pool", POOLS)
def test_what_nobody_consumes_is_not_begun_on_the_spot(
    cluster: Cluster, pool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slot that looked just before the block learns of it before the worker's record says that it is taken up."""
    monkeypatch.setenv(app.REFRESH, "600")
    cluster.worker(pool=pool, heartbeat_interval=0.5, events=False)
    cluster.go()
    assert cluster.app.result(cluster.app.start("one_slow", cluster.folder, 600), timeout=SOON), (
        "so its slot has looked"
    )
    cluster.app.resources.store.actors.block("slow")
    wait_until(lambda: paused(cluster) == [["slow"]], SOON, "the worker to stop consuming")
    assert not begins_slow(cluster)


@pytest.mark.parametrize("pool", POOLS)
def test_a_command_is_taken_up_at_once(cluster: Cluster, pool: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Long before the next heartbeat, and before a slot would ask by itself."""
    monkeypatch.setenv(app.REFRESH, "600")
    resources = cluster.app.resources
    cluster.worker(pool=pool, heartbeat_interval=300.0, heartbeat_timeout=900.0)
    cluster.go()
    assert cluster.app.result(cluster.app.start("one_slow", cluster.folder, 600), timeout=SOON), (
        "so its slot has looked"
    )
    actors = ActorOverrides(resources)
    assert actors.block("slow")
    wait_until(lambda: paused(cluster) == [["slow"]], SOON, "the worker to stop consuming")
    process_id = cluster.app.start("one_slow", cluster.folder, 600)
    wait_until(lambda: resources.broker.depths(["slow"]) == {"slow": 1}, SOON, "a task that waits")
    assert cluster.decision("slow")["state"] == "finished" and len(cluster.began()) == 1
    cluster.stop_going()
    actors.set("slow", {"worker_timeout": 77.0})
    assert actors.unblock("slow")
    cluster.wait_began(2, SOON)
    second = cluster.database["decisions"].find_one({"_id": {"$gt": process_id}, "actor": "slow"})
    assert second is not None and second["recoveryTime"] - second["claimedAt"] == timedelta(seconds=77)
    cluster.go()
    assert cluster.app.result(process_id, timeout=SOON)


def test_what_was_taken_before_a_block_is_given_back(cluster: Cluster) -> None:
    """The worker's parent does not know yet; its slot does."""
    store = cluster.app.resources.store
    cluster.worker(heartbeat_interval=30.0, heartbeat_timeout=90.0)
    store.actors.block("slow")
    process_id = cluster.app.start("one_slow", cluster.folder, 0.1)
    wait_until(lambda: paused(cluster) == [["slow"]], SOON, "the worker to look at once")
    assert cluster.began() == []
    wait_until(lambda: cluster.app.resources.broker.depths(["slow"]) == {"slow": 1}, SOON, "the message to be back")
    assert cluster.decision("slow")["state"] == "queued"
    store.actors.unblock("slow")
    cluster.worker()  # the first one beats again in half a minute
    assert cluster.app.result(process_id, timeout=SOON)


@pytest.mark.parametrize("pool", LONG)
def test_a_setting_reaches_workers_that_run(cluster: Cluster, pool: str) -> None:
    store = cluster.app.resources.store
    cluster.beat()
    cluster.worker(pool=pool, **QUICK)
    process_id = cluster.app.start("one_slow", cluster.folder, 600)
    cluster.wait_began(1)
    store.actors.override("slow", {"worker_timeout": 0.5})
    cluster.go()
    assert cluster.app.result(process_id, timeout=SOON)
    cluster.stop_going()

    def is_short() -> bool:
        began = len(cluster.began())
        process = cluster.app.start("one_slow", cluster.folder, 600)
        cluster.wait_began(began + 1)
        decision = cluster.database["decisions"].find_one({"_id": {"$gt": process}, "actor": "slow"})
        assert decision is not None
        cluster.go()
        cluster.app.result(process, timeout=SOON)
        cluster.stop_going()
        return bool((decision["recoveryTime"] - decision["claimedAt"]).total_seconds() < 1)

    wait_until(is_short, SOON, "an attempt under the new setting")


def test_a_block_outlives_the_broker(cluster: Cluster, valkey: Valkey) -> None:
    """A consumer that lost its connection begins anew, without the queue; and with it once it is unblocked."""
    store = cluster.app.resources.store
    cluster.beat()
    cluster.worker(**QUICK)
    store.actors.block("slow")
    wait_until(lambda: paused(cluster) == [["slow"]], SOON, "the worker to stop consuming")
    wait_until(lambda: not begins_slow(cluster), SOON, "slots to know it")
    begun = len(cluster.began())
    valkey.kill()
    valkey.start()
    assert not begins_slow(cluster), "others are taken again, and this one is not"
    # Pushed a moment after it is queued, and nobody takes it.
    wait_until(lambda: cluster.app.resources.broker.depths(["slow"])["slow"], SOON, "its message")
    assert len(cluster.began()) == begun
    store.actors.unblock("slow")
    cluster.go()
    waiting = {"actor": "slow", "state": {"$ne": "finished"}}
    wait_until(lambda: not cluster.database["decisions"].count_documents(waiting), 30, "all that waited")
