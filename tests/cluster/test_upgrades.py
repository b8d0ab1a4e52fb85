"""A new version of an application is deployed while its processes run: in the documented order, and in its reverse."""

from __future__ import annotations

from typing import Any

import pytest

from recovery.stack import ChildProcess
from tests.cluster import first_version, second_version
from tests.cluster.conftest import Cluster
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster

PART = 100
"""Processes that are started between two steps of a deployment, of which there are three."""


class Deployment:
    """Workers that have the caller, others that have the callee, and the processes that go through both."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.ids, self.workers = cluster, list[str](), list[ChildProcess]()
        self.caller, self.callee = self.worker(first_version, "order"), self.worker(first_version, "charge")
        self.workers_are(("1.0", "order"), ("1.0", "charge"))
        cluster.beat()

    def worker(self, version: Any, queue: str) -> ChildProcess:
        self.cluster.serve(version)
        settings = self.cluster.settings.model_copy(update={"shutdown_grace": 0.1})
        worker = self.cluster.stack.start_worker(
            f"{version.__name__}:app", concurrency=1, queues=[queue], env=settings.environment()
        )
        self.workers.append(worker)
        return worker

    def workers_are(self, *versions_and_queues: tuple[str, str]) -> None:
        """Wait until workers of these versions live which serve these queues."""
        workers = self.cluster.database["workers"]

        def live() -> bool:
            queries = ({"applicationVersion": version, "queues": queue} for version, queue in versions_and_queues)
            return all(workers.count_documents(query) for query in queries)

        wait_until(live, 30, "workers")

    def start(self) -> None:
        """Start processes, and wait until a worker has called their callers."""
        calls = [(self.cluster.folder, len(self.ids) + number) for number in range(PART)]
        self.ids += [one.id for one in self.cluster.app.start_many("order", calls)]
        tasks = {"actor": "charge"}
        wait_until(lambda: self.cluster.database["tasks"].count_documents(tasks) == len(self.ids), 30, "their calls")

    def replace_caller(self) -> None:
        old, self.caller = self.caller, self.worker(second_version, "order")
        self.workers_are(("2.0", "order"))
        old.stop()

    def replace_callee(self) -> None:
        old, self.callee = self.callee, self.worker(second_version, "charge")
        self.workers_are(("2.0", "charge"))
        old.stop()

    def ends(self, euros: int) -> None:
        """All processes finish: of the first so many the caller was old."""
        self.cluster.go()
        by_state = self.cluster.database["processes"]
        finished = {"state": "finished"}
        wait_until(lambda: by_state.count_documents(finished) == len(self.ids), 60, "the end of all processes")
        currencies = ["EUR"] * euros + ["SEK"] * (len(self.ids) - euros)
        expected = {
            key: f'"{number} {one}"' for number, (key, one) in enumerate(zip(self.ids, currencies, strict=True))
        }
        assert {one["_id"]: one["result"] for one in by_state.find({}, {"result": True})} == expected
        attempts = self.cluster.database["decisions"].count_documents({"timeouts": {"$gt": 0}})
        assert attempts == 0

    @property
    def refused(self) -> list[dict[str, Any]]:
        """The tasks that wait for a newer worker."""
        return list(self.cluster.database["decisions"].find({"refused": {"$exists": True}}))

    def tell_of_refusals(self) -> list[str]:
        """The workers that gave tasks back."""
        return [one.name for one in self.workers if "waits for a newer worker" in self.cluster.log(one)]


@pytest.fixture
def deployment(cluster: Cluster) -> Deployment:
    return Deployment(cluster)


def test_callee_first_then_caller(deployment: Deployment) -> None:
    deployment.start()
    deployment.replace_callee()
    deployment.start()
    deployment.replace_caller()
    deployment.start()
    deployment.ends(euros=2 * PART)
    assert deployment.tell_of_refusals() == []


def test_caller_first_breaks_nothing_and_waits_for_the_callee(deployment: Deployment) -> None:
    deployment.start()
    deployment.replace_caller()
    deployment.start()
    deployment.cluster.go()
    wait_until(lambda: len(deployment.refused) > PART // 2, 30, "refusals")
    old = deployment.callee
    assert {one["refused"]["by"][0]["version"] for one in deployment.refused} == {"1.0"}
    deployment.replace_callee()
    deployment.start()
    deployment.ends(euros=PART)
    assert deployment.refused == []
    assert deployment.tell_of_refusals() == [old.name]
