"""What becomes of a worker whose actors do what none should."""

from __future__ import annotations

import os
import signal

import pytest

from recovery.errors import ProcessBroken
from tests.cluster import rogues
from tests.cluster.conftest import Cluster

pytestmark = pytest.mark.cluster

POOLS = ["prefork", "threads"]


@pytest.mark.parametrize("pool", POOLS)
def test_whatever_is_raised_is_the_tasks_error_and_its_slot_goes_on(cluster: Cluster, pool: str) -> None:
    """One slot, no beat: who ran before and after is the same, and nobody waited for a deadline."""
    cluster.serve(rogues)
    worker = cluster.worker(pool=pool)
    before = cluster.app.result(cluster.app.start("well"), timeout=20)
    for kind in rogues.RAISES:
        with pytest.raises(ProcessBroken, match=kind):
            cluster.app.result(cluster.app.start("one_that_fails", kind), timeout=20)
        assert kind in cluster.log(worker)
    assert cluster.app.result(cluster.app.start("well"), timeout=20) == before
    assert cluster.database["decisions"].count_documents({"timeouts": {"$gt": 0}}) == 0


def test_a_pool_process_that_is_told_to_end_is_no_error_of_its_task(cluster: Cluster) -> None:
    """Its parent ends it so, and the kernel's tools do: its task is another's then, at once."""
    cluster.worker()
    process_id = cluster.app.start("one_slow", cluster.folder, 600)
    (child,) = cluster.wait_began(1)
    os.kill(child, signal.SIGTERM)
    cluster.wait_began(2, timeout=5)
    cluster.go()
    assert cluster.app.result(process_id, timeout=20) == cluster.began()[1]
    assert cluster.decision("slow")["timeouts"] == 1
