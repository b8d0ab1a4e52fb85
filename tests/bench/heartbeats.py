"""What the heartbeats and polls of 100 workers cost mongod, each of which serves 100 actors: their lifelines beat by
themselves, all from one process, begun evenly spread over an interval. Beside it, what as many updates of one number
cost that come one by one: nobody beats for less, and that tells how quick the machine is just now. And what heartbeats
add where mongod does other work: to wake one that sleeps is much of what they cost."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any

import psutil
from celery import Celery

from recovery import Recovery, Settings
from recovery.store import layout
from recovery.store.concerns import RESTORABLE
from recovery.worker.identity import identify
from recovery.worker.lifeline.lifeline import Lifeline
from recovery.worker.messages.queue_consumption import Polls, QueueConsumption
from tests.bench.rows import Row, row
from tests.documents import database_of
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
    layout.create(database_of(store))
    store.actors.save(actor.preferences for actor in app.actors.values())
    celery, queues = SimpleNamespace(app=Celery(set_as_current=False)), tuple(app.actors)
    workers = [identify(f"w{number}", queues).evolve(host=f"machine {number % MACHINES}") for number in range(WORKERS)]
    polls = [Polls() for _ in workers]
    consuming = QueueConsumption(celery, ())
    lifelines = [Lifeline(app, worker, consuming, each) for worker, each in zip(workers, polls, strict=True)]
    (mongod,) = [child for child in psutil.Process().children(recursive=True) if child.name() == "mongod"]
    rate = WORKERS / settings.heartbeat_interval
    bare = database_of(store).get_collection("bare", write_concern=RESTORABLE)
    bare.insert_one({"_id": 0, "count": 0})

    def update() -> None:
        bare.update_one({"_id": 0}, {"$inc": {"count": 1}})

    none, least = _used(mongod, 1, _nothing), _used(mongod, rate, update)
    with _always(OTHERS, update):
        without = _used(mongod, 1, _nothing)
    for lifeline, each in zip(lifelines, polls, strict=True):  # each has a record from here on
        each.answered(queues)
        lifeline.beat_once()

    def poll() -> None:
        for each in polls:
            each.answered(queues)

    with _always(1, poll), _beating(lifelines, settings.heartbeat_interval / WORKERS):
        _used(mongod, 1, _nothing)  # what is polled again at first is looked at
        before = _beats(database_of(store))
        idle = _used(mongod, 1, _nothing)
        beats = (_beats(database_of(store)) - before) / SECONDS
        assert abs(beats / rate - 1) < 0.05, f"{beats:.1f} heartbeats a second, not {rate:.0f}"
        with _always(OTHERS, update):
            busy = _used(mongod, 1, _nothing)
    told = f"{rate:.0f} heartbeats a second, {WORKERS} workers, {ACTORS} actors"
    told += f"; as many bare updates: {100 * least:.2f}; none: {100 * none:.2f}"
    name, unit = f"{WORKERS} workers' heartbeats and polls: mongod", "% of a core"
    return [
        row(name, 100 * idle, "<= 12", unit, told),
        row(f"{name}, beside {OTHERS} updates a second", 100 * (busy - without), "", unit, f"{100 * busy:.2f} in all"),
    ]


@contextmanager
def _beating(lifelines: Iterable[Lifeline], apart: float) -> Iterator[None]:
    """Have lifelines beat, begun so many seconds apart."""
    with ExitStack() as stack:
        began = time.monotonic()
        for number, lifeline in enumerate(lifelines):
            _wait(began + number * apart)
            lifeline.start()
            stack.callback(lifeline.stop)
        yield


def _beats(database: Any) -> int:
    """How many heartbeats were written: nothing else here finds and modifies."""
    return int(database.command("serverStatus")["metrics"]["commands"]["findAndModify"]["total"])


@contextmanager
def _always(rate: float, work: Callable[[], object]) -> Iterator[None]:
    """Have some work done all the time, so often a second."""
    ending = threading.Event()

    def always() -> None:
        began = time.monotonic()
        for number in itertools.count():
            if ending.wait(max(0.0, began + number / rate - time.monotonic())):
                break
            work()

    thread = threading.Thread(target=always, name="beside")
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
        _wait(began + number / rate)
        work()
    _wait(began + SECONDS)
    took, used = time.monotonic() - began, _cpu(mongod) - before
    assert took < SECONDS * 1.05, f"{rate:.0f} a second are too many: it took {took:.1f} s"
    return used / took


def _wait(until: float) -> None:
    wait_until(lambda: time.monotonic() >= until, SECONDS, "its time")


def _cpu(process: Any) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _nothing() -> None:
    return
