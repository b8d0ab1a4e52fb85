"""Processes of one task that does nothing, against plain Celery's tasks that do nothing (`ignore_result`): per second.

The same broker, the same pools, all queued before the workers start; the clock runs from where a twentieth is done.
Ours are durable: an accepted start, each claim, result and end in MongoDB. Celery's are acknowledged before they run,
and a worker that is killed loses what it had.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from pymongo import MongoClient
from redis import Redis

from recovery import Recovery, Settings
from recovery.stack import Stack
from tests.bench import apps, workers
from tests.bench.rows import Row, medians, ratio_row
from tests.bench.turns import in_turn, ratios

TASKS, REPEATS, WARM = 6000, 3, 0.05
LOOK_EVERY, LONGEST = 0.1, 300.0
QUEUE = "plain.nothing"
POOLS = {
    "2 processes": (2, ["-c", "1"]),
    "4 processes": (2, ["-c", "2"]),
    "4 threads": (2, ["-c", "2", "-P", "threads"]),
}


def run(stack: Stack, settings: Settings) -> list[Row]:
    app = Recovery(settings)
    app.actors = apps.app.actors
    found = []
    for name, (count, options) in POOLS.items():

        def plain(count: int = count, options: list[str] = options) -> float:
            redis: Any = Redis.from_url(settings.broker_url)
            apps.plain.conf.update(broker_url=settings.broker_url)
            for _ in range(TASKS):
                apps.plain_nothing.apply_async(queue=QUEUE)
            with workers.plain(stack, settings, count, [*options, "-Q", QUEUE], ready=False):
                return _per_second(lambda: TASKS - int(redis.llen(QUEUE)))

        def ours(count: int = count, options: list[str] = options) -> float:
            database: Any = MongoClient(settings.mongo_uri)[settings.database]
            first = app.start("nothing")
            for _ in range(TASKS - 1):
                app.start("nothing")
            done = {"_id": {"$gte": first}, "state": "finished"}
            with workers.ours(stack, settings, count, options, ready=False):
                return _per_second(lambda: int(database["processes"].count_documents(done)))

        speeds = in_turn({"Celery": plain, "ours": ours}, REPEATS)
        title = f"one-task processes, {name} / Celery's tasks"
        found.append(ratio_row(title, ratios(speeds, "ours", "Celery"), ">= 1", medians(speeds, "tasks/s")))
    return found


def _per_second(done: Callable[[], int]) -> float:
    """From where some are done on until all are; looked at rarely, since to count them costs, too."""
    first, began = 0, 0.0
    until, pause = time.monotonic() + LONGEST, threading.Event()
    while (now := done()) < TASKS:
        if not began and now >= WARM * TASKS:
            first, began = now, time.perf_counter()
        assert time.monotonic() < until, f"{now} of {TASKS} are done after {LONGEST:g} s"
        pause.wait(LOOK_EVERY)
    return (TASKS - first) / (time.perf_counter() - began)
