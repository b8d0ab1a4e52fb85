"""Alerts on what has gone on for long, or that need more than two workers to be seen; and for ten minutes in which
workflows run none fires, at full length."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path

import pytest
from pymongo.errors import OperationFailure

from recovery import Recovery, operations
from recovery.operations import OperationRequest
from recovery.stack import ChildProcess
from recovery.stack.server_process import free_port
from tests.cli.command import ROOT, command, environment
from tests.cluster.conftest import Cluster
from tests.cluster.scene import FACTOR, Scene, scene
from tests.cluster.scene import seen as seen
from tests.cluster.scene import temporary as temporary
from tests.cluster.test_prometheus import wait_whole, was_silent
from tests.metrics import watched
from tests.metrics.prometheus import Prometheus, needs_prometheus
from tests.silence import Way
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.soak, needs_prometheus]

HASTE = 200
"""How much shorter the times of those are that hold for an hour."""


@contextmanager
def drilling(seen: Scene, folder: Path) -> Iterator[ChildProcess]:
    """`recovery drill --watch`, whose metrics are scraped."""
    port = free_port()
    env = {**seen.cluster.settings.environment(), "RECOVERY_METRICS_PORT": str(port), "RECOVERY_SCAN_INTERVAL": "0.5"}
    options = ["--watch", "--every", "10s", "--processes", "3"]
    drill = ChildProcess("drill", command("drill", *options), folder / "drill.log", env=environment(env), cwd=ROOT)
    try:
        seen.prometheus.scrape(port)
        started = 'sum(recovery_drill_probes_total{outcome="ok"}) > 0'
        wait_until(lambda: seen.prometheus.ask(started) or not drill.running, 60, "a drill")
        assert drill.running, "\n".join(drill.last_lines(20))
        yield drill
    finally:
        drill.kill_group()


@pytest.fixture
def broker_way(cluster: Cluster) -> Way:
    """A way to Redis, to be closed."""
    assert cluster.stack.valkey is not None
    return Way(cluster.stack.valkey.port)


def hold_all_slots(seen: Scene) -> None:
    for _ in range(4):
        seen.cluster.app.start("long", seen.cluster.folder)
    seen.cluster.wait_began(4)


def test_nobody_finds_what_a_drill_leaves_to_be_found(cluster: Cluster, tmp_path: Path) -> None:
    """Its delays and the claims that it drops: there is no beat any more. No drill is begun more often than every ten
    seconds, so that the rules' times are longer here."""
    cluster.serve(watched)
    with scene(cluster, tmp_path / "prometheus", factor=FACTOR / 4) as found, drilling(found, tmp_path):
        found.beat.kill_group()
        found.fires("DrillFailed", timeout=240, beside=("NobodyScans", "Stuck", "DrillLate"))


def test_a_probe_that_is_gone(seen: Scene, tmp_path: Path) -> None:
    with drilling(seen, tmp_path):
        older = "sum(recovery_drill_probes_total offset 50s) > 0"
        wait_until(lambda: seen.prometheus.ask(older), 90, "a probe that has gone on for a while")
    seen.fires("DrillStopped", timeout=120, beside=("NotScraped",))


def test_redis_is_out_of_reach_of_one_worker(seen: Scene, broker_way: Way) -> None:
    port = free_port()
    broker_url = re.sub(r":\d+/", f":{broker_way.port}/", seen.cluster.settings.broker_url)
    seen.cluster.worker(metrics_port=port, broker_url=broker_url)
    seen.prometheus.scrape(port)
    wait_until(lambda: seen.prometheus.ask("count(recovery_redis_up) == 3"), 20, "a third worker")
    broker_way.close()
    seen.fires("OutOfReach")


def test_scanners_run_more_rarely_than_a_drill_was_promised(cluster: Cluster, tmp_path: Path) -> None:
    cluster.settings = cluster.settings.model_copy(update={"scan_interval": 5.0})
    cluster.serve(watched)
    with scene(cluster, tmp_path / "prometheus") as found, drilling(found, tmp_path):
        found.fires("DrillLate", timeout=120)


def test_a_task_has_waited_for_long(seen: Scene) -> None:
    """All slots are taken."""
    hold_all_slots(seen)
    seen.cluster.app.start("steady", 1, 0.0)
    decisions = seen.cluster.database["decisions"]
    wait_until(lambda: decisions.count_documents({"state": "queued"}) == 1, 20, "a queued task")
    past = seen.cluster.app.resources.store.now() - timedelta(hours=1)
    assert decisions.update_one({"state": "queued"}, {"$set": {"queuedAt": past}}).modified_count == 1
    seen.fires("QueueWaits")


