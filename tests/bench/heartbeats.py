"""What the heartbeats and polls of 100 workers cost mongod, each of which serves 100 actors: as lifelines write them,
from one process, at their own pace. Beside it, what as many updates of one number cost: no heartbeat is written for
less, and that tells how quick the machine is just now. And what the heartbeats add where mongod does other work: to
wake one that sleeps is much of what they cost."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import psutil
from celery import Celery

from recovery import Recovery, Settings
from recovery.store import schema
from recovery.store.concerns import RESTORABLE
from recovery.worker.identity import identify
from recovery.worker.lifeline.lifeline import Lifeline
from recovery.worker.messages.polls import Polls
from recovery.worker.messages.queue_consumption import QueueConsumption
from tests.bench.rows import Row, row
from tests.waiting import wait_until

WORKERS, ACTORS, SECONDS = 100, 100, 20.0
OTHERS = 200
"""Updates a second that mongod does besides, where it is not idle."""
MACHINES = 25
"""A worker looks whether those of its own machine are gone: of a hundred on this one, that is all this process did."""


def run(settings: Settings) -> list[Row]:
    app = Recovery(settings)
    for number in range(ACTORS):
        app.actor(f"actor_{number:03}")(_nothing)
    store = app.resources.store
    schema.create(store.database)
    store.actors.save(actor.preferences for actor in app.actors.values())
    polls, celery = Polls(), SimpleNamespace(app=Celery(set_as_current=False))
    queues = tuple(app.actors)
    workers = [identify(f"w{number}", queues).evolve(host=f"machine {number % MACHINES}") for number in range(WORKERS)]
    lifelines = [Lifeline(app, worker, QueueConsumption(celery, ()), polls) for worker in workers]
    for lifeline in lifelines:  # each has a record from here on
        polls.answered(queues)
        lifeline.beat_once()
    (mongod,) = [child for child in psutil.Process().children(recursive=True) if child.name() == "mongod"]
    rate = WORKERS / settings.heartbeat_interval
    turns = itertools.cycle(lifelines)

    def beat() -> None:
        polls.answered(queues)
        next(turns).beat_once()

    idle = _used(mongod, rate, beat)
    bare = store.database.get_collection("bare", write_concern=RESTORABLE)
    bare.insert_one({"_id": 0, "count": 0})

    def update() -> None:
        bare.update_one({"_id": 0}, {"$inc": {"count": 1}})

    least = _used(mongod, rate, update)
    with _others(update):
        without = _used(mongod, rate, _nothing)
        for _ in range(2 * WORKERS):  # what they missed meanwhile is looked at once
            beat()
        busy = _used(mongod, rate, beat)
    told = f"{rate:.0f} heartbeats a second, {WORKERS} workers, {ACTORS} actors"
    name, unit = f"{WORKERS} workers' heartbeats and polls: mongod", "% of a core"
    return [
        row(name, 100 * idle, "<= 10", unit, f"{told}; as many bare updates: {100 * least:.2f}"),
        row(f"{name}, beside {OTHERS} updates a second", 100 * (busy - without), "", unit, f"{100 * busy:.2f} in all"),
    ]


@contextmanager
def _others(work: Callable[[], object]) -> Iterator[None]:
    """Have some work done all the time, so often a second."""
    ending = threading.Event()

    def always() -> None:
        began = time.monotonic()
        for number in itertools.count():
            if ending.wait(max(0.0, began + number / OTHERS - time.monotonic())):
                break
            work()

    thread = threading.Thread(target=always, name="others")
    thread.start()
    try:
        yield
        assert thread.is_alive(), "the other work has failed: see above"
    finally:
        ending.set()
        thread.join()


def _used(mongod: Any, rate: float, work: Callable[[], object]) -> float:
    """The share of a core that mongod takes for some work, done so often a second."""
    began, before = time.monotonic(), _cpu(mongod)
    for number in range(round(SECONDS * rate)):
        due = began + number / rate
        wait_until(lambda due=due: time.monotonic() >= due, 1 + 1 / rate, "its time")
        work()
    took, used = time.monotonic() - began, _cpu(mongod) - before
    assert took < SECONDS * 1.05, f"{rate:.0f} a second are too many: it took {took:.1f} s"
    return used / took


def _cpu(process: Any) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _nothing() -> None:
    return
