"""Promised times, from the settings."""

from __future__ import annotations

import re

from recovery.drill.canary_actor import WORKER_TIMEOUT, type_preferences
from recovery.drill.sightings import MOMENT, Step, net, patience, promised
from recovery.settings import Settings
from tests.docs.blocks import DOCS

DEFAULT = Settings()


def test_with_the_default_settings() -> None:
    """What README and docs/drill.md tell."""
    near = {step: promised(step, DEFAULT, neighbours=True).seconds for step in Step}
    assert near == {"start": 1, "step": 1, "delay": 2, "lost_claim": 2, "killed_slot": 1, "killed_worker": 3}
    assert promised(Step.KILLED_WORKER, DEFAULT).seconds == 10


def test_each_follows_from_the_settings_that_it_names() -> None:
    settings = Settings(scan_interval=20, heartbeat_interval=30, heartbeat_timeout=300)
    for step in (Step.DELAY, Step.LOST_CLAIM):
        assert promised(step, settings).seconds == 20 + MOMENT
    assert promised(Step.KILLED_WORKER, settings, neighbours=True).seconds == 30 + MOMENT
    assert promised(Step.KILLED_WORKER, settings).seconds == 300 + 30 + 20 + MOMENT
    assert promised(Step.KILLED_SLOT, settings).seconds == MOMENT


def test_without_events_the_deadline_is_what_is_promised() -> None:
    settings = Settings(events=False)
    for step in (Step.KILLED_SLOT, Step.KILLED_WORKER):
        promise = promised(step, settings, neighbours=True)
        assert promise.seconds == net(settings) + settings.scan_interval + MOMENT
        assert "events are off" in promise.why


def test_whoever_is_killed_is_found_by_that_and_not_by_a_deadline() -> None:
    for settings in (DEFAULT, Settings(heartbeat_interval=60, heartbeat_timeout=600)):
        assert net(settings) > promised(Step.KILLED_WORKER, settings).seconds


def test_nobody_breaks_a_canary_that_is_waited_for() -> None:
    for settings in (DEFAULT, Settings(heartbeat_interval=60, heartbeat_timeout=600, scan_interval=30)):
        waits = max(patience(promised(step, settings)) for step in Step) + WORKER_TIMEOUT
        assert type_preferences(settings).process_timeout > waits


def test_the_page_tells_them() -> None:
    page = (DOCS / "drill.md").read_text()
    rows = re.findall(r"^\| (?:`(\w+)` )?\| [^|]+\| [^|]+\| [^|]+\| (\d+) s \|$", page, re.MULTILINE)
    told = [(step, float(seconds)) for step, seconds in rows]
    near = [(step.value, promised(step, DEFAULT, neighbours=True).seconds) for step in Step]
    assert told == [*near, ("", promised(Step.KILLED_WORKER, DEFAULT).seconds)]
