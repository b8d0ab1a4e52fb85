"""What alerts say of a cluster, from what its metrics export: exactly what is wrong, and nothing that is not known.

The expressions are evaluated by `tests.metrics.alerts`; where Prometheus's own `promtool` is installed, by that too.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

from recovery.metrics import collectors
from recovery.metrics.collectors import ServerCollector
from recovery.queue import Broker
from recovery.records import ActorPreferences, Decision, DecisionState, Marker, ScannerRun, Worker
from recovery.records.schedule import Disabled, Schedule
from recovery.settings import Settings, load
from recovery.stack.server_process import free_port
from recovery.store import Store
from tests.emptied import emptied as emptied
from tests.emptied import lasting as lasting
from tests.metrics.alerts import RULES, Samples, firing, samples
from tests.store.writing import put

PROMTOOL = shutil.which("promtool")


@dataclass
class Cluster:
    """Whom a worker asks."""

    store: Store
    asked: Store
    broker: Broker


@pytest.fixture
def cluster(emptied: Settings) -> Cluster:
    """A cluster in which all is well: one actor, which is served; scanners run."""
    store = Store(emptied)
    store.actors.save([ActorPreferences(id="pack")])
    store.workers.beat(Worker(id="w", name="w", host="", pid=1, pid_started=1, queues=("pack",)), 60)
    for scanner in ("workers", "decisions", "graphs", "processes", "schedules"):
        store.scanners.note(ScannerRun(id=scanner), by_beat=True)
    return Cluster(store, store, Broker(emptied.broker_url))


def waits(cluster: Cluster, actor: str, count: int = 2) -> None:
    now = cluster.store.now()
    made = [Decision(id=f"p/{actor}{n}", actor=actor, state=DecisionState.QUEUED) for n in range(count)]
    put(
        cluster.store,
        *(one.evolve(queued_at=now - timedelta(hours=1), recovery_time=now + timedelta(1)) for one in made),
    )


def long_queue(cluster: Cluster) -> None:
    waits(cluster, "pack", 500)


def new_actor(cluster: Cluster) -> None:
    waits(cluster, "price_list")


def polled(cluster: Cluster, seconds: float) -> None:
    """The worker of an actor was there so long ago."""
    waits(cluster, "gone")
    moment = cluster.store.now() - timedelta(seconds=seconds)
    cluster.store.database["queues"].insert_one({"_id": "gone", "polledAt": moment})


def blocked(cluster: Cluster, seconds: float = 0.0) -> None:
    waits(cluster, "pack")
    since = cluster.store.now() - timedelta(seconds=seconds)
    cluster.store.database["actors"].update_one({"_id": "pack"}, {"$set": {"blockedAt": since}})


def schedule_disabled(cluster: Cluster) -> None:
    now = cluster.store.now()
    disabled = Disabled(process="p", code=40000, reason="failed", at=now, marker="pull")
    assert cluster.store.schedules.insert(
        Schedule(id="pull", type="pull", disabled=disabled, recovery_time=now + timedelta(1))
    )
    assert cluster.store.schedules.insert(Schedule(id="push", type="push"))


def all_dead(cluster: Cluster) -> None:
    """But for one that serves no actor: a sweep's, which exports metrics as well."""
    waits(cluster, "pack")
    cluster.store.workers.remove(["w"])


def no_beat(cluster: Cluster) -> None:
    hour_ago = cluster.store.now() - timedelta(hours=1)
    cluster.store.database["scanners"].update_many({}, {"$set": {"ranAt": hour_ago}})


def never_a_beat(cluster: Cluster) -> None:
    cluster.store.database["scanners"].delete_many({})


def mongodb_away(cluster: Cluster) -> None:
    waits(cluster, "price_list")
    cluster.asked = Store(load(mongo_uri=f"mongodb://127.0.0.1:{free_port()}"))


def redis_away(cluster: Cluster) -> None:
    cluster.broker = Broker(f"redis://127.0.0.1:{free_port()}/0")


def marked(cluster: Cluster) -> None:
    marker = Marker(id="order/7", type="order", key="7", kind="Away", process="p")
    assert cluster.store.markers.write(marker, cluster.store.now())


