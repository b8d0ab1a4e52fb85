"""Two versions of an application on real workers: a rolling upgrade, a rollback, and pinned processes."""

from __future__ import annotations

import json

import pytest

from recovery import Recovery
from recovery.health import versions
from recovery.health.model import Cause, Level
from recovery.health.versions import live_versions
from recovery.stack import ChildProcess
from tests.cluster import versioned
from tests.cluster.conftest import Cluster
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster

MANY = 5
"""Processes that are started between two steps of a deployment."""


class Deployment:
    """Workers of versions of one application, and a client of the first version."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.ids = cluster, list[str]()
        self.client = Recovery(cluster.settings, version="1.0")
        self.client.actors = versioned.app.actors
        self.store = self.client.resources.store
        cluster.serve(versioned)
        cluster.beat()

    def worker(self, version: str, compatible: str = "") -> ChildProcess:
        settings = self.cluster.settings.model_copy(update={"shutdown_grace": 0.1})
        env = {**settings.environment(), versioned.VERSION: version, versioned.COMPATIBLE: compatible}
        child = self.cluster.stack.start_worker(f"{versioned.__name__}:app", concurrency=1, env=env)
        wait_until(lambda: self.cluster.database["workers"].count_documents({"pid": child.pid}), 30, "a worker")
        return child

    def start(self, kind: str) -> None:
        self.ids += [one.id for one in self.client.start_many(kind, [(self.cluster.folder,)] * MANY)]

    def results(self) -> list[list[str]]:
        """The versions that ran the tasks of each process, once all have finished, in the order of their starts."""
        found = self.cluster.database["processes"]
        ended = {"_id": {"$in": self.ids}, "state": "finished"}
        wait_until(lambda: found.count_documents(ended) == len(self.ids), 60, "the end of all processes")
        return [json.loads(one["result"]) for one in found.find(ended).sort("_id", 1)]

    def newest(self) -> str | None:
        (newest,) = (one.version for one in live_versions(self.store.overview.workers_alive()) if one.is_newest)
        return newest


@pytest.fixture
def deployment(cluster: Cluster) -> Deployment:
    return Deployment(cluster)


def test_a_rolling_upgrade_and_a_rollback(deployment: Deployment) -> None:
    cluster, old = deployment.cluster, deployment.worker("1.0")
    deployment.start("free")
    cluster.wait_began(1)
    new = deployment.worker("2.0")
    assert deployment.newest() == "2.0"
    cluster.wait_began(2)  # both versions run tasks side by side
    old.stop()  # what it ran is given back
    cluster.go()
    assert {version for versions in deployment.results() for version in versions} == {"2.0"}
    cluster.stop_going()
    deployment.start("free")
    cluster.wait_began(MANY + 2)
    old = deployment.worker("1.0")
    assert deployment.newest() == "1.0", "it was rolled back to"
    new.stop()
    cluster.go()
    assert {version for versions in deployment.results()[MANY:] for version in versions} == {"1.0"}
    decisions = deployment.cluster.database["decisions"]
    assert decisions.count_documents({"timeouts": {"$gt": 0}}) == 0
    assert decisions.count_documents({"version": "1.0", "actor": "step"}) == MANY
    assert old.running


def test_pinned_processes_while_another_version_is_deployed(deployment: Deployment) -> None:
    cluster, resources = deployment.cluster, deployment.client.resources
    old = deployment.worker("1.0")
    deployment.worker("2.0")
    cluster.go()
    deployment.start("pinned")
    assert deployment.results() == [["1.0"] * 3] * MANY
    old.stop()
    deployment.start("pinned")

    def named() -> bool:
        deployment.store.catch_up(5)
        return versions.pins(resources).cause is Cause.PINNED_UNSERVED

    wait_until(named, 30, "the doctor says so")
    running = {"state": "running", "pinned": True}
    assert cluster.database["processes"].count_documents(running) == MANY
    deployment.worker("2.1", compatible="1.0 2.0")
    assert deployment.results() == [["1.0"] * 3] * MANY + [["2.1"] * 3] * MANY
    assert cluster.database["decisions"].distinct("pinnedTo") == ["1.0"]
    deployment.store.catch_up(5)
    assert versions.pins(resources).level is Level.OK
