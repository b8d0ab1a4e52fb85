"""A worker that is stopped inside an actor, and comes back when its task has been given to another."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from recovery.stack.child import Child
from tests.cluster.conftest import Cluster
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster


@pytest.fixture
def cluster(cluster: Cluster) -> Cluster:
    """Silence counts as death after 1.5 s instead of 6."""
    quick = {"heartbeat_interval": 0.5, "heartbeat_timeout": 1.5}
    cluster.settings = cluster.settings.model_copy(update=quick)
    return cluster


def freeze(worker: Child) -> None:
    """Stop a worker's processes, as a paused machine would."""
    os.killpg(worker.pid, signal.SIGSTOP)


def thaw(worker: Child) -> None:
    os.killpg(worker.pid, signal.SIGCONT)


def stale(cluster: Cluster, worker: Child) -> bool:
    return "its result came too late and is dropped" in cluster.log(worker)


@pytest.mark.parametrize(("process", "actor"), [("one_slow", "slow"), ("one_strict", "strict")])
def test_a_late_result_changes_nothing(cluster: Cluster, process: str, actor: str) -> None:
    cluster.beat()
    zombie = cluster.worker()
    process_id = cluster.app.start(process, cluster.folder, 600)
    (first,) = cluster.wait_began(1)
    freeze(zombie)
    cluster.worker()
    second = cluster.wait_began(2)[1]
    cluster.go()
    assert cluster.app.result(process_id, timeout=20) == second != first
    before = cluster.decision(actor)
    thaw(zombie)
    wait_until(lambda: stale(cluster, zombie), 20, "the late result")
    after = cluster.decision(actor)
    assert after["outcome"] == before["outcome"]
    assert after["state"] == "finished"
    assert cluster.app.result(process_id, timeout=1) == second


def test_accept_first_takes_a_late_result_that_is_first(cluster: Cluster) -> None:
    """The zombie comes back and ends before the second attempt: its value is taken, the second dropped."""
    cluster.beat()
    zombie = cluster.worker()
    process_id = cluster.app.start("one_slow", cluster.folder, 600)
    (first,) = cluster.wait_began(1)
    freeze(zombie)
    other = cluster.worker()
    second = cluster.wait_began(2)[1]
    os.kill(second, signal.SIGSTOP)  # so that the zombie is first for certain
    thaw(zombie)
    cluster.go()
    assert cluster.app.result(process_id, timeout=20) == first
    os.kill(second, signal.SIGCONT)
    wait_until(lambda: stale(cluster, other), 20, "the second attempt's result")
    assert cluster.app.result(process_id, timeout=1) == first


def test_without_accept_first_only_the_current_pass_counts(cluster: Cluster) -> None:
    """The zombie comes back and ends before the second attempt: its value is dropped all the same."""
    cluster.beat()
    zombie = cluster.worker()
    process_id = cluster.app.start("one_strict", cluster.folder, 600)
    (first,) = cluster.wait_began(1)
    freeze(zombie)
    cluster.worker()
    second = cluster.wait_began(2)[1]
    os.kill(second, signal.SIGSTOP)
    thaw(zombie)
    cluster.go()
    wait_until(lambda: stale(cluster, zombie), 20, "the late result")
    assert cluster.decision("strict")["state"] == "working"
    os.kill(second, signal.SIGCONT)
    assert cluster.app.result(process_id, timeout=20) == second != first


def test_an_attempt_learns_at_its_heartbeat_that_its_claim_is_lost(cluster: Cluster) -> None:
    cluster.beat()
    zombie = cluster.worker()
    process_id = cluster.app.start("one_beating", cluster.folder)
    cluster.wait_began(1)
    freeze(zombie)
    cluster.worker()
    cluster.wait_began(2)
    assert cluster.app.result(process_id, timeout=20) == "second"
    thaw(zombie)
    told = Path(cluster.folder) / "told"
    wait_until(told.exists, 20, "the first attempt to be told")
    assert cluster.app.result(process_id, timeout=1) == "second"
