"""Workers and pool children that are killed, stopped or told to end, while they run something."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

import pytest

from recovery import ProcessBroken
from recovery.metrics import multiprocess
from recovery.stack import Mongod, Valkey
from tests.cluster.conftest import Cluster
from tests.living import lives
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster


@pytest.fixture
def counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the workers of the test count."""
    folder = tmp_path / "metrics"
    folder.mkdir()
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(folder))
    return folder


def test_a_killed_worker_is_known_by_its_silence(cluster: Cluster) -> None:
    """Parent and children gone at once, and no worker of the same host to see it: the heartbeat tells."""
    quick = {"heartbeat_interval": 0.5, "heartbeat_timeout": 1.5}
    cluster.settings = cluster.settings.model_copy(update=quick)
    cluster.beat()
    doomed = cluster.worker()
    process_id = cluster.app.start("one_slow", cluster.folder, 600)
    cluster.wait_began(1)
    # As if it ran on another machine: nobody can look for its pid.
    cluster.database["workers"].update_many({}, {"$set": {"host": "elsewhere", "pid": 1}})
    survivor = cluster.worker()
    doomed.kill_group()
    cluster.database["workers"].update_one({"pid": doomed.pid}, {"$set": {"host": "elsewhere", "pid": 1}})
    # A timeout of three, a scan for each, and as many again for a machine that is busy. Its task's time-out is 1200.
    assert cluster.beats_until_began(2, survivor) <= 8
    cluster.go()
    assert cluster.app.result(process_id, timeout=20) == cluster.began()[1]
    assert cluster.decision("slow")["workersLost"] == 1
    assert survivor.running


@pytest.mark.smoke
def test_a_killed_worker_is_seen_by_its_neighbour(cluster: Cluster, counted: Path) -> None:
    """Who looks with each heartbeat, and with no other means: that one is silent nobody would know for a long time."""
    cluster.settings = cluster.settings.model_copy(update={"heartbeat_timeout": 600.0})
    cluster.beat()
    doomed = cluster.worker()
    process_id = cluster.app.start("one_slow", cluster.folder, 600)
    cluster.wait_began(1)
    neighbour = cluster.worker()
    doomed.kill_group()
    assert cluster.beats_until_began(2, neighbour) <= 2, "the one that sees it, and one in which the attempt begins"
    cluster.go()
    assert cluster.app.result(process_id, timeout=20) == cluster.began()[1]
    assert multiprocess.total(multiprocess.collect(counted), "recovery_workers_lost") == 1


@pytest.mark.smoke
def test_a_killed_pool_child_is_seen_by_its_parent(cluster: Cluster) -> None:
    """No beat, no scanner, one worker with one slot: the parent requeues, and its new child runs it."""
    parent = cluster.worker()
    process_id = cluster.app.start("one_slow", cluster.folder, 600)
    (child,) = cluster.wait_began(1)
    assert watched(parent.pid) == {child}
    before = cluster.decision("slow")["pass"]
    os.kill(child, signal.SIGKILL)
    beats = cluster.beats_until(parent, lambda: cluster.decision("slow")["pass"] != before, "it to be requeued")
    assert beats <= 1, "it does not wait for a heartbeat; one may come meanwhile"
    assert watched(parent.pid) == {cluster.wait_began(2)[1]}, "at once, and not by the pool's next look"
    cluster.go()
    assert cluster.app.result(process_id, timeout=20) == cluster.began()[1]


def test_it_is_watched_after_redis_was_away_as_well(cluster: Cluster, valkey: Valkey) -> None:
    """The worker's event loop begins again then, and has nothing that it watches."""
    parent = cluster.worker()
    cluster.go()
    child = cluster.app.result(cluster.app.start("one_slow", cluster.folder, 600), timeout=20)
    assert watched(parent.pid) == {child}
    valkey.kill()
    wait_until(lambda: "no message is taken until it is back" in cluster.log(parent), 10, "the worker to notice it")
    valkey.start()
    assert cluster.app.result(cluster.app.start("one_slow", cluster.folder, 600), timeout=20) == child
    assert watched(parent.pid) == {child}


def watched(pid: int) -> set[int]:
    """The processes that a process's event loop watches by descriptors, as the kernel tells it."""
    told = dict[str, list[str]]()
    for one in Path(f"/proc/{pid}/fdinfo").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            told[one.name] = one.read_text().splitlines()
    looped = {line.split()[1] for lines in told.values() for line in lines if line.startswith("tfd:")}
    return {int(line.split()[1]) for name in looped for line in told.get(name, ()) if line.startswith("Pid:")}


def test_how_the_last_attempts_process_ended_is_the_reason_told(cluster: Cluster, counted: Path) -> None:
    cluster.worker()
    ends = {-signal.SIGKILL: "was ended by signal 9 (SIGKILL)", -signal.SIGSEGV: "was ended by signal 11 (SIGSEGV)"}
    for signal_or_code, how in {**ends, 3: "ended with exit code 3", 0: "ended with exit code 0"}.items():
        with pytest.raises(ProcessBroken) as broken:
            cluster.app.result(cluster.app.start("ends_its_process", signal_or_code), timeout=30)
        told = f"ends_its_process lost 2 attempts (max_work_timeouts); the last one's process {how}"
        assert (broken.value.kind, broken.value.message) == ("WorkTimeout", told)
    # Each counted what it claimed, and eight that died left no more files than one: each is read at every scrape.
    assert multiprocess.buckets(multiprocess.collect(counted), "recovery_queue_seconds")[float("inf")] == 8
    assert len(list(counted.glob("histogram_*"))) <= 2, "the pool's only process and the worker's main one"


