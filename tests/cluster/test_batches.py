"""Quick tasks in batches, on real workers."""

from __future__ import annotations

from datetime import UTC
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import app
from tests.cluster.conftest import Cluster
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster

COUNT = 400
MANY = 30
"""In hand at least with the one that kills."""
WITHIN = 3.0
"""Seconds from the death of a slot until all that it had in hand is claimed by another."""


@pytest.fixture(autouse=True)
def whole_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """How many a slot takes at once does not follow from how quick the machine is just now."""
    monkeypatch.setenv(app.ALL_QUICK, "1")


def decisions_after(cluster: Cluster, what: str) -> list[dict[str, Any]]:
    """Those of tasks of which one killed its slot, or its worker; all have come to their values."""
    process_id = cluster.app.start("many_quick", cluster.folder, COUNT, COUNT // 2, what)
    wait_until((Path(cluster.folder) / "killed").exists, 30, "the kill")
    assert cluster.app.result(process_id, timeout=15) == list(range(COUNT))
    return list(cluster.database["decisions"].find({"actor": "quick"}))


def test_a_slot_that_is_killed_with_a_batch_in_hand(cluster: Cluster) -> None:
    """Its worker knows which task it ran: that one counts a time-out, and the others are as if nothing had been."""
    cluster.worker()
    decisions = decisions_after(cluster, "slot")
    counted = [(one["timeouts"], one["attempts"]) for one in decisions if one.get("timeouts")]
    assert counted == [(1, 2)]
    again = [one for one in decisions if one["attempts"] == 2]
    assert MANY <= len(again) <= cluster.settings.batch_size, "what was in hand with it"
    killed = (Path(cluster.folder) / "killed").stat().st_mtime
    assert max(one["claimedAt"].replace(tzinfo=UTC).timestamp() for one in again) - killed <= WITHIN
    assert not any(one.get("alone") or one.get("inBatch") for one in decisions)


def test_a_worker_that_is_killed_with_a_batch_in_hand(cluster: Cluster) -> None:
    """Nobody knows which of them it ran: none counts one, and each is claimed by itself."""
    for _ in range(2):
        cluster.worker()
    decisions = decisions_after(cluster, "worker")
    assert not any(one.get("timeouts") for one in decisions)
    alone = [one for one in decisions if one.get("alone")]
    assert MANY <= len(alone) <= cluster.settings.batch_size
    assert all(one["attempts"] == 2 for one in alone)
