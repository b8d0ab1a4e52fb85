"""All of Redis is lost: how fast 50,000 queued decisions without a message are found and pushed again.

Against the same decisions requeued for WORK_TIMEOUT, in one run: there a deadline is the evidence, here the queues
are, which the first page that is pushed fills again.
"""

from __future__ import annotations

import time
from typing import Any

import redis
from pymongo import MongoClient

from recovery import Recovery, Settings
from recovery.rules import Rule
from recovery.scan import DecisionScanner
from recovery.store import layout
from tests.bench.requeue import LONG_AGO, OVERDUE, fill
from tests.bench.rows import Row, medians, ratio_row
from tests.bench.turns import in_turn, ratios

REPEATS = 5
ACTORS = ("a", "b")
HELD = {"state": "working", "recoveryTime": LONG_AGO, "worker": "bench#1", "timeouts": 0}
QUEUED = {"state": "queued", "recoveryTime": LONG_AGO, "queuedAt": LONG_AGO}


def run(settings: Settings, count: int = OVERDUE, repeats: int = REPEATS) -> list[Row]:
    app = Recovery(settings)
    database: Any = MongoClient(settings.mongo_uri, tz_aware=True)[settings.database]
    broker = redis.Redis.from_url(settings.broker_url)
    layout.create(database)
    fill(database, count)

    def timed_out() -> float:
        _prepare(app, database, broker, {"$set": HELD})
        return count / _scan(app, Rule.WORK_TIMEOUT, count)

    def lost() -> float:
        _prepare(app, database, broker, {"$set": QUEUED, "$unset": {"worker": ""}})
        rate = count / _scan(app, Rule.MESSAGE_LOST, count)
        pushed: Any = sum(broker.llen(queue) for queue in ACTORS)
        assert pushed == count, f"{pushed} messages for {count} decisions"
        return rate

    works = {"timed out": timed_out, "lost": lost}
    in_turn(works, 1)  # what is used for the first time is not measured
    found = in_turn(works, repeats)
    name = f"{count:,} lost messages / as many time-outs"
    return [ratio_row(name, ratios(found, "lost", "timed out"), ">= 0.3", medians(found, "a second"))]


def _prepare(app: Recovery, database: Any, broker: redis.Redis, change: dict[str, Any]) -> None:
    """All in one state, Redis as it is after its loss, and the statistics of workers that have just begun to poll."""
    database["decisions"].update_many({}, change)
    database["queues"].delete_many({})
    broker.flushdb()
    app.resources.store.queues.polled(dict.fromkeys(ACTORS))


def _scan(app: Recovery, rule: Rule, count: int) -> float:
    began = time.perf_counter()
    result = DecisionScanner(app.resources, app.outbox).run_once()
    took = time.perf_counter() - began
    assert (result.error, result.repaired) == (None, {rule: count}), result
    return took
