"""Workers come to beat at the same moments, and stay with them. No time passes here but where lifelines beat by
themselves, by MongoDB's real clock."""

from __future__ import annotations

import random
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from types import SimpleNamespace

import pytest
from celery import Celery

from recovery.settings import Settings
from recovery.store import schema
from recovery.worker.identity import identify
from recovery.worker.lifeline.lifeline import Lifeline
from recovery.worker.lifeline.rhythm import FEWEST, LATE, until_next
from recovery.worker.messages.polls import Polls
from recovery.worker.messages.queue_consumption import QueueConsumption
from tests.waiting import wait_until
from tests.world import World

INTERVAL = 2.0
NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
SEED = 31


def course(began: datetime, workers: int, beats: int, jitter: float = 0.0) -> list[datetime]:
    """When a worker beats that began then, each time late or early by so much at most."""
    chance, course = random.Random(f"{SEED} {began}"), [began]
    for _ in range(beats):
        pause = until_next(course[-1], INTERVAL, workers) + chance.uniform(-jitter, jitter)
        course.append(course[-1] + timedelta(seconds=pause))
    return course


def phase(moment: datetime) -> float:
    return round(moment.timestamp() % INTERVAL, 3) % INTERVAL


def began(workers: int) -> list[datetime]:
    return [NOON + timedelta(seconds=INTERVAL * number / workers) for number in range(workers)]


@pytest.mark.parametrize(("workers", "moments"), [(2, 2), (50, 8), (100, 8), (240, 20), (1000, 83)])
def test_there_are_few_moments_for_few_workers_and_more_for_many(workers: int, moments: int) -> None:
    at = Counter(phase(course(one, workers, 2)[-1]) for one in began(workers))
    assert len(at) == moments
    assert max(at.values()) <= max(2 * workers / moments, 2)


@pytest.mark.parametrize("workers", [1, 100, 1000])
def test_none_is_late(workers: int) -> None:
    apart = INTERVAL / max(FEWEST, workers // 12)
    for one in began(101):
        times = course(one, workers, 5)
        pauses = [(after - before).total_seconds() for before, after in pairwise(times)]
        assert INTERVAL - apart <= pauses[0] <= INTERVAL + LATE * apart
        assert pauses[1:] == pytest.approx([INTERVAL] * 4, abs=1e-3), "then it keeps its moment"


def test_one_that_is_a_little_early_or_late_keeps_its_moment() -> None:
    jitter = INTERVAL / FEWEST * LATE / 2
    for one in began(17):
        times = course(one, 20, 200, jitter)
        off = {round((moment - times[1]).total_seconds() / INTERVAL, 1) % 1 for moment in times[1:]}
        assert off == {0.0}, f"seed {SEED}"


def test_after_a_step_of_the_clock_it_comes_to_a_moment_again() -> None:
    before = course(NOON + timedelta(seconds=0.3), 20, 3)[-1]
    for step in (-100.03, -0.1, 0.1, 33.33):
        stepped = before + timedelta(seconds=step)
        pause = until_next(stepped, INTERVAL, 20)
        assert INTERVAL * (1 - 1 / FEWEST) <= pause <= INTERVAL * (1 + LATE / FEWEST)
        assert phase(stepped + timedelta(seconds=pause)) % (INTERVAL / FEWEST) == pytest.approx(0, abs=1e-3)


def test_lifelines_come_together(settings: Settings) -> None:
    world = World(settings, heartbeat_interval=0.8, heartbeat_timeout=4.0)
    schema.create(world.store.database)
    celery = SimpleNamespace(app=Celery(set_as_current=False))
    lines = [
        Lifeline(world.app, identify(f"w{number}", ()), QueueConsumption(celery, ()), Polls()) for number in range(4)
    ]
    apart = 0.8 / FEWEST

    def off() -> list[float]:
        """How long after a moment each beat was written."""
        told = [worker.recovery_time for worker in world.store.workers.all()]
        return [moment.timestamp() % apart for moment in told if moment is not None]

    try:
        for number, line in enumerate(lines):
            line.beat_once()
            due = time.monotonic() + 0.03 * number
            wait_until(lambda due=due: time.monotonic() >= due, 5, "its time")
            line.start()
        wait_until(lambda: len(found := off()) == 4 and max(found) < 0.4 * apart, 20, "all just after a moment")
    finally:
        for line in lines:
            line.stop()
