"""A drill on real workers."""

from __future__ import annotations

import pytest

from recovery.drill.promises import Step
from recovery.drill.run import Plan, run
from recovery.store import schema
from tests.cluster.conftest import Cluster

pytestmark = pytest.mark.cluster


def test_every_worker_takes_part_and_nothing_is_left(cluster: Cluster) -> None:
    cluster.beat()
    for _ in range(2):
        cluster.worker(concurrency=2)
    report = run(cluster.app.resources, Plan(processes=4), print)
    print(report.as_dict())
    assert report.good
    assert {one.step for one in report.steps} == {Step.START, Step.STEP, Step.DELAY, Step.LOST_CLAIM}
    assert all(one.canaries for one in report.workers) and len(report.workers) == 2
    assert (report.left, report.notes) == (0, [])
    for name in schema.OF_PROCESSES:
        assert cluster.database[name].count_documents({}) == 0


def test_kills(cluster: Cluster) -> None:
    cluster.settings = cluster.settings.model_copy(update={"drill_kill": True})
    cluster.beat()
    for _ in range(2):
        cluster.worker()
    report = run(cluster.app.resources, Plan(processes=1, kill=True, why="a test"), print)
    print(report.as_dict())
    assert report.good
