"""A drill on real workers, which it really kills, and what it says where something is wrong."""

from __future__ import annotations

import signal
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from prometheus_client import REGISTRY
from prometheus_client.parser import text_string_to_metric_families

from recovery.drill import drilling as run
from recovery.drill.drill_report import DrillReport
from recovery.drill.drilling import DrillPlan
from recovery.drill.sightings import ProbeOutcome, PromisedTime
from recovery.errors import ServerUnavailable
from recovery.records.ids import CANARY
from recovery.stack.server_process import free_port
from recovery.store import schema
from tests.cli import schemas
from tests.cli.command import ROOT, command, environment, recovery
from tests.cluster.conftest import Cluster
from tests.living import lives
from tests.metrics.alerts import Samples, samples
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster

KILLS = {"drill_kill": True}


def outcomes(report: DrillReport) -> dict[str, str]:
    """{step: what came of it}; on a busy machine what is promised may come late."""
    return {one.step.value: "failed" if one.outcome is ProbeOutcome.FAILED else "came" for one in report.steps}


def wait_only(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """What is not there so soon after its time never comes."""

    def patience(promise: PromisedTime) -> float:
        return promise.seconds + seconds

    monkeypatch.setattr(run, "patience", patience)


def counts(scraped: Samples, name: str, step: str) -> float:
    return sum(value for (found, labels), value in scraped.items() if found == name and ("step", step) in labels)


def nothing_left(cluster: Cluster) -> bool:
    return not any(cluster.database[name].count_documents({}) for name in schema.OF_PROCESSES)


def test_on_a_cluster_that_is_well(cluster: Cluster) -> None:
    """Each worker takes part, also one of some queues; one that has it switched off is told, and nothing is left."""
    cluster.beat()
    for _ in range(2):
        cluster.worker(wait=False, concurrency=2)
    cluster.stack.start_worker("tests.cluster.app:app", queues=["slow"], env=cluster.settings.environment())
    cluster.worker(wait=False, canary=False)
    wait_until(lambda: cluster.database["workers"].count_documents({}) == 4, 30, "all workers")
    assert cluster.database["workers"].count_documents({"queues": CANARY}) == 3
    done = recovery("drill", "--processes", "4", "--json", env=cluster.settings.environment())
    assert done.returncode in (0, 1), done.stderr
    found = schemas.read("drill", done.stdout)
    assert done.returncode == (0 if found["good"] else 1), done.stderr
    assert [one["step"] for one in found["steps"]] == ["start", "step", "delay", "lost_claim"]
    assert [one["probes"] for one in found["steps"]][1:] == [12, 4, 4]
    assert not any(one["failed"] for one in found["steps"])
    # A claim that is dropped is over after two seconds; what is delayed begins after its time.
    assert all(one["longest"] >= 0 for one in found["steps"]) and found["seconds"] > 2
    assert [(one["serves"], one["canaries"] > 0) for one in found["workers"]] == [(True, True)] * 3 + [(False, False)]
    assert (found["left"], found["notes"]) == (0, [])
    assert nothing_left(cluster)
    assert cluster.database["auditLog"].count_documents({}) == 0


@pytest.mark.soak
def test_workers_that_took_none_are_called(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where others were quicker, all the time: of the rounds there are none here."""
    monkeypatch.setattr(run._Drill, "_rounds", lambda _: None)
    for _ in range(2):
        cluster.worker(wait=False)
    wait_until(lambda: cluster.database["workers"].count_documents({"queues": CANARY}) == 2, 30, "both workers")
    found = run.run(cluster.app.resources, DrillPlan())
    assert [one.canaries > 0 for one in found.workers] == [True, True]
    assert all(one.ended for one in found.canaries) and nothing_left(cluster)


def test_a_store_that_takes_no_calls(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who took no canary is told as such, and the drill ends."""

    def away(*_: Any, **__: Any) -> None:
        raise ServerUnavailable("MongoDB is away")

    monkeypatch.setattr(run._Drill, "_rounds", lambda _: None)
    monkeypatch.setattr(run, "CALL_TIMEOUT", 0.3)
    monkeypatch.setattr(run.Flock, "start", away)
    cluster.worker()
    found = run.run(cluster.app.resources, DrillPlan())
    assert [one.canaries for one in found.workers] == [0]
    assert outcomes(found) == {"start": "failed"} and not found.good


def test_kills(cluster: Cluster) -> None:
    cluster.settings = cluster.settings.model_copy(update=KILLS)
    cluster.beat()
    workers = [cluster.worker() for _ in range(2)]
    found = run.run(cluster.app.resources, DrillPlan(processes=1, kill=True, why="a test"))
    assert outcomes(found) == dict.fromkeys(
        ("start", "step", "delay", "lost_claim", "killed_slot", "killed_worker"), "came"
    )
    (dead,) = [one for one in workers if not one.running]
    assert dead.exit_code == -signal.SIGKILL
    assert [one.killed for one in found.workers if one.name.startswith(f"{dead.name}@")] == [True]
    assert sum(one.killed for one in found.workers) == 1
    victims = [one.tasks["start"].first_holder or "" for one in found.canaries if one.victim is not None]
    assert len(set(victims)) == 2 and all(victims)
    assert not any(lives(int(holder.rpartition("#")[2])) for holder in victims)
    assert cluster.app.resources.store.hung.freed() == []
    assert nothing_left(cluster)
    entry = cluster.database["auditLog"].find_one()
    assert entry is not None and (entry["what"], entry["why"], entry["outcome"]) == ("drill", "a test", "done")


def test_without_the_right_to_kill_nobody_dies(cluster: Cluster) -> None:
    """One that may not be killed is among them: it is refused before anything is started; and the same without a
    terminal and a yes."""
    cluster.worker(**KILLS)
    cluster.worker()
    env = cluster.settings.environment()
    refused = recovery("drill", "--kill", "--yes", env=env)
    assert refused.returncode == 2 and "RECOVERY_DRILL_KILL=true" in refused.stderr
    asked = recovery("drill", "--kill", env=env)
    assert asked.returncode == 2 and "add --yes" in asked.stderr
    assert all(one.running for one in cluster.stack.workers) and nothing_left(cluster)


@pytest.mark.soak
def test_threads_are_not_killed_one_by_one(cluster: Cluster) -> None:
    cluster.settings = cluster.settings.model_copy(update=KILLS)
    cluster.beat()
    for _ in range(2):
        cluster.worker(pool="threads")
    found = run.run(cluster.app.resources, DrillPlan(processes=1, kill=True))
    assert "killed_slot" not in outcomes(found) and outcomes(found)["killed_worker"] == "came"
    assert [note for note in found.notes if "its pool is of threads" in note]
    assert sum(one.running for one in cluster.stack.workers) == 1


@pytest.mark.soak
def test_a_scanner_that_is_off(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: nobody finds what is overdue. What needs no scanner is as ever."""
    wait_only(monkeypatch, 1.0)
    cluster.beat()
    cluster.worker(scanners=False)
    found = run.run(cluster.app.resources, DrillPlan(processes=2))
    assert outcomes(found) == {"start": "came", "step": "came", "delay": "failed", "lost_claim": "failed"}
    assert not found.good and found.left == 0 and nothing_left(cluster)
    assert any("had not ended" in note for note in found.notes)


@pytest.mark.soak
def test_a_scanner_that_comes_late(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: for a second longer than what is promised there is no beat."""
    wait_only(monkeypatch, 60.0)  # a beat takes a while to start
    cluster.worker()

    def overdue() -> bool:
        late = cluster.app.resources.store.now() - timedelta(seconds=2.5)
        query = {"actor": CANARY, "state": {"$in": ["delayed", "working"]}, "recoveryTime": {"$lt": late}}
        return cluster.database["decisions"].count_documents(query) == 2

    found: list[DrillReport] = []
    drill = threading.Thread(target=lambda: found.append(run.run(cluster.app.resources, DrillPlan(processes=1))))
    drill.start()
    wait_until(overdue, 30, "a delay and a claim that are over")
    cluster.beat()
    drill.join(90)
    steps = {one.step.value: one for one in found[0].steps}
    for step in ("delay", "lost_claim"):
        assert steps[step].outcome is ProbeOutcome.LATE and steps[step].seconds[-1] > 2.5
    assert not found[0].good


@pytest.mark.soak
def test_what_was_killed_and_is_not_requeued(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: workers that act on nothing at once, though the settings say that they do."""
    wait_only(monkeypatch, 1.0)
    quick = {"heartbeat_interval": 0.5, "heartbeat_timeout": 1.5}
    cluster.settings = cluster.settings.model_copy(update={**KILLS, **quick})
    cluster.app._settings = cluster.settings
    cluster.beat()
    for _ in range(2):
        cluster.worker(events=False)
    found = run.run(cluster.app.resources, DrillPlan(processes=1, kill=True))
    assert outcomes(found)["killed_slot"] == outcomes(found)["killed_worker"] == "failed"
    assert outcomes(found)["lost_claim"] == "came"


@contextmanager
def under_way(cluster: Cluster, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A drill that goes on until it is stopped: without a beat no delay ends."""
    env = environment(cluster.settings.environment())
    with subprocess.Popen(command("drill", *arguments), env=env, cwd=ROOT, stderr=subprocess.PIPE, text=True) as drill:
        delayed = {"actor": CANARY, "state": "delayed"}
        wait_until(lambda: cluster.database["decisions"].count_documents(delayed) == 3, 30, "canaries")
        yield drill
        drill.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.soak)])
def test_stopped_it_leaves_nothing(cluster: Cluster, number: signal.Signals) -> None:
    cluster.worker()
    with under_way(cluster, "--processes", "3") as drill:
        drill.send_signal(number)
        assert drill.wait(30) == 128 + number
        assert drill.stderr is not None and "its canaries are removed" in drill.stderr.read()
    assert nothing_left(cluster)


@pytest.mark.soak
def test_killed_its_canaries_end_by_themselves_and_are_removed_by_the_next(cluster: Cluster) -> None:
    cluster.worker()
    with under_way(cluster, "--processes", "3") as drill:
        drill.kill()
    processes = cluster.database["processes"]
    old = cluster.app.resources.store.now() - timedelta(hours=1)
    processes.update_many({}, {"$set": {"startedAt": old, "recoveryTime": old}})
    # Delays that end only long after: nobody is there who could bring them to an end.
    cluster.database["decisions"].update_many(
        {"state": {"$in": ["delayed", "working"]}}, {"$set": {"recoveryTime": old + timedelta(days=9), "eta": None}}
    )
    cluster.beat()
    wait_until(lambda: processes.count_documents({"state": "broken"}) == 3, 30, "the end of their time")
    found = run.run(cluster.app.resources, DrillPlan(processes=1))
    assert "removed 3 canaries of interrupted drills" in found.notes
    assert nothing_left(cluster)


@pytest.mark.soak
def test_a_probe_and_its_metrics(cluster: Cluster) -> None:
    port = free_port()
    cluster.beat()
    cluster.worker()
    env = environment({**cluster.settings.environment(), "RECOVERY_METRICS_PORT": str(port)})
    watching = command("drill", "--watch", "--every", "10s", "--processes", "2", "--json")
    with subprocess.Popen(watching, env=env, cwd=ROOT, stdout=subprocess.PIPE, text=True) as drill:
        assert drill.stdout is not None
        first = schemas.read("drill", drill.stdout.readline())
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            scraped = samples(text_string_to_metric_families(answer.read().decode()))
        drill.terminate()
        assert drill.wait(30) == 128 + signal.SIGTERM
    by_step = {one["step"]: one["probes"] for one in first["steps"]}
    counted = {step: counts(scraped, "recovery_drill_probes_total", step) for step in by_step}
    assert counted == by_step == {step: counts(scraped, "recovery_drill_seconds_count", step) for step in by_step}
    assert cluster.database["leftCounts"].count_documents({}) == 0, "it was scraped"
    assert scraped["recovery_workers_alive", ()] == 1, "as a worker's: what the servers say is there, too"


def test_a_probe_without_a_worker_counts_a_start_that_failed(cluster: Cluster) -> None:
    labels = {"step": "start", "outcome": "failed"}
    before = REGISTRY.get_sample_value("recovery_drill_probes_total", labels) or 0
    said: list[str] = []
    shown: list[Any] = []
    assert run.run_once(cluster.app.resources, DrillPlan(), shown.append, said.append) is None
    assert REGISTRY.get_sample_value("recovery_drill_probes_total", labels) == before + 1
    assert said and "no worker is alive" in said[0] and not shown


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--every", "1m"], "--every 1m: goes with --watch"),
        (["--watch", "--every", "1s"], "--every 1s: must be 10s to 3m"),
        (["--yes"], "--yes: goes with --kill"),
        (["--processes", "0"], "--processes 0: must be 1 to 1,000"),
        ([], "no worker is alive in database"),
    ],
)
def test_what_is_refused(cluster: Cluster, options: list[str], told: str) -> None:
    done = recovery("drill", *options, env=cluster.settings.environment())
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ") and told in done.stderr
