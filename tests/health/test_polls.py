"""Workers that live and are not answered by Redis: each by its own record."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from recovery.health import Level
from recovery.health.model import Cause
from recovery.health.polls import Bounds, judge_polls
from recovery.records import QueueStatistics, Worker

NOW = datetime(2030, 1, 1, tzinfo=UTC)
BOUNDS = Bounds(timeout=timedelta(seconds=6), missed=timedelta(seconds=3.6), within=timedelta(seconds=8))


def at(ago: float) -> datetime:
    return NOW - timedelta(seconds=ago)


def worker(
    started: float,
    *,
    name: str = "w",
    paused: tuple[str, ...] = (),
    beat: float = 1,
    polls: dict[str, float] | None = None,
) -> Worker:
    """`beat` and `polls`: seconds since its last heartbeat, and since each of the answered polls that it told of."""
    told = tuple(QueueStatistics(id=queue, polled_at=at(ago)) for queue, ago in (polls or {}).items())
    return Worker(
        id=f"{name}:1", name=name, host="", pid=1, pid_started=1, queues=("add", "sum"), paused=paused, polls=told,
        started_at=at(started), recovery_time=at(beat) + BOUNDS.timeout,
    )  # fmt: skip


def polled(**ago: float) -> dict[str, QueueStatistics]:
    return {queue: QueueStatistics(id=queue, polled_at=at(seconds)) for queue, seconds in ago.items()}


WELL = worker(60, name="well", polls={"add": 1, "sum": 1})
OF_ALL = polled(add=1, sum=1)


@pytest.mark.parametrize(
    ("workers", "queues", "level", "found"),
    [
        ([WELL], OF_ALL, Level.OK, "2 queues polled by 1 worker"),
        ([WELL, worker(60, polls={"add": 7, "sum": 7})], OF_ALL, Level.PROBLEM, "polls: w (any queue, for 7"),
        ([worker(60, polls={"add": 3, "sum": 3})], OF_ALL, Level.OK, "2 queues polled"),
        ([worker(60, polls={"add": 1, "sum": 50})], OF_ALL, Level.OK, "2 queues polled"),
        ([worker(60, beat=5.5, polls={"add": 7, "sum": 7})], OF_ALL, Level.OK, "2 queues polled"),
        ([worker(60)], polled(add=1, sum=9), Level.PROBLEM, "w (sum, for 9"),
        ([worker(60)], polled(add=1), Level.PROBLEM, "w (sum, never)"),
        ([worker(60, paused=("sum",))], polled(add=1, sum=9), Level.OK, "1 queue polled"),
        ([worker(3)], {}, Level.OK, "0 queues polled"),
        ([], polled(add=3600), Level.OK, "0 queues polled"),
    ],
    ids=[
        "all", "one worker of two", "one heartbeat without, as slots fill", "unblocked just now",
        "its heartbeat is late", "a record that does not tell", "never", "one blocked", "just started", "no worker",
    ],
)  # fmt: skip
def test_polls(workers: list[Worker], queues: dict[str, QueueStatistics], level: Level, found: str) -> None:
    check = judge_polls(workers, queues, NOW, BOUNDS)
    assert (check.level, check.cause is Cause.POLLS_UNANSWERED) == (level, level is Level.PROBLEM)
    assert found in check.found
