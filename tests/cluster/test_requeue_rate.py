"""An actor's `requeue_rate` is the whole cluster's: two workers that both scan requeue no more than one does."""

from __future__ import annotations

import pytest

from recovery.records import ActorPreferences
from tests.cluster.conftest import Cluster
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster

TASKS, RATE = 50, 10.0
LATE = 0.5
"""Seconds by which the moment that is written may be earlier: see `store.lifecycle.requeues.LATE`."""


def test_two_workers_requeue_ten_a_second(cluster: Cluster) -> None:
    """All are overdue at one moment. A second's worth may go at once, and then so many each second."""
    store = cluster.app.resources.store
    store.actors.save([ActorPreferences(id="one_slow")])
    store.actors.override("one_slow", {"requeue_rate": RATE})  # before a worker scans
    for _ in range(TASKS):
        cluster.app.start("one_slow", cluster.folder, 0)
    cluster.app.resources.broker.remove("one_slow")
    past = {"$subtract": ["$$NOW", 1000]}
    delayed = {"state": "delayed", "eta": past, "recoveryTime": past}
    cluster.database["decisions"].update_many({}, [{"$set": delayed}, {"$unset": "enqueuedAt"}])
    workers = [cluster.worker(scan_interval=0.2) for _ in range(2)]
    cluster.settings = cluster.settings.model_copy(update={"scan_interval": 0.2})
    cluster.beat()
    decisions, storm = cluster.database["decisions"], {"actor": "one_slow"}
    queued = {**storm, "enqueuedAt": {"$type": "date"}}
    scan, scanned = cluster.database["scanners"], set[str]()

    def all_are_queued() -> bool:
        scanned.update(one["worker"] for one in scan.find({"_id": "decisions", "worker": {"$ne": None}}))
        return decisions.count_documents(queued) == TASKS and len(scanned) == len(workers)

    wait_until(all_are_queued, 60, "all are queued, and both workers have scanned")
    moments = sorted(one["enqueuedAt"].timestamp() for one in decisions.find(queued))
    for first, begin in enumerate(moments):
        for last in range(first, TASKS):
            passed = moments[last] - begin
            assert last - first + 1 <= RATE + RATE * (passed + LATE), f"{last - first + 1} within {passed:.2f} s"
    assert moments[-1] - moments[0] >= (TASKS - RATE) / RATE - LATE
    assert moments[-1] - moments[0] < 3 * TASKS / RATE, "nor much less than the rate"
