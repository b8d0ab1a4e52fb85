"""Four scanners at once on 400,000 overdue tasks, each a process of its own, against one: how many records they look
at, and how fast all are queued again. They share one MongoDB. Each is nudged a second after a run that has nothing more
to do, or was outrun by the others."""

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
from recovery.store import layout
from recovery.worker.scanning import TURN
from recovery.worker.start_up import keep_what_is_imported
from tests.bench.requeue import fill
from tests.bench.rows import Row, medians, ratio_row
from tests.bench.turns import in_turn, ratios

OVERDUE, SCANNERS, REPEATS = 400_000, 4, 4
NUDGED_EVERY = 1.0
_scanner: list[DecisionScanner] = []
_all_there: list[Barrier] = []


def run(settings: Settings) -> list[Row]:
    database: Any = MongoClient(settings.mongo_uri, tz_aware=True)[settings.database]
    broker = redis.Redis.from_url(settings.broker_url)
    spawn = multiprocessing.get_context("spawn")
    given = settings.mongo_uri, settings.broker_url, settings.database, spawn.Barrier(SCANNERS)
    with ProcessPoolExecutor(SCANNERS, spawn, _begin, given) as pool:
        list(pool.map(_warm_up, range(SCANNERS)))
        looked = dict[str, list[int]]()

        def by(name: str, count: int) -> float:
            # Of new records: MongoDB keeps for five minutes what was in those of the storm before, and each would cost
            # some percent more than the last.
            for collection in ("decisions", "graphs"):
                database[collection].drop()
            layout.create(database)
            fill(database, OVERDUE)
            database.client.admin.command("fsync")
            broker.flushdb()
            Kept(settings.broker_url).note()  # as one that lost nothing
            began = time.perf_counter()
            looked.setdefault(name, []).append(sum(pool.map(_scan, range(count))))
            took = time.perf_counter() - began
            pushed = broker.llen("a") + broker.llen("b")
            assert pushed == OVERDUE, f"{pushed:,} messages of {OVERDUE:,}, by {name}"
            return OVERDUE / took

        speed = in_turn({"one": lambda: by("one", 1), "four": lambda: by("four", SCANNERS)}, REPEATS)
    return [
        ratio_row("four scanners / one: records looked at", ratios(looked, "four", "one"), "<= 1.2"),
        ratio_row("four scanners / one: speed", ratios(speed, "four", "one"), ">= 0.95", medians(speed, "a second")),
    ]


def _begin(mongo_uri: str, broker_url: str, database: str, all_there: Barrier) -> None:
    _all_there.append(all_there)
    # What is queued again is not overdue again before all is.
    app = Recovery(load(mongo_uri=mongo_uri, broker_url=broker_url, database=database, message_timeout=600))
    _scanner.append(DecisionScanner(app.resources, app.outbox))
    keep_what_is_imported()  # as a worker does


def _warm_up(_: int) -> None:
    _all_there[0].wait()  # each process has one of these


def _scan(_: int) -> int:
    """Until nothing is overdue, in runs as long as a worker's; how many records it looked at."""
    store = _scanner[0].resources.store
    looked = 0
    while True:
        result = _scanner[0].run_once(TURN)
        assert result.error is None, result
        looked += result.looked_at
        if not result.more:
            if not next(store.decisions.overdue_pages(1), None):
                return looked
            time.sleep(NUDGED_EVERY)
