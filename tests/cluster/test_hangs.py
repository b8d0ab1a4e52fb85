"""Actors that never return: their slots are freed, others go on, and what hangs ends with its true reason."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread

import pytest

from recovery.errors import ProcessBroken
from recovery.stack.child import ChildProcess
from tests.cluster import rogues
from tests.cluster.conftest import Cluster
from tests.living import lives
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster

POOLS = ["prefork", pytest.param("threads", marks=pytest.mark.soak)]


def two_workers(cluster: Cluster, pool: str) -> list[ChildProcess]:
    """Of two slots each, started side by side."""
    workers = [cluster.worker(pool=pool, concurrency=2, wait=False) for _ in range(2)]
    wait_until(lambda: cluster.database["workers"].count_documents({}) == 2, 30, "two workers")
    return workers


class Supervisor:
    """Starts a worker again that has ended, as systemd and compose do."""

    def __init__(self, cluster: Cluster, pool: str) -> None:
        self._cluster, self.pool = cluster, pool
        self._running = two_workers(cluster, pool)
        self.ended: list[ChildProcess] = []
        self._done = Event()
        self._thread = Thread(target=self._watch)
        self._thread.start()

    def stop(self) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(0.1):
            for place, worker in enumerate(self._running):
                if not worker.running:
                    self.ended.append(worker)
                    self._running[place] = self._cluster.worker(pool=self.pool, concurrency=2, wait=False)


@pytest.fixture
def cluster(cluster: Cluster) -> Cluster:
    cluster.serve(rogues)
    return cluster


@pytest.fixture(params=POOLS)
def two_by_two(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Supervisor]:
    supervisor = Supervisor(cluster, request.param)
    yield supervisor
    supervisor.stop()


def ends_hung(cluster: Cluster, process_id: str, actor: str = "hangs") -> None:
    attempts = rogues.ATTEMPTS
    said = f"WorkTimeout.*{actor} lost {attempts} attempts \\(max_work_timeouts\\)"
    with pytest.raises(ProcessBroken, match=said):
        cluster.app.result(process_id, timeout=30)
    (decision,) = cluster.database["decisions"].find(
        {"_id": {"$gt": process_id, "$lt": f"{process_id}0"}, "actor": actor}
    )
    # One more where it was given back, by a worker of threads that ended since the one before hung in it.
    assert decision["timeouts"] == attempts <= decision["attempts"] < 2 * attempts, "each lost attempt is counted once"


def freed(cluster: Cluster) -> dict[str, int]:
    return {one.id: one.slots for one in cluster.app.resources.store.hung.freed()}


def nine_others(cluster: Cluster) -> float:
    """Run them; how long the one took that took longest."""
    started = {cluster.app.start("steps", 0.1, 4): time.monotonic() for _ in range(9)}
    for process_id in started:
        assert cluster.app.result(process_id, timeout=60) == "done"
    return time.monotonic() - min(started.values())


TIMEOUTS = {"prefork": rogues.TIMEOUT, "threads": 2.5}
"""{pool: seconds of an attempt that hangs}. A worker takes some 2 s to start."""


def test_others_go_on_beside_one_that_hangs(cluster: Cluster, two_by_two: Supervisor) -> None:
    timeout, attempts = TIMEOUTS[two_by_two.pool], rogues.ATTEMPTS
    assert cluster.app.resources.store.actors.override("hangs", {"worker_timeout": timeout})
    cluster.beat()
    alone = nine_others(cluster)
    hanging = cluster.app.start("one_that_hangs", cluster.folder, "waits")
    cluster.wait_began(1)
    beside = []
    while cluster.database["processes"].find_one({"_id": hanging, "state": "running"}):
        beside.append(nine_others(cluster))
    assert max(beside) <= alone + timeout + 2, (alone, beside)
    ends_hung(cluster, hanging)
    wait_until(lambda: freed(cluster) == {"hangs": attempts}, 20, "all their slots to be freed")
    assert nine_others(cluster) <= alone + 2
    assert {worker.exit_code for worker in two_by_two.ended} == ({1} if two_by_two.pool == "threads" else set())


@pytest.mark.soak
def test_as_many_as_there_are_slots_hold_up_no_other_of_their_actor(cluster: Cluster, two_by_two: Supervisor) -> None:
    """At their time-out they go behind those that were never begun."""
    timeout = TIMEOUTS[two_by_two.pool]
    assert cluster.app.resources.store.actors.override("hangs", {"worker_timeout": timeout})
    cluster.beat()
    wait_until(cluster.app.resources.store.scanners.all, 20, "a beat that nudges")
    process_id = cluster.app.start("many", cluster.folder, 4, 9)
    cluster.wait_began(4)
    ended = {"actor": "hangs", "state": "finished"}
    # Where threads hang, both workers end and start again.
    within = timeout + (2 if two_by_two.pool == "prefork" else 10)
    wait_until(lambda: cluster.database["decisions"].count_documents(ended) == 9, within, "the nine others")
    with pytest.raises(ProcessBroken, match="WorkTimeout"):
        cluster.app.result(process_id, timeout=120)
    wait_until(lambda: cluster.database["decisions"].count_documents(ended) == 13, 60, "the end of all")


def test_however_it_hangs_its_process_is_killed(cluster: Cluster) -> None:
    """With all that it started. No slot is free, so none is given more time than its own."""
    cluster.beat()
    worker = cluster.worker(concurrency=len(rogues.HANGS))
    ways = set(rogues.HANGS) - {"waits"}
    hanging = {cluster.app.start("one_that_hangs", cluster.folder, how): "hangs" for how in ways}
    hanging[cluster.app.start("one_that_holds", cluster.folder)] = "beats_and_holds"
    for process_id, actor in hanging.items():
        ends_hung(cluster, process_id, actor)
    assert cluster.app.result(cluster.app.start("steps", 0, 1), timeout=20) == "done"
    lost = {"hangs": rogues.ATTEMPTS * len(ways), "beats_and_holds": rogues.ATTEMPTS}
    wait_until(lambda: freed(cluster) == lost, 20, "all slots to be freed")

    def told() -> int:
        return cluster.log(worker).count("was killed, its slot is free")

    wait_until(lambda: told() >= sum(lost.values()), 10, "all of it in the log, which comes after it is counted")
    assert told() == sum(lost.values())
    for name in ("grandchild", "forked"):
        pid = int((Path(cluster.folder) / name).read_text())
        wait_until(lambda pid=pid: not lives(pid), 10, f"the {name} to be gone")  # type: ignore[misc]


def test_a_worker_of_threads_gives_back_the_rest_and_ends(cluster: Cluster) -> None:
    """What is well beside the one that hangs is begun anew, and not counted as lost. Its subprocess is killed, and that
    is none of its ends."""
    cluster.beat()
    worker = cluster.worker(pool="threads", concurrency=2)
    well = cluster.app.start("one_that_asks")
    begun = {"actor": "asks_another", "state": "working"}
    wait_until(lambda: cluster.database["decisions"].find_one(begun), 20, "it to begin")
    cluster.app.start("one_that_hangs", cluster.folder, "waits")
    assert worker.wait(20), "a worker that ends itself"
    assert worker.exit_code == 1
    said = r"hangs, for .*: it has lost its task, and no slot is free; this worker gives back the rest and ends, code 1"
    assert re.search(said, cluster.log(worker)), cluster.log(worker)
    assert freed(cluster) == {"hangs": 1}
    assert cluster.database["workers"].count_documents({}) == 0
    asks = cluster.decision("asks_another")
    assert asks["_id"].startswith(well) and (asks["state"], asks.get("timeouts", 0)) == ("queued", 0)


@pytest.mark.soak
def test_who_is_only_slow_may_be_first_while_a_slot_is_free(cluster: Cluster) -> None:
    cluster.beat()
    worker = cluster.worker(concurrency=3)
    process_id = cluster.app.start("one_slow", cluster.folder)
    assert cluster.app.result(process_id, timeout=20) == "first"
    assert len(cluster.wait_began(2)) == 2
    wait_until(lambda: freed(cluster) == {"slow": 1}, 20, "the slot of the second, whose task has ended")
    # It is counted before it is told.
    wait_until(lambda: "its task has ended without it" in cluster.log(worker), 5, "why its slot was freed")


def test_a_worker_of_threads_that_stands_is_judged_by_others(cluster: Cluster) -> None:
    """A function that holds the interpreter holds its heartbeats too. When it wakes up, what it brings is too late."""
    cluster.settings = cluster.settings.model_copy(update={"heartbeat_interval": 0.5, "heartbeat_timeout": 1.5})
    cluster.beat()
    workers = two_workers(cluster, "threads")
    process_id = cluster.app.start("one_that_holds_for", cluster.folder, 5)
    assert cluster.app.result(process_id, timeout=20) == "second"
    assert cluster.decision("holds_for")["workersLost"] == 1
    late = "is stale and is discarded"
    wait_until(lambda: any(late in cluster.log(worker) for worker in workers), 20, "the first to wake up")
    assert cluster.app.result(process_id, timeout=1) == "second"
    wait_until(lambda: cluster.database["workers"].count_documents({}) == 2, 10, "its heartbeats")
