"""Work that waits for a worker that does not exist: doctor, status, check, show, metrics and alerts all tell, soon."""

from __future__ import annotations

import urllib.request
from typing import Any

import pytest
import redis
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner

from recovery import Recovery
from recovery.cli.main import app as command
from recovery.health import Check, doctor, examine
from recovery.stack import Mongod
from recovery.stack.server_process import free_port
from tests.cluster import newer
from tests.cluster.conftest import Cluster
from tests.metrics.alerts import Samples, firing, samples
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster

NEWER = "tests.cluster.newer:app"
SHORT: dict[str, Any] = {"heartbeat_interval": 0.5, "heartbeat_timeout": 2.0}
LONELY = "no worker serves price_list"
WITHIN = 10.0


def said(cluster: Cluster, *names: str) -> dict[str, Check]:
    """The doctor's checks of these names."""
    asked = [check for check in doctor.CHECKS if check[0] in {*names, "mongodb", "redis"}]
    return {check.name: check for check in examine(cluster.app.resources, asked)}


def scraped(port: int) -> Samples:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=WITHIN) as answer:
        return samples(text_string_to_metric_families(answer.read().decode()))


def told(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> str:
    """What a command prints."""
    for name, value in {**cluster.settings.environment(), "COLUMNS": "300"}.items():
        monkeypatch.setenv(name, value)
    return CliRunner().invoke(command, arguments).stdout


@pytest.mark.parametrize("changes", [SHORT, pytest.param({}, marks=pytest.mark.soak)], ids=["short", "default"])
def test_an_actor_that_workers_do_not_know(
    cluster: Cluster, mongod: Mongod, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then a Redis that forgets, a MongoDB that does not answer, no worker at all, and workers of the new version."""
    port = free_port()
    cluster.settings = cluster.settings.model_copy(update=changes)
    cluster.app = Recovery(cluster.settings)
    cluster.app.actors = newer.app.actors
    cluster.beat()
    old = cluster.worker(metrics_port=port)
    process_id = cluster.app.start("price_list", [1, 2])

    def doctor_tells() -> bool:
        return "no worker serves price_list (1 waiting" in said(cluster, "actors")["actors"].found

    wait_until(doctor_tells, WITHIN, "the doctor to tell of what waits for nobody")
    with redis.Redis.from_url(cluster.settings.broker_url) as broker:
        broker.flushdb()
    assert doctor_tells()
    for words in (("status",), ("show", process_id), ("check", process_id)):

        def lonely(words: tuple[str, ...] = words) -> bool:
            printed = told(cluster, monkeypatch, *words)
            assert "healthy" not in printed
            return LONELY in printed

        # Until the message is pushed again, commands report that it was lost with Redis' data.
        wait_until(lonely, WITHIN, f"{words[0]} to tell that nobody serves it")
    assert firing(scraped(port))["RecoveryWaitsForNobody"] == ["price_list"]

    mongod.freeze()
    # Within a second one still gets the answer that was made before.
    away = {"RecoveryMongoDBAway": [""]}
    wait_until(lambda: firing(scraped(port)) == away, WITHIN, "MongoDB's absence to be told, and nothing else")
    mongod.thaw()
    wait_until(lambda: "RecoveryMongoDBAway" not in firing(scraped(port)), 30, "MongoDB's return")

    old.kill_group()
    names = ("workers", "beat", "scanners")

    def told_dead() -> bool:
        found = {name: check.found for name, check in said(cluster, *names).items()}
        return (
            found["workers"].startswith("0 alive")
            and found["beat"].startswith("no worker is alive to take a nudge")
            and "none runs, since no worker is alive" in found["scanners"]
        )

    wait_until(told_dead, WITHIN, "the doctor to tell that all workers are dead")
    assert firing({}) == {"RecoveryNoWorkers": [""]}, "what is left to be scraped"

    cluster.stack.start_worker(NEWER, env=cluster.settings.environment())
    assert cluster.app.result(process_id, timeout=30) == [10, 20]
    wait_until(lambda: not {"PROBLEM"} & {c.level for c in said(cluster, "actors", *names).values()}, 30, "all is well")
