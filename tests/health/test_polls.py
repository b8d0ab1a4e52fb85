"""Workers that live and are not answered by Redis: each by its own record."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from recovery.health import Level
from recovery.health.live_workers import Bounds, judge_polls
from recovery.health.model import Cause
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


WELL = worker(60, name="well", polls={"add": 1, "sum": 1})


@pytest.mark.parametrize(
    ("workers", "level", "found"),
    [
        ([WELL], Level.OK, "2 queues polled by 1 worker"),
        ([WELL, worker(60, polls={"add": 7, "sum": 7})], Level.PROBLEM, "polls: w (for 7"),
        ([WELL, worker(60)], Level.PROBLEM, "polls: w (never)"),
        ([worker(60, polls={"add": 3, "sum": 3})], Level.OK, "2 queues polled"),
        ([worker(60, polls={"add": 1, "sum": 50})], Level.OK, "2 queues polled"),
        ([worker(60, beat=5.5, polls={"add": 7, "sum": 7})], Level.OK, "2 queues polled"),
        ([worker(60, paused=("sum",), polls={"add": 1, "sum": 9})], Level.OK, "1 queue polled"),
        ([worker(3)], Level.OK, "0 queues polled"),
        ([], Level.UNKNOWN, "no worker is alive"),
    ],
    ids=[
        "all", "one worker of two", "one that was never answered, of two", "one heartbeat without, as slots fill",
        "unblocked just now", "its heartbeat is late", "one blocked", "just started", "no worker",
    ],
)  # fmt: skip
def test_polls(workers: list[Worker], level: Level, found: str) -> None:
    check = judge_polls(workers, NOW, BOUNDS)
    assert (check.level, check.cause is Cause.POLLS_UNANSWERED) == (level, level is Level.PROBLEM)
    assert found in check.found
