"""Alerts fire when what they are for really happens: each rule, on a real cluster and a real Prometheus, within a
twentieth of its time (see `hurried`). Those of whole days and of drills are in `test_alerts_that_take_long`."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import redis

from recovery import Recovery
from recovery.engine.operators.overrides import ActorOverrides
from recovery.stack import Mongod, Valkey
from tests.cluster import scheduled
from tests.cluster.conftest import Cluster
from tests.cluster.scene import Scene, scene
from tests.cluster.scene import seen as seen
from tests.cluster.scene import temporary as temporary
from tests.metrics import watched
from tests.metrics.prometheus import needs_prometheus

pytestmark = [pytest.mark.cluster, pytest.mark.soak, needs_prometheus]


@pytest.fixture
def patient(cluster: Cluster, tmp_path: Path) -> Iterator[Scene]:
    """With the time for a scrape that a worker needs to say that a server is away."""
    cluster.serve(watched)
    with scene(cluster, tmp_path / "prometheus", every=5.0) as found:
        yield found


def test_the_workers_are_killed(seen: Scene) -> None:
    for worker in seen.workers:
        worker.kill_group()
    seen.fires("NoWorkers", "NotScraped")


def test_workers_are_killed_again_and_again(seen: Scene) -> None:
    for _ in range(6):
        extra = seen.cluster.worker()
        extra.kill_group()
    seen.fires("WorkersLost")


def test_mongodb_is_away(patient: Scene, mongod: Mongod) -> None:
    mongod.freeze()
    patient.fires("MongoDBAway", beside=("NoWorkers", "ScansCutOff", "RedisRefuses", "OutOfReach"))
    mongod.thaw()
    patient.ceases("MongoDBAway")


def test_redis_is_away(patient: Scene, valkey: Valkey) -> None:
    """A task that schedules others, which can't be pushed then."""
    patient.cluster.app.start("after_a_while", patient.cluster.folder)
    patient.cluster.wait_began(1)
    valkey.kill()
    patient.cluster.go()
    patient.fires("RedisAway", "RedisRefuses", beside=("ScansCutOff", "NobodyScans", "OutOfReach"))
    valkey.start()
    patient.ceases("RedisAway")


def test_beat_is_stopped(seen: Scene) -> None:
    """And a record is overdue, which nobody sees then."""
    seen.cluster.app.start("long", seen.cluster.folder)
    seen.cluster.wait_began(1)
    seen.beat.kill_group()
    past = seen.cluster.app.resources.store.now() - timedelta(hours=1)
    seen.cluster.database["graphs"].update_one({}, {"$set": {"recoveryTime": past}})
    seen.fires("NobodyScans", "Stuck", timeout=120)


def test_an_actor_is_unserved(seen: Scene) -> None:
    seen.cluster.app.start("long", seen.cluster.folder)
    (slot,) = seen.cluster.wait_began(1)
    seen.cluster.database["decisions"].update_one({"actor": "held"}, {"$set": {"actor": "price_list"}})
    os.kill(slot, signal.SIGKILL)
    seen.fires("WaitsForNobody")


def test_an_actor_is_blocked(seen: Scene) -> None:
    ActorOverrides(seen.cluster.app.resources).block("never_called", "a test")
    seen.fires("ActorBlocked")
    yesterday = seen.cluster.app.resources.store.now() - timedelta(days=2)
    seen.cluster.database["actors"].update_one({"_id": "never_called"}, {"$set": {"blockedAt": yesterday}})
    seen.fires("ActorStaysBlocked", beside=("ActorBlocked",))


def test_callers_are_of_a_newer_version(seen: Scene) -> None:
    newer = Recovery(seen.cluster.settings, version="2.0")

    @newer.process("steady")
    def steady(tasks: int, seconds: float, urgent: bool) -> int:
        return tasks + round(seconds) + urgent

    done = threading.Event()

    def start_more() -> None:
        """One task alone is refused every 30 s in the end, which the rules' time is 20 times too short for."""
        while not done.wait(0.5):
            newer.start("steady", 1, 0.0, urgent=True)

    starting = threading.Thread(target=start_more)
    starting.start()
    try:
        seen.fires("WaitsForNewerWorker")
    finally:
        done.set()
        starting.join()


def test_processes_break_and_leave_markers(seen: Scene) -> None:
    """The first one ever: of a counter that was not there Prometheus sees no increase."""
    seen.cluster.app.start("hopeless")
    seen.fires("ProcessesBroken", "Markers")


def test_a_schedule_is_disabled(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(scheduled.FOLDER, str(tmp_path))
    cluster.serve(scheduled)
    with scene(cluster, tmp_path / "prometheus") as found:
        (tmp_path / "error").write_text("refused")
        found.fires("ScheduleDisabled", beside=("ProcessesBroken", "Markers"))


def test_a_function_hangs(seen: Scene) -> None:
    seen.cluster.app.start("one_that_hangs")
    seen.fires("ActorHangs", beside=("AttemptsLost",))


def test_an_actor_kills_its_workers(seen: Scene) -> None:
    for _ in range(4):
        seen.cluster.app.start("one_that_kills")
    seen.fires("AttemptsLost", timeout=120, beside=("ProcessesBroken", "WorkersLost", "Markers", "ScheduleDisabled"))


def test_somebody_else_writes_to_redis(seen: Scene) -> None:
    with redis.Redis.from_url(seen.cluster.settings.broker_url) as broker:
        broker.lpush("work", b"nonsense")
    seen.fires("StrangeMessages")


def test_a_queue_grows(seen: Scene) -> None:
    """All slots are taken, and more and more is started."""
    start, done = seen.cluster.app.start, threading.Event()
    for _ in range(4):
        start("long", seen.cluster.folder)
    seen.cluster.wait_began(4)

    def start_more() -> None:
        for _ in range(1100):
            start("steady", 1, 0.0)
        while not done.wait(0.1):
            start("steady", 1, 0.0)

    starting = threading.Thread(target=start_more)
    starting.start()
    try:
        seen.fires("QueueGrows", timeout=120, beside=("QueueWaits",))
    finally:
        done.set()
        starting.join()


def damage(seen: Scene, collection: str, **fields: object) -> None:
    """Write past the validators, as another program may."""
    seen.cluster.app.start("long", seen.cluster.folder)
    seen.cluster.wait_began(1)
    past = seen.cluster.app.resources.store.now() - timedelta(hours=1)
    updates = [{"q": {}, "u": {"$set": {"recoveryTime": past, **fields}}, "multi": True}]
    seen.cluster.database.command("update", collection, updates=updates, bypassDocumentValidation=True)


def test_a_record_is_damaged(seen: Scene) -> None:
    damage(seen, "decisions", state="nonsense")
    seen.fires("DamagedRecords", beside=("Stuck", "AttemptsLost"))


def test_a_step_fails(seen: Scene) -> None:
    damage(seen, "graphs", finished="nonsense")
    seen.cluster.go()
    seen.fires("StepsFail", beside=("Stuck", "DamagedRecords"))


def test_deadlines_are_removed(seen: Scene) -> None:
    seen.cluster.app.start("long", seen.cluster.folder)
    seen.cluster.wait_began(1)
    updates = [{"q": {"state": "working"}, "u": {"$unset": {"recoveryTime": ""}}, "multi": True}]
    seen.beat.kill_group()  # with it a scanner would give it one at once
    seen.cluster.database.command("update", "decisions", updates=updates, bypassDocumentValidation=True)
    seen.fires("LiveWithoutDeadline", beside=("NobodyScans",))
