"""All of Redis is lost in the middle: the queues, what was taken and not acknowledged, and the file on disk."""

from __future__ import annotations

import pytest

from recovery.stack import Valkey
from recovery.sweep import sweep
from recovery.sweep.session import spark
from tests.cluster.conftest import Cluster
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster

PROCESSES, TASKS, SECONDS = 6, 8, 0.15
"""Nearly two seconds of work for four slots: most of it is still to be done when Redis is lost."""


@pytest.fixture
def cluster(cluster: Cluster) -> Cluster:
    quick = {"message_timeout": 1.0, "idle_timeout": 2.0, "apply_timeout": 1.0}
    cluster.settings = cluster.settings.model_copy(update=quick)
    return cluster


def lose_redis(valkey: Valkey) -> None:
    """Kill the server, remove what it had written, start it again."""
    valkey.kill()
    valkey.lose_data()
    valkey.start()


def start_all(cluster: Cluster) -> list[str]:
    started = [cluster.app.start("many_slow", cluster.folder, TASKS, SECONDS) for _ in range(PROCESSES)]
    cluster.wait_began(6)
    return started


def all_done(cluster: Cluster, started: list[str]) -> bool:
    done = cluster.database["processes"].count_documents({"_id": {"$in": started}, "state": "finished"})
    return bool(done == PROCESSES)


def check(cluster: Cluster, started: list[str]) -> None:
    for process_id in started:
        assert len(cluster.app.result(process_id, timeout=1)) == TASKS
    assert cluster.database["decisions"].count_documents({"state": {"$ne": "finished"}}) == 0


def test_the_scanners_alone_bring_everything_on(cluster: Cluster, valkey: Valkey) -> None:
    cluster.beat()
    cluster.worker(concurrency=2)
    cluster.worker(concurrency=2)
    started = start_all(cluster)
    lose_redis(valkey)
    wait_until(lambda: all_done(cluster, started), 60, "the end of all processes")
    check(cluster, started)


@pytest.mark.spark
@pytest.mark.soak
def test_the_sweep_alone_brings_everything_on(cluster: Cluster, valkey: Valkey) -> None:
    """No beat, no scanners; the sweep finds the lost messages and pushes them again."""
    cluster.worker(concurrency=2, scanners=False)
    cluster.worker(concurrency=2, scanners=False)
    started = start_all(cluster)
    lose_redis(valkey)
    reports = []

    def swept() -> bool:
        reports.append(sweep(cluster.settings, repair=True))
        return all_done(cluster, started)

    with spark(cluster.settings):  # one for all sweeps: it takes longer to start than they do
        wait_until(swept, 90, "the end of all processes")
    check(cluster, started)
    assert any(report.summary()["repaired"] for report in reports), "it was the sweep that did it"
