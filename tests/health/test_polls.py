"""Workers that live and are not answered by Redis."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from recovery.health import Level
from recovery.health.polls import judge_polls
from recovery.records import QueueStatistics, Worker

NOW = datetime(2030, 1, 1, tzinfo=UTC)
WITHIN = timedelta(seconds=8)


def worker(started: float, *, paused: tuple[str, ...] = ()) -> Worker:
    at = NOW - timedelta(seconds=started)
    return Worker(
        id="w:1", name="w", host="", pid=1, pid_started=1, queues=("add", "sum"), paused=paused, started_at=at
    )


def polled(**ago: float) -> dict[str, QueueStatistics]:
    return {q: QueueStatistics(id=q, polled_at=NOW - timedelta(seconds=seconds)) for q, seconds in ago.items()}


@pytest.mark.parametrize(
    ("workers", "queues", "level", "found"),
    [
        ([worker(60)], polled(add=1, sum=2), Level.OK, "2 queues polled"),
        ([worker(60)], polled(add=1, sum=9), Level.PROBLEM, "polls of sum (9s ago)"),
        ([worker(60)], polled(add=1), Level.PROBLEM, "polls of sum (never)"),
        ([worker(60, paused=("sum",))], polled(add=1, sum=9), Level.OK, "1 queue polled"),
        ([worker(3)], {}, Level.OK, "0 queues polled"),
        ([], polled(add=3600), Level.OK, "0 queues polled"),
    ],
    ids=["all", "one not", "one never", "one blocked", "just started", "no worker"],
)
def test_polls(workers: list[Worker], queues: dict[str, QueueStatistics], level: Level, found: str) -> None:
    check = judge_polls(workers, queues, NOW, WITHIN)
    assert check.level is level
    assert found in check.found
