"""Four scanners at once on 400,000 overdue tasks, each a process of its own, against one: how many records they look
at, and how fast all are queued again. They share one MongoDB."""

from __future__ import annotations

import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.synchronize import Barrier
from typing import Any

import redis
from pymongo import MongoClient

from recovery import Recovery, Settings
from recovery.queue import Kept
from recovery.scan import DecisionScanner
from recovery.settings import load
from recovery.store import schema
from recovery.worker.scanning import TURN
from recovery.worker.start_up import keep_what_is_imported, take_short_turns
from tests.bench.requeue import LONG_AGO, fill
from tests.bench.rows import Row, ratio_row

OVERDUE, SCANNERS, REPEATS = 400_000, 4, 3
_scanner: list[DecisionScanner] = []
_all_there: list[Barrier] = []


def run(settings: Settings) -> list[Row]:
    database: Any = MongoClient(settings.mongo_uri, tz_aware=True)[settings.database]
    broker = redis.Redis.from_url(settings.broker_url)
    schema.create(database)
    fill(database, OVERDUE)
    spawn = multiprocessing.get_context("spawn")
    given = settings.mongo_uri, settings.broker_url, settings.database, spawn.Barrier(SCANNERS)
    looked, speed = list[float](), list[float]()
    with ProcessPoolExecutor(SCANNERS, spawn, _begin, given) as pool:
        list(pool.map(_warm_up, range(SCANNERS)))
        for _ in range(REPEATS):
            took, seen = {}, {}
            for count in (1, SCANNERS):
                again = {"state": "working", "recoveryTime": LONG_AGO, "worker": "bench#1", "timeouts": 0}
                database["decisions"].update_many({}, {"$set": again})
                broker.flushdb()
                Kept(settings.broker_url).note()  # as one that lost nothing
                began = time.perf_counter()
                seen[count] = sum(pool.map(_scan, range(count)))
                took[count] = time.perf_counter() - began
                pushed = broker.llen("a") + broker.llen("b")
                assert pushed == OVERDUE, f"{pushed:,} messages of {OVERDUE:,}, by {count}"
            looked.append(seen[SCANNERS] / seen[1])
            speed.append(took[1] / took[SCANNERS])
    detail = f"{OVERDUE / took[1]:,.0f} a second by one, {OVERDUE / took[SCANNERS]:,.0f} by {SCANNERS}"
    return [
        ratio_row("four scanners / one: records looked at", looked, "<= 1.2"),
        ratio_row("four scanners / one: speed", speed, ">= 0.95", detail),
    ]


def _begin(mongo_uri: str, broker_url: str, database: str, all_there: Barrier) -> None:
    _all_there.append(all_there)
    # What is queued again is not overdue again before all is.
    app = Recovery(load(mongo_uri=mongo_uri, broker_url=broker_url, database=database, message_timeout=600))
    _scanner.append(DecisionScanner(app.resources, app.applier))
    keep_what_is_imported()  # as a worker does
    take_short_turns()


def _warm_up(_: int) -> None:
    _all_there[0].wait()  # each process has one of these


def _scan(_: int) -> int:
    """Until nothing is overdue, in runs as long as a worker's; how many records it looked at."""
    looked = 0
    while True:
        result = _scanner[0].run_once(TURN)
        looked += result.looked_at
        if not result.more and not next(_scanner[0].resources.store.decisions.overdue_pages(1), None):
            return looked
