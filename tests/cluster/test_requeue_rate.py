"""An actor's `requeue_rate` is the whole cluster's: two workers that both scan requeue no more than one does."""

from __future__ import annotations

from datetime import timedelta

import pytest

from recovery.records import ActorPreferences
from tests.cluster.conftest import Cluster
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster

TASKS, RATE = 60, 10.0
ARRIVE = 25.0
"""Tasks that fall overdue in a second, so that each scan finds some that no scan has seen."""
LEAD = 5.0
"""Seconds until the first does: both workers are there by then."""
APART = 1.0
"""Seconds by which two moments that are written may be nearer to each other than they were: each is off by up to half
of it (`store.lifecycle.requeues.LATE`)."""


def test_two_workers_requeue_ten_a_second(cluster: Cluster) -> None:
    """They fall overdue faster than that. A second's worth may go at once, and then so many each second."""
    store = cluster.app.resources.store
    store.actors.save([ActorPreferences(id="one_slow")])
    store.actors.override("one_slow", {"requeue_rate": RATE})  # before a worker scans
    for _ in range(TASKS):
        cluster.app.start("one_slow", cluster.folder, 0)
    cluster.app.resources.broker.remove("one_slow")
    now = store.now()
    for place, one in enumerate(cluster.database["decisions"].find()):
        due = now + timedelta(seconds=LEAD + place / ARRIVE)
        change = {"$set": {"state": "delayed", "eta": due, "recoveryTime": due}, "$unset": {"enqueuedAt": True}}
        cluster.database["decisions"].update_one({"_id": one["_id"]}, change)
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
            most = RATE + RATE * (passed + APART)
            assert last - first + 1 <= most, [round(moment - moments[0], 2) for moment in moments]
    assert moments[-1] - moments[0] >= (TASKS - RATE) / RATE - APART
    assert moments[-1] - moments[0] < 3 * TASKS / RATE, "nor much less than the rate"
