"""How long after its deadline a task is requeued: 1,000,000 are being worked on, and 1 % fall overdue every 10 seconds.

The scanners are a real worker's, nudged by a real beat, with default settings. The tasks are of actors that nobody
serves: what was requeued is taken by the benchmark, as by workers, and gets a new deadline, so the load stays. The lag
is that of the records: `queuedAt` less the deadline that the task had.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import redis
from pymongo import MongoClient

from recovery import Recovery, Settings
from recovery.queue import parse_id
from recovery.stack import Stack
from tests.bench import workers
from tests.bench.requeue import fill
from tests.bench.rows import Row, row
from tests.waiting import wait_until

MANY, MANY_LEAD, MANY_ROUND = 1_000_000, 150, timedelta(seconds=1000)
"""Within a round all of them fall overdue once: a thousand a second."""
WORKING, SECONDS, LEAD = 100_000, 20, 10
ROUND = timedelta(seconds=100)
"""The same of fewer, which is sooner made."""
CLAIMED = {
    "state": "working", "worker": "bench#1",
    "recoveryTime": {"$add": ["$$NOW", ROUND // timedelta(milliseconds=1)]},
}  # fmt: skip


def run(stack: Stack, settings: Settings, count: int = MANY, seconds: int = SECONDS) -> list[Row]:
    store = Recovery(settings).resources.store
    database: Any = MongoClient(settings.mongo_uri, tz_aware=True)[settings.database]
    decisions = database["decisions"]
    with workers.ours(stack, settings, 1, ["-c", "1"], beat=True):
        fill(database, count, store.now() + timedelta(days=1))
        begin = store.now() + timedelta(seconds=MANY_LEAD)
        due = spread(decisions, begin, seconds, over=MANY_ROUND)
        assert store.now() < begin, "the first were overdue before all had their deadlines"
        queued = take(decisions, redis.Redis.from_url(settings.broker_url), due)
        working = decisions.count_documents({"state": "working"})
    late, detail = percentiles([(queued[one] - due[one]).total_seconds() for one in due])
    detail = f"{detail}; {len(due):,} in {seconds} s, {working:,} working"
    return [row("lag of a requeue, p99, past an interval", late - settings.scan_interval, "<= 0.1", "s", detail)]


def percentiles(lags: Sequence[float]) -> tuple[float, str]:
    """The p99 of lags in seconds, and what there is to tell of them."""
    ordered = sorted(lags)
    middle, late = ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100]
    return late, f"p50 {middle:.2f} s, p99 {late:.2f} s, max {ordered[-1]:.2f} s"


def spread(
    decisions: Any, begin: datetime, seconds: int, actors: str = "ab", over: timedelta = ROUND
) -> dict[str, datetime]:
    """Spread the deadlines of these actors' tasks over a round; those of the first `seconds`, by decision."""
    ours = {"actor": {"$in": list(actors)}}
    within = {"$floor": {"$multiply": [{"$rand": {}}, over.total_seconds() * 1000]}}
    decisions.update_many(ours, [{"$set": {"recoveryTime": {"$add": [begin, within]}}}])
    until = begin + timedelta(seconds=seconds)
    found = decisions.find({**ours, "recoveryTime": {"$lt": until}}, {"recoveryTime": True})
    return {document["_id"]: document["recoveryTime"] for document in found}


def take(decisions: Any, broker: redis.Redis, due: Mapping[str, datetime], queues: str = "ab") -> dict[str, datetime]:
    """Take what is requeued until all of `due` was: when each of them was."""
    queued = dict[str, datetime]()
    while len(queued) < len(due):
        ids = wait_until(lambda: _messages(broker, queues), 200, "what is overdue to be requeued")
        for decision in decisions.find({"_id": {"$in": ids}}, {"queuedAt": True}):
            if decision["_id"] in due:
                queued.setdefault(decision["_id"], decision["queuedAt"])
        decisions.update_many({"_id": {"$in": ids}, "state": "queued"}, [{"$set": CLAIMED}])
    return queued


def _messages(broker: redis.Redis, queues: str) -> list[str]:
    """Take all messages: the decisions that they hand over."""
    texts: Any = [text for queue in queues for text in broker.rpop(queue, WORKING) or ()]
    found = [parse_id(json.loads(text)["headers"]["id"]) for text in texts]
    return [message.decision_id for message in found if message is not None]
