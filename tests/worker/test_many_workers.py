"""Where there are many workers, each looks at the others with every second heartbeat; and at once if it is asked to."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery

from recovery.settings import Settings
from recovery.store.views.lifeline_queries import HeartbeatView
from recovery.worker.identity import identify
from recovery.worker.lifeline import lifeline as module
from recovery.worker.lifeline.lifeline import Lifeline
from recovery.worker.messages.queue_consumption import QueueConsumption
from tests.clock import Clock
from tests.world import World

Looks = list[str]


@pytest.fixture
def world(emptied: Settings, monkeypatch: pytest.MonkeyPatch) -> World:
    world = World(emptied, heartbeat_interval=30.0, heartbeat_timeout=90.0)  # none beats too late here
    monkeypatch.setattr(module, "MANY", 1)
    return world


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    """Which looks were taken."""
    taken, real = Looks(), HeartbeatView.look

    def look(members: HeartbeatView, host: str) -> Any:
        taken.append(host)
        return real(members, host)

    monkeypatch.setattr(HeartbeatView, "look", look)
    return taken


def line(world: World, name: str) -> Lifeline:
    celery = SimpleNamespace(app=Celery(set_as_current=False))
    return Lifeline(world.app, identify(name, ()), QueueConsumption(celery, ()))


def looked(lifeline: Lifeline, looks: Looks, beats: int) -> int:
    before = len(looks)
    for _ in range(beats):
        lifeline.beat_once()
    return len(looks) - before


def test_every_second_heartbeat(world: World, looks: Looks) -> None:
    one, other = line(world, "one"), line(world, "other")
    assert looked(one, looks, 4) == 4, "there are not many"
    other.beat_once()
    assert looked(one, looks, 1) == 1
    assert looked(one, looks, 6) == 3
    assert len(world.store.workers.all()) == 2, "both beat each time"


@pytest.mark.parametrize(
    "ask",
    [Lifeline.settings_changed, Lifeline.on_blocked_message, Lifeline._polls_returned],
    ids=["settings", "blocked", "returned"],
)
def test_who_is_asked_looks_at_once(world: World, looks: Looks, ask: Callable[[Lifeline], None]) -> None:
    one = line(world, "one")
    line(world, "other").beat_once()
    for _ in range(4):
        assert looked(one, looks, 1) == 1
        ask(one)


def test_of_those_who_are_asked_at_once_half_look_with_each_heartbeat(world: World, looks: Looks) -> None:
    lines = [line(world, f"w{number}") for number in range(24)]
    for one in lines:
        one.beat_once()
    for one in lines:
        one.settings_changed()
        assert looked(one, looks, 1) == 1
    for first in (False, True, False, True):
        assert [looked(one, looks, 1) == 1 for one in lines] == [one._looks_first is first for one in lines]


def test_who_is_asked_while_it_looks_looks_again(world: World, looks: Looks, monkeypatch: pytest.MonkeyPatch) -> None:
    one, real = line(world, "one"), HeartbeatView.look
    one._looks_first = True  # it would do without the next look, if it was not asked
    for other in ("other", "another"):
        line(world, other).beat_once()

    def look(members: HeartbeatView, host: str) -> Any:
        found = real(members, host)
        one.settings_changed()  # of what it has not seen
        return found

    with monkeypatch.context() as during:
        during.setattr(HeartbeatView, "look", look)
        one.beat_once()
    assert looked(one, looks, 1) == 1


def test_who_was_cut_off_looks_at_once(world: World, looks: Looks) -> None:
    one = line(world, "one")
    line(world, "other").beat_once()
    assert looked(one, looks, 1) == 1
    one.judging._served_last -= 1000
    assert looked(one, looks, 1) == 1


def test_half_of_all_workers_look_first(world: World) -> None:
    assert 10 <= sum(line(world, f"w{number}")._looks_first for number in range(40)) <= 30


def test_a_heartbeat_that_somebody_asked_for_moves_no_other(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, one = Clock(), line(world, "one")
    monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(one, "beat_once", lambda: None)
    one._next_beat = clock.now
    pauses = []
    for at in (0.0, 30.0, 37.0, 41.5, 60.0, 90.2, 195.0):
        clock.now = 1000.0 + at
        pauses.append(one._beat_in_turn())
    assert pauses == pytest.approx([30.0, 30.0, 23.0, 18.5, 30.0, 29.8, 15.0])