CASES: dict[str, tuple[Callable[[Cluster], None], dict[str, list[str]]]] = {
    "well": (lambda _: None, {}),
    "served, busy, a long queue": (long_queue, {}),
    "an actor that no worker knows": (new_actor, {"RecoveryWaitsForNobody": ["price_list"]}),
    "an actor whose worker may be restarting": (lambda c: polled(c, 3), {}),
    "an actor whose worker is gone": (lambda c: polled(c, 60), {"RecoveryWaitsForNobody": ["gone"]}),
    "blocked": (blocked, {"RecoveryActorBlocked": ["pack"]}),
    "blocked for long": (
        lambda c: blocked(c, 90_000), {"RecoveryActorBlocked": ["pack"], "RecoveryActorStaysBlocked": ["pack"]}
    ),
    "a schedule disabled": (schedule_disabled, {"RecoveryScheduleDisabled": ["pull"]}),
    "a marker": (marked, {"RecoveryMarkers": ["order"]}),
    "all workers dead": (all_dead, {"RecoveryNoWorkers": [""], "RecoveryWaitsForNobody": ["pack"]}),
    "no beat": (no_beat, {"RecoveryNobodyScans": ["workers", "decisions", "graphs", "processes", "schedules"]}),
    "never a beat": (never_a_beat, {"RecoveryNobodyScans": [""]}),
    "mongodb away": (mongodb_away, {"RecoveryMongoDBAway": [""]}),
    "redis away": (redis_away, {"RecoveryRedisAway": [""]}),
}  # fmt: skip


def scraped(cluster: Cluster, case: str, monkeypatch: pytest.MonkeyPatch) -> Samples:
    monkeypatch.setattr(collectors, "ASK_TIMEOUT", 0.3 if case == "mongodb away" else collectors.ASK_TIMEOUT)
    CASES[case][0](cluster)
    return samples(ServerCollector(cluster.asked, cluster.broker).collect())


@pytest.mark.parametrize("case", CASES)
def test_what_alerts_say(cluster: Cluster, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = scraped(cluster, case, monkeypatch)
    told = {name: sorted(labels) for name, labels in firing(found).items()}
    assert told == {name: sorted(labels) for name, labels in CASES[case][1].items()}


def test_nothing_is_exported() -> None:
    assert firing({}) == {"RecoveryNoWorkers": [""]}


def test_the_expressions_are_understood() -> None:
    """Else what does not fire above would prove nothing."""
    all_wrong: Samples = {
        ("recovery_mongodb_up", ()): 0,
        ("recovery_redis_up", ()): 0,
        ("recovery_workers_alive", ()): 0,
        ("recovery_oldest_overdue_seconds", (("record", "graphs"),)): 61,
        ("recovery_scanner_last_run_seconds", (("scanner", "graphs"),)): 61,
        ("recovery_queued_unserved", (("actor", "a"),)): 1,
        ("recovery_blocked_seconds", (("actor", "a"),)): 86401,
        ("recovery_schedules_disabled", (("type", "a"),)): 1,
        ("recovery_markers", (("type", "a"),)): 1,
        ("recovery_live_without_deadline", (("record", "graphs"),)): 1,
    }
    assert set(firing(all_wrong)) == {
        "RecoveryStuck", "RecoveryNoWorkers", "RecoveryMongoDBAway", "RecoveryRedisAway", "RecoveryWaitsForNobody",
        "RecoveryActorBlocked", "RecoveryActorStaysBlocked", "RecoveryNobodyScans", "RecoveryScheduleDisabled",
        "RecoveryMarkers", "RecoveryLiveWithoutDeadline",
    }  # fmt: skip


@pytest.mark.skipif(PROMTOOL is None, reason="Prometheus's promtool is not installed")
@pytest.mark.parametrize("case", CASES if PROMTOOL else ["all"])
def test_prometheus_says_the_same(cluster: Cluster, case: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """After two evaluations, 5 s apart; what waits for a minute by its `for` is not told by then."""
    found = scraped(cluster, case, monkeypatch)
    expected = {name: labels for name, labels in CASES[case][1].items() if name != "RecoveryNobodyScans"}
    series = [
        {
            "series": f"{name}{{{','.join(f'{key}={json.dumps(value)}' for key, value in labels)}}}",
            "values": f"{value}x4",
        }
        for (name, labels), value in found.items()
    ]
    tests = [
        {
            "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
            "eval_time": "10s",
            "exp_samples": [
                {"labels": f'{{alertname="{name}"}}', "value": len(labels)} for name, labels in expected.items()
            ],
        }
    ]
    document = {
        "rule_files": [str(RULES)],
        "evaluation_interval": "5s",
        "tests": [{"interval": "5s", "input_series": series, "promql_expr_test": tests}],
    }
    (tmp_path / "test.yml").write_text(json.dumps(document))  # JSON is YAML
    done = subprocess.run(
        [str(PROMTOOL), "test", "rules", "test.yml"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