@pytest.mark.smoke
def test_deadlines_alone_are_enough(cluster: Cluster) -> None:
    """With the events switched off, the worker timeout brings the task on."""
    cluster.settings = cluster.settings.model_copy(update={"events": False})
    cluster.beat()
    doomed = cluster.worker()
    process_id = cluster.app.start("one_impatient", cluster.folder, 600)
    cluster.wait_began(1)
    doomed.kill_group()
    cluster.worker()
    cluster.wait_began(2, timeout=15)
    cluster.go()
    assert cluster.app.result(process_id, timeout=20) == cluster.began()[1]


@pytest.mark.smoke
def test_sigterm_gives_back_at_once(cluster: Cluster) -> None:
    """A deployment costs no timeout: what does not end within the grace is queued again, and not counted."""
    leaving = cluster.worker()
    process_id = cluster.app.start("one_slow", cluster.folder, 600)
    cluster.wait_began(1)
    leaving.terminate()
    assert leaving.wait(15), cluster.log(leaving)
    given_back = cluster.decision("slow")
    assert (given_back["state"], given_back.get("timeouts", 0)) == ("queued", 0)
    assert cluster.database["workers"].count_documents({}) == 0
    cluster.worker()
    cluster.wait_began(2, timeout=10)
    cluster.go()
    assert cluster.app.result(process_id, timeout=20) == cluster.began()[1]


def signs(cluster: Cluster, name: str) -> list[int]:
    """The pids of these that left this sign, or are named by it."""
    return [int(sign.name.split("-")[1]) for sign in Path(cluster.folder).glob(f"{name}-*")]


def test_what_sigterm_gives_back_goes_on_nowhere(cluster: Cluster) -> None:
    """It may come to its end from now on, and does not: its pool process is gone with all that it started."""
    leaving = cluster.worker()
    cluster.app.start("one_that_starts_another", cluster.folder)
    (child,), (other,) = cluster.wait_began(1), signs(cluster, "other")
    leaving.terminate()
    wait_until(lambda: cluster.decision("starts_another")["state"] == "queued", 15, "it to be given back")
    cluster.go()
    assert leaving.wait(15), cluster.log(leaving)
    for pid in (child, other):
        wait_until(lambda pid=pid: not lives(pid), 10, "the end of what ran")  # type: ignore[misc]
    assert signs(cluster, "ended") == []
    assert cluster.decision("starts_another")["state"] == "queued"


def test_what_sigterm_gives_back_is_gone_before(cluster: Cluster, mongod: Mongod) -> None:
    """Not only stopped: a worker that is killed while the database lets it wait would leave it so."""
    leaving = cluster.worker(concurrency=2)
    cluster.app.start("one_that_starts_another", cluster.folder)
    (child,), (other,) = cluster.wait_began(1), signs(cluster, "other")
    mongod.freeze()
    leaving.terminate()
    for pid in (child, other):
        wait_until(lambda pid=pid: not lives(pid), 30, "the end of what ran, nothing being given back")  # type: ignore[misc]
    assert leaving.running, "it waits for the database"
    mongod.thaw()
    wait_until(lambda: cluster.decision("starts_another")["state"] == "queued", 15, "it to be given back")
    assert leaving.wait(15), cluster.log(leaving)


def test_sigterm_lets_end_what_ends(cluster: Cluster) -> None:
    cluster.settings = cluster.settings.model_copy(update={"shutdown_grace": 20.0})
    leaving = cluster.worker()
    process_id = cluster.app.start("one_slow", cluster.folder, 600)
    cluster.wait_began(1)
    leaving.terminate()
    wait_until(lambda: "shutdown" in cluster.log(leaving), 10, "the worker to take notice")
    cluster.go()
    assert leaving.wait(15), cluster.log(leaving)
    assert cluster.app.result(process_id, timeout=5) == cluster.began()[0]
    assert len(cluster.began()) == 1


def test_a_long_healthy_task_runs_once(cluster: Cluster) -> None:
    """Automatic heartbeats carry an attempt over its worker_timeout many times."""
    cluster.beat()
    cluster.worker(concurrency=2)
    process_id = cluster.app.start("one_long", cluster.folder, 3.0)
    assert cluster.app.result(process_id, timeout=30) == cluster.began()[0]
    assert len(cluster.began()) == 1


def test_threads_pool(cluster: Cluster) -> None:
    """Attempts side by side in one process; on SIGTERM they are given back as a pool's processes' are."""
    leaving = cluster.worker(concurrency=3, pool="threads")
    process_id = cluster.app.start("many_slow", cluster.folder, 3, 600)
    assert len(set(cluster.wait_began(3))) == 1
    leaving.terminate()
    assert leaving.wait(15), cluster.log(leaving)
    states = [d["state"] for d in cluster.database["decisions"].find({"actor": "slow"})]
    assert states == ["queued"] * 3
    cluster.worker(concurrency=2, pool="threads")
    cluster.go()
    assert len(cluster.app.result(process_id, timeout=30)) == 3
