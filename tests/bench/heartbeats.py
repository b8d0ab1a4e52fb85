"""What the heartbeats and polls of 100 workers cost mongod, each of which serves 100 actors: as lifelines write them,
from one process, at their own pace."""

from __future__ import annotations

import itertools
import time
from types import SimpleNamespace
from typing import Any

import psutil
from celery import Celery

from recovery import Recovery, Settings
from recovery.store import schema
from recovery.worker.identity import identify
from recovery.worker.lifeline.lifeline import Lifeline
from recovery.worker.messages.polls import Polls
from recovery.worker.messages.queue_consumption import QueueConsumption
from tests.bench.rows import Row, row
from tests.waiting import wait_until

WORKERS, ACTORS, SECONDS = 100, 100, 20.0


def run(settings: Settings) -> list[Row]:
    app = Recovery(settings)
    for number in range(ACTORS):
        app.actor(f"actor_{number:03}")(_nothing)
    store = app.resources.store
    schema.create(store.database)
    store.actors.save(actor.preferences for actor in app.actors.values())
    polls, celery = Polls(), SimpleNamespace(app=Celery(set_as_current=False))
    queues = tuple(app.actors)
    lifelines = [
        Lifeline(app, identify(f"w{number}", queues), QueueConsumption(celery, ()), polls) for number in range(WORKERS)
    ]
    for lifeline in lifelines:  # each has a record from here on
        polls.answered(queues)
        lifeline.beat_once()
    (mongod,) = [child for child in psutil.Process().children(recursive=True) if child.name() == "mongod"]
    pace = settings.heartbeat_interval / WORKERS
    began, before, beats = time.monotonic(), _cpu(mongod), 0
    for number, lifeline in enumerate(itertools.cycle(lifelines)):
        due = began + number * pace
        if due - began >= SECONDS:
            break
        wait_until(lambda due=due: time.monotonic() >= due, 1 + pace, "the next heartbeat's time")
        polls.answered(queues)
        lifeline.beat_once()
        beats += 1
    took, used = time.monotonic() - began, _cpu(mongod) - before
    told = f"{beats / took:.0f} heartbeats a second, {WORKERS} workers, {ACTORS} actors"
    assert took < SECONDS * 1.05, f"they can't keep up: {told}"
    return [row("100 workers' heartbeats and polls: mongod", 100 * used / took, "<= 10", "% of a core", told)]


def _cpu(process: Any) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _nothing() -> None:
    return
