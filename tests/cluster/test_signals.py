"""What signals do to a worker and its pool, and when a pool process ends by itself."""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from pathlib import Path

import pytest

from recovery.stack.child import ChildProcess
from tests.cluster.conftest import Cluster
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster

MAX_TASKS, BATCH = 5, 4


def test_sigterm_to_the_whole_group_gives_tasks_their_grace(cluster: Cluster) -> None:
    """As systemd sends it by default, and supervisor with `stopasgroup`."""
    cluster.settings = cluster.settings.model_copy(update={"shutdown_grace": 30.0})
    leaving = cluster.worker(concurrency=2)
    process_id = cluster.app.start("one_slow", cluster.folder, 600)
    (child,) = cluster.wait_began(1)
    os.killpg(leaving.pid, signal.SIGTERM)
    wait_until(lambda: "shutdown" in cluster.log(leaving), 10, "the worker to take notice")
    os.kill(child, signal.SIGTERM)  # once more, now that the worker ends
    cluster.go()
    assert leaving.wait(20), cluster.log(leaving)
    assert cluster.app.result(process_id, timeout=5) == child
    assert cluster.began() == [child]
    assert cluster.decision("slow").get("timeouts", 0) == 0


def test_sigquit_after_sigterm_waits_for_no_task(cluster: Cluster) -> None:
    cluster.settings = cluster.settings.model_copy(update={"shutdown_grace": 600.0})
    leaving = cluster.worker()
    cluster.app.start("one_slow", cluster.folder, 600)
    cluster.wait_began(1)
    leaving.terminate()
    wait_until(lambda: "shutdown" in cluster.log(leaving), 10, "the worker to take notice")
    os.kill(leaving.pid, signal.SIGQUIT)
    assert leaving.wait(20), cluster.log(leaving)
    assert cluster.decision("slow")["state"] == "queued"


def test_sighup_ends_nothing(cluster: Cluster) -> None:
    worker, beat = cluster.worker(), cluster.beat()
    process_id = cluster.app.start("one_slow", cluster.folder, 600)
    (child,) = cluster.wait_began(1)
    wait_until(lambda: _handles_hangup(beat.pid), 20, "the beat to be ready")
    for leader in (worker, beat):
        os.killpg(leader.pid, signal.SIGHUP)
    wait_until(lambda: "SIGHUP is ignored" in cluster.log(worker), 10, "the worker to take notice")
    wait_until(lambda: "SIGHUP is ignored" in cluster.log(beat), 10, "the beat to take notice")
    cluster.go()
    assert cluster.app.result(process_id, timeout=20) == child
    assert worker.running and beat.running


@pytest.mark.parametrize(
    ("limit", "count"),
    [(f"--max-tasks-per-child={MAX_TASKS}", 20), pytest.param("--max-memory-per-child=1", 8, marks=pytest.mark.soak)],
)
def test_a_pool_process_ends_after_the_batch_in_which_it_reaches_a_limit(
    cluster: Cluster, limit: str, count: int
) -> None:
    """A kilobyte is less than any process has, so one batch is all that each runs."""
    settings = cluster.settings.model_copy(update={"batch_size": BATCH})
    command = [sys.executable, "-m", "celery", "-A", "recovery.worker.app", "worker", "--concurrency", "2", limit]
    env = {**os.environ, **settings.environment(), "RECOVERY_APP": "tests.cluster.app:app"}
    worker = ChildProcess("celery", command, cluster.stack.log("celery-limits"), env=env)
    try:
        process_id = cluster.app.start("many_slow", cluster.folder, count, 0.0)
        assert len(cluster.app.result(process_id, timeout=60)) == count
        ran = Counter(cluster.began())
        assert max(ran.values()) < MAX_TASKS + BATCH, ran
        assert worker.running
    finally:
        worker.kill_group()


def _handles_hangup(pid: int) -> bool:
    """Whether a process has a handler of its own for SIGHUP."""
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    caught = next(line for line in status if line.startswith("SigCgt"))
    return bool(int(caught.split()[1], 16) >> (signal.SIGHUP - 1) & 1)
