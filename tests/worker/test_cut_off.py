"""Heartbeats over connections that die without a word, and while MongoDB is out of reach."""

from __future__ import annotations

import time
from collections.abc import Iterator
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest
from celery import Celery

from recovery.health import Level, machine
from recovery.health.model import Cause
from recovery.settings import Settings
from recovery.stack.server_process import HOST
from recovery.worker.identity import identify
from recovery.worker.lifeline import judging as watch
from recovery.worker.lifeline import lifeline
from recovery.worker.lifeline.lifeline import AGAIN, TRY, Lifeline
from recovery.worker.messages.queue_consumption import QueueConsumption
from tests.emptied import emptied as emptied
from tests.emptied import lasting as lasting
from tests.silence import Way, way_to
from tests.waiting import wait_until
from tests.world import World

TIMEOUT = 2.0
LATE = 0.4
"""Seconds that a busy machine adds to a limit."""

SCANNED_WITHIN = 5.0
"""Seconds, by default."""


@pytest.fixture
def way(emptied: Settings) -> Iterator[Way]:
    with way_to(urlsplit(emptied.mongo_uri).port or 0) as way:
        yield way


def line(settings: Settings, **changes: object) -> Lifeline:
    world = World(settings, heartbeat_timeout=TIMEOUT, heartbeat_interval=0.5, **changes)
    celery = SimpleNamespace(app=Celery(set_as_current=False))
    return Lifeline(world.app, identify("one", ()), QueueConsumption(celery, ()))


def over(way: Way, settings: Settings) -> Settings:
    return settings.model_copy(update={"mongo_uri": f"mongodb://{HOST}:{way.port}/?directConnection=true"})


def test_a_connection_that_died_is_replaced_at_once(emptied: Settings, way: Way) -> None:
    one, records = line(over(way, emptied)), World(emptied).store
    one.beat_once()
    (before,) = records.workers.all()
    way.silence(answers_calls=True)
    way.speak(remembers=False)  # the connections that there are stay silent for ever
    began = time.monotonic()
    one.beat_once()
    assert time.monotonic() - began < TRY * TIMEOUT + LATE
    (after,) = records.workers.all()
    assert after.recovery_time > before.recovery_time
    assert not one._consuming.held
    assert not one.judging.may_judge(), "of others it knows nothing, just now"


@pytest.mark.parametrize("answers_calls", [True, False], ids=["it answers calls", "it does not"])
def test_nothing_is_consumed_while_heartbeats_fail(emptied: Settings, way: Way, answers_calls: bool) -> None:
    one = line(over(way, emptied))
    one.beat_once()
    assert not one._consuming.held
    way.silence(answers_calls=answers_calls)
    for _ in range(2):
        began = time.monotonic()
        one.beat_once()
        assert time.monotonic() - began < (TRY + AGAIN) * TIMEOUT + LATE, "the limit covers the whole step"
        assert one._consuming.held
    way.speak(remembers=False)
    wait_until(lambda: one.beat_once() or not one._consuming.held, 5, "a heartbeat that is written")


def test_nothing_is_consumed_from_the_first_try_that_failed(
    emptied: Settings, way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, held = line(over(way, emptied)), list[bool]()
    one.beat_once()
    write = one._write
    monkeypatch.setattr(one, "_write", lambda: (held.append(one._consuming.held), write())[1])
    way.silence(answers_calls=True)
    way.speak(remembers=False)
    one.beat_once()
    assert held == [True], "and it is written at the second"


def test_what_is_said_of_heartbeats_that_are_not_written(
    emptied: Settings, way: Way, caplog: pytest.LogCaptureFixture
) -> None:
    """One line when it begins, short, and one when it is over, however many fail between."""
    one = line(over(way, emptied))
    one.beat_once()
    way.silence(answers_calls=False)
    caplog.clear()
    for _ in range(3):
        one.beat_once()
    (begun,) = messages(caplog)
    assert begun.startswith("no heartbeat is written (") and "Topology" not in begun and len(begun) < 250, begun
    way.speak(remembers=False)
    wait_until(lambda: (one.beat_once(), len(messages(caplog)) > 1)[1], 20, "that it is over")
    assert messages(caplog)[1].startswith("MongoDB takes heartbeats again, after")


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == lifeline.__name__]


def test_it_tells_by_how_much_its_clock_is_ahead(emptied: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    real = time.time
    monkeypatch.setattr(watch.time, "time", lambda: real() + 90)
    one = line(emptied)
    one.beat_once()
    one.beat_once()  # the first asks the time before it tells
    (told,) = World(emptied).store.workers.all()
    assert told.clock_ahead is not None and 89 < told.clock_ahead < 91
    check = machine.judge_clocks({}, [told])
    assert (check.level, check.cause) == (Level.PROBLEM, Cause.CLOCKS_APART)
    assert f"{told.name} 90" in check.found or f"{told.name} 89.9" in check.found


@pytest.mark.parametrize(
    ("interval", "ago", "nudges"),
    [
        (1.0, SCANNED_WITHIN - 1, False),
        (1.0, SCANNED_WITHIN + 1, True),
        (10.0, SCANNED_WITHIN + 1, False),
        (10.0, 31.0, True),
    ],
)
def test_it_nudges_itself_where_nobody_scans(emptied: Settings, interval: float, ago: float, nudges: bool) -> None:
    one = line(emptied, scan_interval=interval)
    one._made_at -= 100
    nudged: list[None] = []
    one.nudge = lambda: nudged.append(None)
    World(emptied).store.database["scanners"].insert_one({"_id": "graphs"})
    one._own.database["scanners"].update_one({}, [{"$set": {"ranAt": {"$subtract": ["$$NOW", round(ago * 1000)]}}}])
    one.beat_once()
    assert bool(nudged) is nudges


def test_it_gives_a_beat_time_to_begin(emptied: Settings) -> None:
    one, nudged = line(emptied), list[None]()
    one.nudge = lambda: nudged.append(None)
    one.beat_once()
    assert not nudged, "nobody ever scanned, but it was here for a moment only"
    one._made_at -= SCANNED_WITHIN
    one.beat_once()
    assert nudged
