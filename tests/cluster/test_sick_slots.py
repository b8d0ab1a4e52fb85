"""Slots that claim tasks and can run none: they are replaced, reported, and their tasks lose no attempt by it."""

from __future__ import annotations

import shutil
from pathlib import Path

import psutil
import pytest

from recovery.health.live_workers import slots as check_slots
from recovery.health.model import Cause, Check
from recovery.metrics import multiprocess
from tests.cluster import sick
from tests.cluster.conftest import Cluster
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster


@pytest.fixture
def cluster(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setenv(sick.SICK, str(tmp_path))
    cluster.settings = cluster.settings.model_copy(update={"message_timeout": 1.0, "heartbeat_interval": 0.5})
    cluster.serve(sick)
    cluster.beat()
    return cluster


def test_a_slot_that_runs_nothing_is_replaced_and_no_attempt_is_lost(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "sick").write_text("once")
    worker = cluster.worker()
    started = [cluster.app.start("number", value) for value in range(5)]
    assert [cluster.app.result(process_id, timeout=30) for process_id in started] == list(range(5))
    assert lost(cluster) == 0
    log = cluster.log(worker)
    assert f"could run none of the last 3 tasks that it claimed (FileNotFoundError: [Errno 2] {sick.REASON})" in log
    assert worker.running


def lost(cluster: Cluster) -> int:
    """Attempts that were counted as lost."""
    return sum(one.get("timeouts", 0) for one in cluster.database["decisions"].find())


def slots(cluster: Cluster) -> Check:
    return check_slots(cluster.app.resources)


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_a_worker_whose_slots_all_run_nothing_takes_little_and_the_doctor_says_so(
    cluster: Cluster, tmp_path: Path, pool: str
) -> None:
    (tmp_path / "sick").touch()
    worker = cluster.worker(pool=pool)
    started = [cluster.app.start("number", value) for value in range(12)]
    wait_until(lambda: "takes nothing for a while" in cluster.log(worker), 30, "the worker to give up for a while")
    wait_until(lambda: slots(cluster).cause is Cause.SLOTS_FAIL, 10, "the doctor to see it")
    assert sick.REASON in slots(cluster).found

    assert lost(cluster) == 0
    (tmp_path / "sick").unlink()
    if pool == "prefork":
        assert [cluster.app.result(process_id, timeout=60) for process_id in started] == list(range(12))


def test_the_metrics_folder_is_removed_and_a_pool_process_replaced(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a program that tidies temporary folders."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.delenv("PROMETHEUS_MULTIPROC_DIR", raising=False)  # set where a worker's modules are imported
    worker = cluster.worker()
    assert cluster.app.result(cluster.app.start("number", 1), timeout=30) == 1
    (folder,) = temporary.glob(f"recovery-metrics-{worker.pid}-*")
    shutil.rmtree(folder)
    (slot,) = psutil.Process(worker.pid).children()
    slot.kill()
    assert cluster.app.result(cluster.app.start("number", 2), timeout=30) == 2
    assert lost(cluster) == 0
    found = multiprocess.collect(folder)
    assert multiprocess.total(found, "recovery_attempts", actor="number") == 1, "what the new process counted is served"
