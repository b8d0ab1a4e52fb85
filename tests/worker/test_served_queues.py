"""The youngest message that was taken is told when its elders are claimed. No time passes here: it is given."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from recovery.worker.lifeline.judging import ServerClock
from recovery.worker.lifeline.served_queues import Taken

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
OLD, YOUNG, FAR = (NOON + timedelta(seconds=seconds) for seconds in (-60, -30, 10**9))
MARGIN = 2.0


@pytest.fixture
def clock() -> ServerClock:
    made = ServerClock()
    made.look(NOON, 0.0, 0.0)
    return made


def test_it_is_told_when_what_was_taken_before_is_claimed(clock: ServerClock) -> None:
    taken = Taken(clock, MARGIN)
    assert taken.claimed(10.0) == {}
    taken.add("add", YOUNG, 10.1)
    taken.add("add", OLD, 10.2)
    assert [taken.claimed(at) for at in (10.3, 11.9)] == [{}, {}]
    assert taken.claimed(12.0) == {}, "kept now, and some of it was taken just now, perhaps"
    taken.add("sum", OLD, 12.1)
    assert taken.claimed(13.9) == {}
    assert taken.claimed(14.0) == {"add": YOUNG}
    assert taken.claimed(15.0) == {"add": YOUNG}
    assert taken.claimed(16.0) == {"add": YOUNG, "sum": OLD}


def test_it_comes_to_be_told_however_often_somebody_beats(clock: ServerClock) -> None:
    taken = Taken(clock, MARGIN)
    taken.add("add", YOUNG, 0.0)
    first = next(tenth for tenth in range(100) if taken.claimed(tenth / 10))
    assert MARGIN <= first / 10 <= 2 * MARGIN


def test_a_time_to_come_hides_nothing() -> None:
    unknown = ServerClock()
    taken = Taken(unknown, MARGIN)
    taken.add("add", FAR, 0.0)
    assert taken.claimed(0.0) == {}
    unknown.look(NOON, 1.0, 1.0)
    taken.add("add", FAR, 1.5)
    assert taken.claimed(2.0) == {}, "it was kept while the clock was not known"
    taken.add("add", YOUNG, 2.5)
    assert taken.claimed(4.0) == {}
    assert taken.claimed(6.0) == {"add": YOUNG}
