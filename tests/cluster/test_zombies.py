"""A worker that is stopped inside an actor, and comes back when its task has been given to another."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from recovery.stack.child import ChildProcess
from tests.cluster.conftest import Cluster
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster


@pytest.fixture
def cluster(cluster: Cluster) -> Cluster:
    """Silence counts as death after 1.5 s instead of 6."""
    quick = {"heartbeat_interval": 0.5, "heartbeat_timeout": 1.5}
    cluster.settings = cluster.settings.model_copy(update=quick)
    return cluster


def freeze(worker: ChildProcess) -> None:
    """Stop a worker's processes, as a paused machine would."""
    os.killpg(worker.pid, signal.SIGSTOP)


def thaw(worker: ChildProcess) -> None:
    os.killpg(worker.pid, signal.SIGCONT)


def stale(cluster: Cluster, worker: ChildProcess) -> bool:
    return "its result is stale and is discarded" in cluster.log(worker)


@dataclass(frozen=True)
class Taken:
    """A task that two attempts run: that of a worker which is frozen, and that of the one which took it over."""

    process_id: str
    zombie: ChildProcess
    other: ChildProcess
    first: int
    """Pids of the attempts' processes."""
    second: int


def taken_over(cluster: Cluster, process: str) -> Taken:
    cluster.beat()
    zombie = cluster.worker()
    process_id = cluster.app.start(process, cluster.folder, 600)
    (first,) = cluster.wait_began(1)
    freeze(zombie)
    other = cluster.worker()
    return Taken(process_id, zombie, other, first, cluster.wait_began(2)[1])


@pytest.mark.parametrize(
    ("process", "actor"), [("one_slow", "slow"), pytest.param("one_strict", "strict", marks=pytest.mark.soak)]
)
def test_a_late_result_changes_nothing(cluster: Cluster, process: str, actor: str) -> None:
    task = taken_over(cluster, process)
    cluster.go()
    assert cluster.app.result(task.process_id, timeout=20) == task.second != task.first
    before = cluster.decision(actor)
    thaw(task.zombie)
    wait_until(lambda: stale(cluster, task.zombie), 20, "the late result")
    after = cluster.decision(actor)
    assert after["outcome"] == before["outcome"]
    assert after["state"] == "finished"
    assert cluster.app.result(task.process_id, timeout=1) == task.second


def test_accept_first_takes_a_late_result_that_is_first(cluster: Cluster) -> None:
    """The zombie comes back and ends before the second attempt: its value is taken, the second dropped."""
    task = taken_over(cluster, "one_slow")
    os.kill(task.second, signal.SIGSTOP)  # so that the zombie is first for certain
    thaw(task.zombie)
    cluster.go()
    assert cluster.app.result(task.process_id, timeout=20) == task.first
    os.kill(task.second, signal.SIGCONT)
    wait_until(lambda: stale(cluster, task.other), 20, "the second attempt's result")
    assert cluster.app.result(task.process_id, timeout=1) == task.first


@pytest.mark.soak
def test_without_accept_first_only_the_current_pass_counts(cluster: Cluster) -> None:
    """The zombie comes back and ends before the second attempt: its value is dropped all the same."""
    task = taken_over(cluster, "one_strict")
    os.kill(task.second, signal.SIGSTOP)
    thaw(task.zombie)
    cluster.go()
    wait_until(lambda: stale(cluster, task.zombie), 20, "the late result")
    assert cluster.decision("strict")["state"] == "working"
    os.kill(task.second, signal.SIGCONT)
    assert cluster.app.result(task.process_id, timeout=20) == task.second != task.first


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


def overdue(cluster: Cluster) -> int:
    """Workers that are silent by MongoDB's clock."""
    return int(cluster.database["workers"].count_documents({"$expr": {"$lt": ["$recoveryTime", "$$NOW"]}}))


def wait_beats(cluster: Cluster, worker: ChildProcess, count: int) -> None:
    """Wait until a worker has beaten so often more."""
    seen = set[Any]()

    def beaten() -> bool:
        seen.add(cluster.database["workers"].find_one({"pid": worker.pid}, {"recoveryTime": True})["recoveryTime"])
        return len(seen) > count

    wait_until(beaten, 20, f"{count} heartbeats")


@pytest.mark.soak
def test_who_stood_still_with_others_does_not_judge_them(cluster: Cluster) -> None:
    """As on a machine that was paused: of its workers one is the first to go on, and the others are about to."""
    # More missed beats than elsewhere: the second one has two seconds to go on, however busy this machine is.
    cluster.settings = cluster.settings.model_copy(update={"heartbeat_timeout": 3.0})
    cluster.beat()
    workers = first, second = cluster.worker(), cluster.worker()
    started = [cluster.app.start("one_slow", cluster.folder, 600) for _ in workers]
    began = cluster.wait_began(2)
    wait_beats(cluster, first, 8)  # it may judge by now
    for worker in workers:
        freeze(worker)
    wait_until(lambda: overdue(cluster) == 2, 20, "both heartbeats to be overdue")
    thaw(first)
    wait_beats(cluster, first, 3)  # and it was nudged to scan in between
    thaw(second)
    cluster.go()
    assert sorted(cluster.app.result(one, timeout=20) for one in started) == sorted(began)
    assert cluster.database["decisions"].count_documents({"timeouts": {"$gt": 0}}) == 0
