"""Workers and MongoDB's clock, watched by a clock that only measures. No time passes here: it is given."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from recovery.limits import LONGEST_SILENCE, SILENCE_FAR_OFF
from recovery.worker.lifeline.judging import ServerClock, SilenceWatch

TIMEOUT, INTERVAL = 6.0, 2.0
NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


class Course:
    """A worker that beats, and one that watches it, each every INTERVAL, half of it apart; and MongoDB's clock."""

    def __init__(self) -> None:
        self.at, self.shift, self.alive = 0.0, 0.0, True
        self.watch = SilenceWatch(TIMEOUT)
        self.deadline = self.now
        self._beat()

    @property
    def now(self) -> datetime:
        return NOON + timedelta(seconds=self.at + self.shift)

    def _beat(self) -> None:
        if self.alive:
            self.deadline = self.now + timedelta(seconds=TIMEOUT)

    def silent_after(self, seconds: float) -> float | None:
        """Go on for so long, in steps of a tenth of a second: when the worker was first taken for silent."""
        for _ in range(round(seconds * 10)):
            self.at = round(self.at + 0.1, 1)
            if self.at % INTERVAL == 0:
                self._beat()
            if self.at % INTERVAL == INTERVAL / 2:
                self.watch.look({"w": self.deadline}, self.now, self.at)
            if self.watch.silent(self.at):
                return self.at
        return None


@pytest.fixture
def course() -> Course:
    return Course()


@pytest.mark.parametrize("moment", [0.5, 1.0, 1.5])
@pytest.mark.parametrize("step", [7.0, 60.0, 3600.0, -7.0, -3600.0])
def test_a_step_makes_nobody_silent(course: Course, step: float, moment: float) -> None:
    assert course.silent_after(10 + moment) is None
    for _ in range(5):  # again and again
        course.shift += step
        assert course.silent_after(7.3) is None


@pytest.mark.parametrize("step", [0.0, 60.0, -60.0])
def test_who_is_dead_is_known_after_his_timeout(course: Course, step: float) -> None:
    course.silent_after(11)
    course.alive = False  # his last heartbeat was at 10 s
    course.shift += step
    found = course.silent_after(20)
    assert found is not None
    assert TIMEOUT <= found - 10 <= TIMEOUT + 0.2


def test_who_has_just_begun_to_watch_judges_nobody_for_a_whole_timeout() -> None:
    watch = SilenceWatch(TIMEOUT)
    watch.look({"w": NOON}, NOON + timedelta(hours=1), 100.0)
    assert watch.silent(100.0 + TIMEOUT) == {}
    assert watch.silent(100.1 + TIMEOUT) == {"w": NOON}


def test_nor_after_a_pause() -> None:
    watch = SilenceWatch(TIMEOUT)
    watch.look({"w": NOON}, NOON, 0.0)
    watch.look({"w": NOON + timedelta(seconds=1)}, NOON + timedelta(hours=1), 5.0)
    assert watch.silent(5.0 + TIMEOUT) == {}


@pytest.mark.parametrize("timeout", [90, LONGEST_SILENCE])
def test_a_worker_with_a_longer_timeout_has_it(timeout: float) -> None:
    watch = SilenceWatch(TIMEOUT)
    watch.look({"w": NOON + timedelta(seconds=timeout)}, NOON, 0.0)
    assert watch.silent(timeout - 0.1) == {} != watch.silent(timeout + 0.1)


@pytest.mark.parametrize(
    "deadline",
    [None, "tomorrow", 7, {"$gt": 1}, NOON.replace(year=9999), NOON + timedelta(seconds=SILENCE_FAR_OFF)],
    ids=str,
)
def test_what_no_worker_has_for_a_deadline_counts_as_the_least(deadline: object) -> None:
    watch = SilenceWatch(TIMEOUT)
    watch.look({"w": deadline}, NOON, 0.0)
    assert watch.silent(TIMEOUT) == {}
    assert watch.silent(TIMEOUT + 0.1) == {"w": deadline}


def test_what_is_no_date_is_no_sign_of_life_however_it_changes() -> None:
    watch = SilenceWatch(TIMEOUT)
    for at, odd in enumerate([float("nan"), float("nan"), "soon", None, "later", float("nan"), "never"]):
        watch.look({"w": odd}, NOON, float(at))
    assert watch.silent(TIMEOUT + 0.1) == {"w": "never"}
    watch.look({"w": NOON}, NOON, TIMEOUT + 0.1)
    assert watch.silent(TIMEOUT + 0.1) == {}, "but a date is"


def look(clock: ServerClock, ahead: float, asked: float, took: float = 0.01) -> bool:
    return clock.look(NOON + timedelta(seconds=ahead + asked + took / 2), asked, asked + took)


def test_steps_forward_are_seen() -> None:
    clock = ServerClock()
    assert [look(clock, ahead, at) for at, ahead in enumerate([0, 0.2, 0.1, 7, 7, 3600, 0, 0, 2])] == [
        False, False, False, True, False, True, False, False, True,
    ]  # fmt: skip


def test_a_slow_answer_is_no_step_and_hides_none() -> None:
    clock = ServerClock()
    assert not look(clock, 0, 0)
    assert not look(clock, 60, 1, took=30)
    assert look(clock, 60, 40)


def test_what_is_later_than_the_clock_can_show_is_to_come() -> None:
    clock = ServerClock()
    assert not clock.is_to_come(NOON.replace(year=9999), 100.0), "nothing is known"
    clock.look(NOON, 100.0, 100.0)
    assert not clock.is_to_come(NOON + timedelta(seconds=5), 105.0)
    assert clock.is_to_come(NOON + timedelta(seconds=5), 100.0)
    assert clock.is_to_come(NOON.replace(year=9999), 105.0)
