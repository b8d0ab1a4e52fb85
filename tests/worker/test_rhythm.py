"""Workers come to beat at the same moments, and stay with them. No time passes here but where lifelines beat by
themselves, by MongoDB's real clock."""

from __future__ import annotations

import random
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from celery import Celery

from recovery.settings import Settings
from recovery.store import creation
from recovery.worker.identity import identify
from recovery.worker.lifeline.lifeline import Lifeline
from recovery.worker.lifeline.rhythm import FEWEST, LATE, Rhythm
from recovery.worker.messages.queue_consumption import Polls, QueueConsumption
from tests.waiting import wait_until
from tests.world import World

INTERVAL = 2.0
NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
SEED = 31


class Beating:
    """A worker that beats by the rhythm. MongoDB's clock shows noon at 0 by its own."""

    def __init__(self, name: str, workers: int, began: float) -> None:
        self.rhythm, self.workers, self.at = Rhythm(name, INTERVAL), workers, began
        self.see()

    def see(self, step: float = 0.0) -> None:
        self.rhythm.saw(NOON + timedelta(seconds=self.at + step), self.at, self.at + 0.001)

    def beat(self, late: float = 0.0) -> float:
        """Go on to the next heartbeat, so much later: after how long it was."""
        pause = self.rhythm.until_next(self.at, self.workers) + late
        self.at += pause
        return pause

    @property
    def phase(self) -> float:
        return round(self.at % INTERVAL, 2) % INTERVAL


def workers(number: int, began: float | None = None) -> list[Beating]:
    """So many, begun at the same time or one after the other."""
    return [Beating(f"w{one}", number, INTERVAL * one / number if began is None else began) for one in range(number)]


@pytest.mark.parametrize(("number", "moments"), [(50, 8), (100, 8), (240, 20), (1000, 83)])
@pytest.mark.parametrize("began", [None, 0.3], ids=["spread", "at once"])
def test_there_are_few_moments_for_few_workers_and_more_for_many(
    number: int, moments: int, began: float | None
) -> None:
    all_of_them = workers(number, began)
    for one in all_of_them:
        one.beat()
    at = Counter(one.phase for one in all_of_them)
    assert len(at) == moments
    assert max(at.values()) <= 2.5 * number / moments


@pytest.mark.parametrize("number", [1, 100, 1000])
def test_none_is_late(number: int) -> None:
    for one in workers(101):
        one.workers = number
        assert LATE * INTERVAL <= one.beat() <= (1 + LATE) * INTERVAL
        assert [one.beat() for _ in range(5)] == pytest.approx([INTERVAL] * 5, abs=1e-3), "then it keeps its moment"


def test_one_that_is_a_little_early_or_late_keeps_its_moment() -> None:
    chance = random.Random(SEED)
    for one in workers(17):
        one.beat()
        own = one.at
        for number in range(1, 200):
            one.beat(chance.uniform(-0.9, 0.9) * LATE * INTERVAL)
            assert abs(one.at - own - number * INTERVAL) <= LATE * INTERVAL, f"seed {SEED}"


def test_who_is_told_to_beat_at_once_comes_back_to_its_own_moment() -> None:
    all_of_them = workers(100)
    for one in all_of_them:
        one.beat()
    before = [one.phase for one in all_of_them]
    for told in (11.1, 23.7):
        for one in all_of_them:
            one.at = told
            one.beat()
        assert [one.phase for one in all_of_them] == before


def test_half_of_all_are_the_first() -> None:
    assert 430 <= sum(one.rhythm.first for one in workers(1000)) <= 570


@pytest.mark.parametrize("step", [-100.03, -0.1, 0.1, 33.33])
def test_after_a_step_of_the_clock_it_comes_to_its_moment_again(step: float) -> None:
    for one in workers(20):
        one.beat()
        own = one.phase
        one.see(step)
        assert one.beat() <= (1 + LATE) * INTERVAL
        assert (one.at + step - own + 0.1) % INTERVAL == pytest.approx(0.1, abs=0.01)


def test_a_slow_answer_moves_nothing() -> None:
    one = Beating("w", 20, 0.3)
    one.beat()
    one.rhythm.saw(NOON + timedelta(seconds=one.at), one.at - 0.5, one.at + 0.5)
    one.rhythm.saw(NOON + timedelta(seconds=one.at), one.at, one.at + 0.7)
    assert one.beat() == pytest.approx(INTERVAL, abs=0.01)


def test_as_long_as_the_clock_is_not_known_it_beats_every_interval() -> None:
    assert Rhythm("w", INTERVAL).until_next(0.7, 20) == INTERVAL


@pytest.mark.thorough
def test_lifelines_come_together(settings: Settings) -> None:
    world = World(settings, heartbeat_interval=0.8, heartbeat_timeout=4.0)
    creation.create(world.store.database)
    celery = SimpleNamespace(app=Celery(set_as_current=False))
    lines = [
        Lifeline(world.app, identify(f"w{number}", ()), QueueConsumption(celery, ()), Polls()) for number in range(4)
    ]
    apart, seen = 0.8 / FEWEST, [list[float]() for _ in lines]

    def off() -> bool:
        """Whether the last five heartbeats of all were written a short time after a moment."""
        told = {worker.id: worker.recovery_time for worker in world.store.workers.all()}
        for line, times in zip(lines, seen, strict=True):
            if (moment := told.get(line.worker.id)) is not None and times[-1:] != [moment.timestamp()]:
                times.append(moment.timestamp())
        return all(len(times) >= 5 and max(at % apart for at in times[-5:]) < 0.4 * apart for times in seen)

    try:
        for number, line in enumerate(lines):
            due = time.monotonic() + 0.03 * number
            wait_until(lambda due=due: time.monotonic() >= due, 5, "its time")
            line.start()
        wait_until(off, 30, "all just after a moment, five times")
    finally:
        for line in lines:
            line.stop()
