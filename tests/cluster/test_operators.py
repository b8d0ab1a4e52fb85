"""Failures, a restart and an abort on real workers."""

from __future__ import annotations

from pathlib import Path

import pytest

from recovery import ProcessBroken
from tests.cluster.conftest import Cluster
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster


def test_a_failed_task_is_restarted_and_a_running_process_aborted(cluster: Cluster) -> None:
    cluster.worker(concurrency=2)
    picky, beating = cluster.app.start("two_picky", cluster.folder), cluster.app.start("one_beating", cluster.folder)
    with pytest.raises(ProcessBroken, match="LookupError: no go"):
        cluster.app.result(picky, timeout=30)
    cluster.go()
    assert cluster.app.restart(picky) == 1
    # What failed and was expected to is not tried again.
    assert cluster.app.result(picky, timeout=30) == ["LookupError", "went"]

    cluster.wait_began(1)
    cluster.app.abort(beating, "enough")
    wait_until((Path(cluster.folder) / "told").exists, 20, "the attempt, told by its heartbeat")
    with pytest.raises(ProcessBroken, match="Aborted: enough") as told:
        cluster.app.result(beating)
    assert told.value.state == "aborted"
    live = {"_id": {"$regex": f"^{beating}"}, "recoveryTime": {"$exists": True}}
    assert not any(cluster.database[name].count_documents(live) for name in ("processes", "graphs", "decisions"))
    assert cluster.database["interruptions"].count_documents({}) == 0
