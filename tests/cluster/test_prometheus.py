"""A real Prometheus scrapes a real cluster: on a healthy one no alert so much as begins, and of one that has seen
things every panel of every dashboard shows something."""

from __future__ import annotations

import contextlib
import os
import re
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from recovery import Recovery, operations
from recovery.engine.operators.overrides import ActorOverrides
from recovery.operations import OperationRequest
from recovery.stack.server_process import free_port
from tests.cli.command import recovery
from tests.cluster.conftest import Cluster
from tests.metrics import watched
from tests.metrics.alerts import rules
from tests.metrics.panels import Query, asked, concrete
from tests.metrics.prometheus import Prometheus, needs_prometheus
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, needs_prometheus]

EVERY = 4.0
"""Seconds between scrapes, and which one may take. More than a worker waits for MongoDB's answers to one: where other
tests take the whole machine for seconds, a scrape is answered late and not lost, as it is where one may take ten."""
HEALTHY = 12.0
"""Seconds in which nothing is wrong: three scrapes, and as many evaluations."""


@pytest.fixture
def ports() -> list[int]:
    return [free_port(), free_port()]


@pytest.fixture
def watched_cluster(cluster: Cluster, ports: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """Two workers that are scraped, and a beat; not to be waited for yet."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # where others' workers remove nothing
    # Looked at within a second: so is a process that runs past its time.
    cluster.settings = cluster.settings.model_copy(update={"idle_timeout": 1.0})
    cluster.app = Recovery(cluster.settings)
    cluster.serve(watched)
    cluster.beat()
    for port in ports:
        cluster.worker(metrics_port=port, concurrency=2, wait=False)
    return cluster


def test_alerts_are_silent_and_panels_are_not(watched_cluster: Cluster, ports: list[int], tmp_path: Path) -> None:
    cluster = watched_cluster
    with Prometheus(tmp_path / "prometheus", ports, every=EVERY) as prometheus:
        wait_whole(prometheus)
        stays_silent(cluster, prometheus)
        with ThreadPoolExecutor(max_workers=1) as beside:
            drill = beside.submit(recovery, "drill", "--processes", "2", env=cluster.settings.environment())
            stir(cluster)
            assert drill.result().returncode in (0, 1), "promises are for machines that do nothing else"
        missing = [*asked()]
        assert len(missing) > 40

        def all_answered() -> bool:
            missing[:] = [one for one in missing if not shows(prometheus, one)]
            return not missing

        with contextlib.suppress(AssertionError):
            wait_until(all_answered, 30, "data")
        assert not missing, "\n".join(map(str, missing))


def wait_whole(prometheus: Prometheus) -> None:
    """Until two workers are scraped of whom all scanners have run, and what was said of none is over."""

    def missing() -> dict[str, object]:
        found: dict[str, object] = {"not scraped": prometheus.unscraped(), "alerts": prometheus.alerts()}
        scanners = "count(max by (scanner) (recovery_scanner_last_run_seconds)) == 5"
        for query in ("max(recovery_workers_alive) == 2", scanners):
            found[query] = not prometheus.ask(query)
        return {what: value for what, value in found.items() if value}

    try:
        wait_until(lambda: not missing(), 90, "a whole cluster")
    except AssertionError as error:
        error.add_note(f"missing: {missing()}")
        raise


def stays_silent(cluster: Cluster, prometheus: Prometheus, seconds: float = HEALTHY, windows: int = 6) -> None:
    """While processes are started and end, no alert's expression gives anything. Where other tests take the whole
    machine, a scrape may take longer than it may: then that was no healthy cluster, and the next seconds are looked at,
    some times."""
    for _ in range(windows):
        since = prometheus.now()

        def over(until: float = since + seconds) -> bool:
            cluster.app.result(cluster.app.start("steady", 4, 0.05), timeout=20)
            return prometheus.now() > until

        wait_until(over, seconds + 30, "some seconds of health")
        if not prometheus.ask_over("up == 0", since, prometheus.now(), 0.5):
            break
    try:
        was_silent(prometheus, since)
    except AssertionError as error:
        for one in prometheus.ask_over("scrape_duration_seconds", since, prometheus.now(), EVERY):
            error.add_note(f"{one.labels['instance']} took {[round(seconds, 2) for _, seconds in one.values]} s")
        for worker in cluster.stack.workers:
            error.add_note("\n".join([worker.name, *worker.last_lines(20)]))
        raise


def was_silent(prometheus: Prometheus, since: float) -> None:
    """From then until now no alert's expression gave anything."""
    until = prometheus.now()
    step = max(0.5, (until - since) / 5000)
    expressions = {alert: rule["expr"] for alert, rule in rules().items()}
    spoke = {alert: prometheus.ask_over(expr, since, until, step) for alert, expr in expressions.items()}
    assert {alert: series for alert, series in spoke.items() if series} == {}
    assert prometheus.ask_over("ALERTS", since, until, step) == []


def stir(cluster: Cluster) -> None:
    """A little of everything that counts something: a killed slot, a retry, a broken process, a refused start, a
    process past its time, a blocked actor, a call that the workers' code does not accept."""
    long = cluster.app.start("long", cluster.folder)
    cluster.app.start("retried", cluster.folder)
    hopeless = cluster.app.start("hopeless")
    newer = Recovery(cluster.settings)
    newer.process("steady")(lambda *_: None)
    newer.start("steady", 4, 0.05, "red")
    (slot,) = cluster.wait_began(1)
    os.kill(slot, signal.SIGKILL)
    cluster.wait_began(2)
    ActorOverrides(cluster.app.resources).block("never_called", "a test")
    cluster.app.resources.store.workers.note_spark()
    slowly = OperationRequest(kind="check", everything=True, rate=0.01, spark=False)
    operations.start(cluster.app.resources, slowly, "a test")
    wait_until(lambda: cluster.database["processes"].find_one({"_id": hopeless})["state"] == "broken", 20, "its end")
    cluster.app.result(cluster.app.start("starts_hopeless"), timeout=20)
    wait_until(lambda: "timedOutAt" in cluster.database["processes"].find_one({"_id": long}), 20, "its time to be over")
    cluster.go()
    cluster.app.result(long, timeout=20)


def shows(prometheus: Prometheus, one: Query) -> bool:
    """Whether a panel has something to draw, with the labels that its legend names."""
    labels = set(re.findall(r"\{\{(\w+)\}\}", one.legend))
    found = prometheus.ask(concrete(one.expr, rate_interval="40s", range_="1m"))
    # What is no single task's has no actor.
    return any(labels <= series.labels.keys() for series in found)