def test_more_becomes_overdue_than_is_looked_at(cluster: Cluster, tmp_path: Path) -> None:
    """Whatever is started waits, and nobody looks at it."""
    cluster.settings = cluster.settings.model_copy(update={"idle_timeout": 1.0})
    cluster.app = Recovery(cluster.settings)
    cluster.serve(watched)
    with scene(cluster, tmp_path / "prometheus") as found:
        hold_all_slots(found)
        found.beat.kill_group()
        done = threading.Event()

        def start_more() -> None:
            for _ in range(1100):
                cluster.app.start("steady", 1, 0.0)
            while not done.wait(0.1):
                cluster.app.start("steady", 1, 0.0)

        starting = threading.Thread(target=start_more)
        starting.start()
        try:
            found.fires("OverdueGrows", timeout=150, beside=("NobodyScans", "Stuck", "QueueGrows", "QueueWaits"))
        finally:
            done.set()
            starting.join()


def test_an_index_is_dropped_again_and_again(seen: Scene) -> None:
    """By somebody's script, say; who finds that has it made anew, and goes on at the next nudge."""
    decisions, done = seen.cluster.database["decisions"], threading.Event()

    def drop() -> None:
        while not done.wait(0.2):
            with suppress(OperationFailure):  # it is being made
                decisions.drop_index("deadlineMissing")

    dropping = threading.Thread(target=drop)
    dropping.start()
    try:
        seen.fires("ScansCutOff", timeout=90)
    finally:
        done.set()
        dropping.join()


def test_two_versions_at_once(cluster: Cluster, tmp_path: Path) -> None:
    """The third worker is told so: by what is installed where it looks first."""
    other = tmp_path / "installed" / "recovery_workers-99.0.dist-info"
    other.mkdir(parents=True)
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: recovery-workers\nVersion: 99.0\n")
    cluster.serve(watched)
    with scene(cluster, tmp_path / "prometheus", factor=HASTE) as found:
        port = free_port()
        settings = cluster.settings.model_copy(update={"metrics_port": port})
        env = {**settings.environment(), "PYTHONPATH": f"{other.parent}:{ROOT}"}
        third = cluster.stack.start_worker("tests.metrics.watched:app", concurrency=1, env=env)
        found.prometheus.scrape(port)
        found.fires("VersionsMixed", beside=("NotScraped",))
        third.terminate()
        found.ceases("VersionsMixed")


def test_an_operation_stands(cluster: Cluster, tmp_path: Path) -> None:
    """It was paused, and nobody resumes it."""
    cluster.serve(watched)
    for _ in range(20):
        cluster.app.start("long", cluster.folder)
    with scene(cluster, tmp_path / "prometheus", factor=HASTE) as found:
        resources = cluster.app.resources
        number = operations.start(
            resources, OperationRequest(kind="check", everything=True, rate=0.1, spark=False), "a test"
        ).id
        wait_until(lambda: found.prometheus.ask("recovery_operation_done"), 30, "an operation under way")
        operations.pause(resources, number, "a test")
        found.fires("OperationStands")
        operations.cancel(resources, number, "a test")
        found.ceases("OperationStands")


def test_ten_minutes_of_a_demo_without_kills(tmp_path: Path) -> None:
    """The rules as they are deployed: none gives anything."""
    seconds = 600.0
    options = ["--kill-every", "0s", "--for", f"{seconds + 120:g}s", "--processes", "10", "--keep", "--json"]
    demo = ChildProcess("demo", command("demo", *options), tmp_path / "demo.log", env=environment(), cwd=ROOT)
    try:
        ports = wait_until(lambda: metrics_ports(tmp_path) if demo.running else [0], 60, "the ports of two workers")
        with Prometheus(tmp_path / "prometheus", ports, every=5.0) as prometheus:
            wait_whole(prometheus)
            since = prometheus.now()
            wait_until(lambda: prometheus.now() > since + seconds or not demo.running, seconds + 30, "ten minutes")
            assert prometheus.now() > since + seconds, demo.last_lines(20)
            was_silent(prometheus, since)
            assert prometheus.ask(f"increase(recovery_processes_ended_total[{seconds:g}s]) > 100"), "it was at work"
        assert demo.wait(300) and demo.exit_code == 0, "\n".join(demo.last_lines(20))
    finally:
        demo.kill_group()


def metrics_ports(folder: Path) -> list[int]:
    """Those that the workers of a demo say they serve at; none until two do."""
    logs = [log.read_text() for log in folder.glob("recovery-demo-*/logs/worker-*.log")]
    said = [found for log in logs if (found := re.search(r"metrics: http://127\.0\.0\.1:(\d+)/", log))]
    return [int(found[1]) for found in said] if len(said) == 2 else []
