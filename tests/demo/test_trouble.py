"""When a demo breaks things, and when it no longer does."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from recovery.demo import trouble
from recovery.demo.options import Chaos, FaultKind, Options
from recovery.demo.trouble import Trouble
from recovery.demo.workforce import Workforce
from recovery.engine import Resources
from recovery.settings import Settings
from recovery.stack import Stack
from tests.clock import Clock
from tests.demo.test_storm import Told
from tests.waiting import wait_until


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(trouble, "time", clock)
    return clock


def troubled(options: Options, settings: Settings, folder: Path, told: Told, chaos: Chaos) -> tuple[Trouble, Resources]:
    stack = Stack(folder, mongo_uri=settings.mongo_uri, broker_url=settings.broker_url)
    found = Trouble(options, stack, Workforce(stack, {}, chaos, folder), chaos, told.broken.append)
    return found, Resources.connect(settings)


def test_no_fault_once_the_time_is_over(
    clock: Clock, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Told()
    monkeypatch.setattr(trouble, "faults", lambda *_: {FaultKind.BEAT_KILLED: told(FaultKind.BEAT_KILLED)})
    options = Options(chaos=True, kill_every=0.0, go_on=10.0)
    found, resources = troubled(options, settings, tmp_path, told, Chaos(0, seed=1))
    found.start(resources)
    wait_until(lambda: told.broken, 5, "a fault")
    clock.now += 9
    found.tick(resources)
    assert not told.mended
    clock.now += 2
    found.tick(resources)
    wait_until(lambda: told.mended, 5, "what is broken is mended before anybody stops the demo")
    found.stop()
    assert told.mended == told.broken == ["beat_killed"]
    assert found.struck == {"beat_killed": 1}


def test_no_kill_once_half_of_the_time_is_over(clock: Clock, settings: Settings, tmp_path: Path) -> None:
    chaos = Chaos(2.0, seed=1)
    found, resources = troubled(Options(kill_every=2.0, timeout=20.0), settings, tmp_path, Told(), chaos)
    found.start(resources)
    clock.now += 10.5
    found.tick(resources)
    assert not chaos.is_due(time.monotonic() + 1e6)


def test_how_long_things_are_broken() -> None:
    assert Options(go_on=30.0, timeout=300.0).breaks_for == 30.0
    assert Options(timeout=300.0).breaks_for == 150.0
