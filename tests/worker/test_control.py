"""Of Celery's remote control workers obey two commands, and neither makes much of a broadcast that goes on and on."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest
from celery import Celery
from celery.worker.control import Panel

from recovery.queue import SETTINGS_CHANGED
from recovery.settings import Settings
from recovery.worker import control
from recovery.worker.identity import identify
from recovery.worker.lifeline.lifeline import Lifeline
from recovery.worker.messages.queue_consumption import QueueConsumption
from recovery.worker.tasks import Running
from tests.emptied import emptied as emptied
from tests.emptied import lasting as lasting
from tests.world import World


def test_no_other_command_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Panel, "data", dict(Panel.data))
    monkeypatch.setattr(Panel, "meta", dict(Panel.meta))
    control.register()
    assert set(Panel.data) == set(Panel.meta) == {"ping", SETTINGS_CHANGED}


def test_who_asks_all_the_time_is_answered_ten_times_a_second(
    emptied: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, celery = World(emptied, heartbeat_interval=60.0, heartbeat_timeout=180.0), Celery(set_as_current=False)
    lifeline = Lifeline(world.app, identify("one", ()), QueueConsumption(SimpleNamespace(app=celery), ()))
    beats: list[float] = []
    monkeypatch.setattr(lifeline, "beat_once", lambda: beats.append(time.monotonic()))
    monkeypatch.setattr(Running, "lifeline", lifeline)
    lifeline.start()
    until = time.monotonic() + 0.75
    while time.monotonic() < until:
        control.settings_changed(None)
    lifeline.stop()
    assert 2 <= len(beats) <= 9
