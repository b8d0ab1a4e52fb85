"""Of Celery's remote control workers obey three commands, and none makes much of a broadcast that goes on and on."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from types import SimpleNamespace

import pytest
from celery import Celery
from celery.worker.control import Panel

from recovery.queue import LIVES, SETTINGS_CHANGED
from recovery.settings import Settings
from recovery.worker import control
from recovery.worker.celery_tasks import Running
from recovery.worker.identity import identify
from recovery.worker.lifeline.lifeline import Lifeline
from recovery.worker.messages.queue_consumption import QueueConsumption
from tests.emptied import emptied as emptied
from tests.emptied import lasting as lasting
from tests.waiting import wait_until
from tests.world import World


def test_no_other_command_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Panel, "data", dict(Panel.data))
    monkeypatch.setattr(Panel, "meta", dict(Panel.meta))
    control.register_commands()
    assert set(Panel.data) == set(Panel.meta) == {"ping", SETTINGS_CHANGED, LIVES}


def test_workers_of_others_do_not_count_as_ours(emptied: Settings) -> None:
    """Of another cluster, or of another product, at the same Redis: those that answer with our database do."""
    broker, celery = World(emptied).app.resources.broker, Celery(broker=emptied.broker_url, set_as_current=False)
    names = {"ours@here": emptied.database, "another's@here": "another", "a shop@there": None}
    heard = threading.Event()

    def answer(name: str, database: str | None) -> None:
        with celery.connection() as connection:
            box = celery.control.mailbox.Node(name, channel=connection.default_channel)
            if database is not None:
                box.handlers[LIVES] = lambda _state: database
            box.listen(callback=box.handle_message)
            while not heard.is_set():
                with suppress(TimeoutError):
                    connection.drain_events(timeout=0.1)

    threads = [threading.Thread(target=answer, args=one) for one in names.items()]
    for thread in threads:
        thread.start()
    try:
        wait_until(lambda: broker.workers_answering(emptied.database, 0.5) == ["ours@here"], 20, "an answer")
    finally:
        heard.set()
        for thread in threads:
            thread.join()


def test_who_asks_all_the_time_is_answered_ten_times_a_second(
    emptied: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, celery = World(emptied, heartbeat_interval=60.0, heartbeat_timeout=180.0), Celery(set_as_current=False)
    lifeline = Lifeline(world.app, identify("one", ()), QueueConsumption(SimpleNamespace(app=celery), ()))
    beats: list[float] = []
    monkeypatch.setattr(lifeline, "beat_once", lambda: beats.append(time.monotonic()))
    monkeypatch.setattr(Running, "parts", SimpleNamespace(lifeline=lifeline))
    lifeline.start()
    until = time.monotonic() + 0.75
    while time.monotonic() < until:
        control.settings_changed(None)
    lifeline.stop()
    assert 2 <= len(beats) <= 9
