"""A worker that takes one stale message after the other drops those that are next."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest

from recovery.records.ids import child_task_id, new_pass, new_process_id, record_id
from recovery.store import Queued
from tests.cluster.conftest import Cluster
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster

COUNT = 5000
"""As claims that match nothing they take ten seconds and more."""


def test_stale_messages_hold_up_nobody(cluster: Cluster) -> None:
    process, pass_key, now = new_process_id(), new_pass(), datetime.now(UTC)
    ids = [record_id(process, child_task_id("start", 0, place)) for place in range(COUNT)]
    cluster.app.resources.broker.push([Queued(one, "slow", pass_key, now) for one in ids])
    worker = cluster.worker()
    wait_until(lambda: cluster.app.resources.broker.depths(["slow"])["slow"] == 0, 60, "an empty queue")
    wait_until(lambda: dropped(cluster.log(worker)) > COUNT / 2, 5, "a word about it")


def dropped(log: str) -> int:
    return sum(int(found) for found in re.findall(r"(\d+) stale messages of slow discarded", log))
