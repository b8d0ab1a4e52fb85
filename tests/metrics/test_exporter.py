"""Metrics over HTTP: of a whole prefork worker, of the cluster, and when servers are away."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from recovery import Recovery, Settings, metrics_folder
from recovery.demo.app import APP, collect, workflow, workflow_task
from recovery.errors import PortTaken
from recovery.metrics import collectors, exporter
from recovery.queue import Broker
from recovery.records import Worker
from recovery.settings import load
from recovery.stack import Stack
from recovery.stack.server_process import free_port
from recovery.store import Store, layout, schema
from recovery.wfformat.workload import PROCESS
from tests.waiting import wait_until

Sample = tuple[str, tuple[tuple[str, str], ...]]


@pytest.fixture
def measured(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Settings:
    # Set by whoever imports `workers`; this process may have done so before, and counts in its own memory all the same.
    monkeypatch.delenv("PROMETHEUS_MULTIPROC_DIR", raising=False)
    return settings.model_copy(update={"metrics_port": free_port()})


@pytest.fixture
def served(measured: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setattr(collectors, "KEPT", 0.0)
    store = Store(measured)
    layout.create(store.database)
    server = exporter.serve(measured, store, Broker(measured.broker_url))
    assert server is not None
    with server:
        yield store
        server.shutdown()


def scrape(settings: Settings) -> dict[Sample, float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{settings.metrics_port}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_all_processes_of_a_prefork_worker_are_counted(stack: Stack, measured: Settings, tmp_path: Path) -> None:
    """Attempts run in the pool's processes, and the parent is asked."""
    env = measured.environment() | {"PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    worker = stack.start_worker(APP, concurrency=3, env=env)
    app = Recovery(measured)
    app.actors = {actor.name: actor for actor in (workflow, workflow_task, collect)}  # type: ignore[dict-item]
    wait_until(lambda: app.resources.store.workers.all() or not worker.running, 30, "the worker")
    tasks = [[str(number), [], 0.05] for number in range(12)]
    process_id = app.start(PROCESS, tasks, 1.0)
    assert app.result(process_id, timeout=30)["count"] == 12

    def attempts(actor: str) -> float:
        return scrape(measured).get(("recovery_attempts_total", (("actor", actor), ("outcome", "finished"))), 0)

    names = ("workflow", "workflow_task", "collect")
    wait_until(lambda: [attempts(name) for name in names] == [1, 12, 1], 10, "what was counted")
    found = scrape(measured)
    assert found["recovery_workers_alive", ()] == 1
    lost = (("actor", "collect"), ("rule", "WORKER_LOST"))
    assert found["recovery_findings_total", lost] == 0, "there before the first one, which is else no increase"
    assert found["recovery_queue_depth", (("queue", "collect"),)] == 0
    assert found["recovery_processes_ended_total", (("state", "finished"), ("type", "workflow"))] == 1
    counted = {file.stem.rpartition("_")[2] for file in tmp_path.glob("counter_*.db")}
    places = {f"{worker.pid}-{place}" for place in range(3)}
    assert len(counted & places) > 1, "more than one process must have counted"


def test_what_is_overdue(served: Store, measured: Settings) -> None:
    assert overdue(measured) == {"decisions": 0, "graphs": 0, "processes": 0, "schedules": 0}
    served.database[schema.GRAPHS].update_one(
        {"_id": "p"},
        [{"$set": {"recoveryTime": {"$subtract": ["$$NOW", 90_000]}, "notFinished": {"t": "$$NOW"}}}],
        upsert=True,
    )
    found = overdue(measured)
    assert (found["decisions"], found["processes"]) == (0, 0)
    assert 90 <= found["graphs"] < 100


def test_only_workers_that_live_are_counted(served: Store, measured: Settings) -> None:
    for name, timeout in (("alive", 60.0), ("dead", -1.0)):
        served.workers.beat(Worker(id=name, name=name, host="", pid=1, pid_started=1), timeout)
    assert scrape(measured)["recovery_workers_alive", ()] == 1


def overdue(settings: Settings) -> dict[str, float]:
    return {
        dict(labels)["record"]: value
        for (name, labels), value in scrape(settings).items()
        if name == "recovery_oldest_overdue_seconds"
    }


def test_port_in_use(measured: Settings) -> None:
    taken = socket.create_server(("127.0.0.1", measured.metrics_port or 0))
    with taken, pytest.raises(PortTaken, match="RECOVERY_METRICS_PORT"):
        exporter.serve(measured, Store(measured), Broker(measured.broker_url))


def test_without_a_port_each_worker_takes_one_that_is_free(
    measured: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Until none is left: then it works without."""
    first, second = sorted((free_port(), free_port()))
    monkeypatch.setattr(exporter, "PORTS", [first, second])
    settings, broker = measured.model_copy(update={"metrics_port": None}), Broker(measured.broker_url)
    servers = [exporter.serve(settings, Store(settings), broker) for _ in range(3)]
    ports = [server.server_port for server in servers if server is not None]
    for server in servers:
        if server is not None:
            server.shutdown()
            server.server_close()
    assert ports == [first, second] and servers[2] is None
    assert "are in use; set RECOVERY_METRICS_PORT" in caplog.text


def test_none_are_served_where_they_are_off(measured: Settings) -> None:
    settings = measured.model_copy(update={"metrics_port": metrics_folder.OFF})
    assert exporter.serve(settings, Store(settings), Broker(settings.broker_url)) is None


def test_address_of_another_machine(measured: Settings) -> None:
    elsewhere = measured.model_copy(update={"metrics_host": "192.0.2.1"})
    with pytest.raises(PortTaken, match="RECOVERY_METRICS_HOST"):
        exporter.serve(elsewhere, Store(measured), Broker(measured.broker_url))


class NoDepths:
    def check(self) -> None:
        """It answers."""

    def depths(self, queues: Iterable[str]) -> Mapping[str, int]:
        raise ConnectionError(f"no depths of {queues}")


def test_without_redis_the_rest_is_served(measured: Settings) -> None:
    store = Store(measured)
    layout.create(store.database)
    store.database[schema.ACTORS].insert_one({"_id": "an_actor"})
    with exporter.serve(measured, store, NoDepths()) as server:
        found = scrape(measured)
        server.shutdown()
    assert ("recovery_workers_alive", ()) in found
    assert found["recovery_queued_unserved", (("actor", "an_actor"),)] == 0
    assert not any(name == "recovery_queue_depth" for name, _ in found)


def test_without_mongodb_the_rest_is_served(measured: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collectors, "ASK_TIMEOUT", 0.2)
    away = load(mongo_uri=f"mongodb://127.0.0.1:{free_port()}")
    with exporter.serve(measured, Store(away), Broker(measured.broker_url)) as server:
        found = scrape(measured)
        server.shutdown()
    assert (found["recovery_mongodb_up", ()], found["recovery_redis_up", ()]) == (0, 1)
    assert not any(name == "recovery_workers_alive" for name, _ in found)


@pytest.mark.soak
def test_a_thousand_scrapes_ask_the_servers_no_more_than_one(measured: Settings) -> None:
    """However many connections at once: one asks, and all have its answer; the next one asks a moment later."""
    asked_at: list[float] = []
    at_once = threading.Barrier(12)

    class Counting(NoDepths):
        def check(self) -> None:
            asked_at.append(time.monotonic())

    def ask() -> list[float]:
        at_once.wait(10)
        return [scrape(measured)["recovery_redis_up", ()] for _ in range(10)]

    with exporter.serve(measured, Store(measured), Counting()) as server, ThreadPoolExecutor(12) as clients:
        begun = time.monotonic()
        for answers in [clients.submit(ask) for _ in range(12)]:
            assert answers.result(30) == [1] * 10
        lasted = time.monotonic() - begun
        server.shutdown()
    assert 1 <= len(asked_at) <= 1 + lasted / collectors.KEPT
    assert all(later - earlier >= collectors.KEPT for earlier, later in pairwise(asked_at))


@pytest.mark.thorough
def test_an_answer_is_kept_no_longer_than_a_moment(measured: Settings) -> None:
    with exporter.serve(measured, Store(measured), Broker(measured.broker_url)) as server:
        scrape(measured)
        Store(measured).workers.beat(Worker(id="new", name="new", host="", pid=1, pid_started=1), 60.0)
        wait_until(lambda: scrape(measured)["recovery_workers_alive", ()] == 1, 3 * collectors.KEPT, "the new worker")
        server.shutdown()


@pytest.mark.thorough
@pytest.mark.usefixtures("served")
@pytest.mark.parametrize(
    "accept",
    ["application/openmetrics-text;version=abc", "text/plain;version=1.0;escaping=\x1b[31m", "*" * 60_000],
    ids=["version", "escaping", "long"],
)
def test_what_a_client_asks_for_is_no_line_of_the_log_each(
    measured: Settings, accept: str, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody has to log in."""
    for _ in range(20):
        asked = urllib.request.Request(f"http://127.0.0.1:{measured.metrics_port}/metrics", headers={"Accept": accept})
        with contextlib.suppress(urllib.error.HTTPError), urllib.request.urlopen(asked, timeout=10) as answer:
            answer.read()
    assert capfd.readouterr().err == ""
    assert len(caplog.messages) <= 2 and "Traceback" not in caplog.text
