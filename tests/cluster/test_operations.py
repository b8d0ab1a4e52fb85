"""Operations on real workers, one of which is killed in the middle of one."""

from __future__ import annotations

import pytest

from recovery import operations
from recovery.operations import OperationRequest
from recovery.records import OperationState
from tests.cluster.conftest import Cluster
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster

COUNT, RATE = 80, 20.0


def test_a_killed_worker_is_followed_by_another(cluster: Cluster) -> None:
    """Within seconds, since somebody sees that it is gone; its lease would have lasted 30 s."""
    quick = {"heartbeat_interval": 0.5, "heartbeat_timeout": 1.5}
    cluster.settings = cluster.settings.model_copy(update=quick)
    cluster.beat()
    doomed = cluster.worker()
    started = [cluster.app.start("one_slow", cluster.folder, 600) for _ in range(COUNT)]
    resources = cluster.app.resources
    operation = operations.start(resources, OperationRequest("abort", "type:one_slow", rate=RATE, apply=True), "a test")
    processes = cluster.database["processes"]
    aborted = {"_id": {"$in": started}, "state": "aborted"}
    wait_until(lambda: processes.count_documents(aborted) >= RATE, 60, "the first to be aborted")
    doomed.kill_group()
    assert processes.count_documents(aborted) < COUNT
    survivor = cluster.worker()

    def finished() -> bool:
        return operations.find(resources, operation.id).state is OperationState.FINISHED

    assert cluster.beats_until(survivor, finished, "the operation to be finished", timeout=60) <= 40, "20 s or so"
    totals = operations.find(resources, operation.id).applied
    assert totals is not None
    assert (totals.processes, totals.found, totals.done, totals.errors) == (COUNT, COUNT, COUNT, 0)
    assert processes.count_documents({**aborted, "epoch": 1}) == COUNT, "each of them once"
    leases = [part["leases"] for part in cluster.database["operationRanges"].find({"phase": "apply"})]
    assert max(leases) >= 2, "who was killed had leased one"
