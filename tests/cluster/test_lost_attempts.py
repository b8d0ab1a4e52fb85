"""A task that kills the process that runs it, each time: its attempts come ever more rarely, and have an end."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from recovery import ProcessBroken
from tests.cluster.app import POISON_LIMIT
from tests.cluster.conftest import Cluster

pytestmark = pytest.mark.cluster

LATE = 2.5
"""Seconds that an attempt may begin after its delay: a scan, a new process of the pool, and a machine that is busy."""


def gaps(cluster: Cluster) -> list[float]:
    """Seconds between the beginnings of the attempts."""
    began = sorted(float(sign.read_text()) for sign in Path(cluster.folder).glob("poison-*"))
    return [later - earlier for earlier, later in itertools.pairwise(began)]


def run(cluster: Cluster, name: str) -> ProcessBroken:
    """Run a poison task beside others, and return how its process broke."""
    cluster.beat()
    cluster.worker(concurrency=2)
    poison = cluster.app.start(name, cluster.folder)
    others = [cluster.app.start("many_quick", cluster.folder, 5, -1, "") for _ in range(3)]
    for other in others:
        assert cluster.app.result(other, timeout=60) == [0, 1, 2, 3, 4], "it goes on beside it"
    with pytest.raises(ProcessBroken) as broken:
        cluster.app.result(poison, timeout=60)
    return broken.value


def test_attempts_come_at_growing_intervals_and_then_the_process_breaks(cluster: Cluster) -> None:
    broken = run(cluster, "poison")
    assert broken.kind == "WorkTimeout"
    lost = f"poison lost {POISON_LIMIT} attempts (max_work_timeouts)"
    assert broken.message == f"{lost}; the last one's process was ended by signal 9 (SIGKILL)"
    error = cluster.decision("poison")["outcome"]["error"]
    assert (error["code"], error["reason"]) == (40001, "WORKER_LOST")
    delays = [0.0, 0.5, 1.0, 2.0]
    measured = gaps(cluster)
    assert len(measured) == len(delays) == POISON_LIMIT - 1
    for gap, delay in zip(measured, delays, strict=True):
        assert delay <= gap <= delay + LATE, measured


def test_a_strategy_of_its_own_says_when_and_for_how_long(cluster: Cluster) -> None:
    """1.5 s after each further loss, and no more than two of these."""
    broken = run(cluster, "poison_by_strategy")
    lost = "poison_by_strategy lost 4 attempts, and the strategy Until wants no retry"
    assert broken.message == f"{lost}; the last one's process was ended by signal 9 (SIGKILL)"
    first, *further = gaps(cluster)
    assert first <= LATE
    assert len(further) == 2
    assert all(1.5 <= gap <= 1.5 + LATE for gap in further), further
