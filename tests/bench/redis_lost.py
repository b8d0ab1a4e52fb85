"""Redis is killed and loses all of its data while 10,000 tasks wait: when the first runs again, how fast all are pushed
again, and whether one is pushed twice.

The bare limit is `requeue`'s, of the same records: one `update_many` per thousand, and an LPUSH of messages that are
built already.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from functools import partial
from statistics import median
from typing import Any

import redis
from pymongo import MongoClient

from recovery import Recovery, Settings
from recovery.queue import encode
from recovery.records.ids import new_pass
from recovery.stack import Stack
from recovery.store import Queued
from tests.bench import apps, requeue, workers
from tests.bench.rows import Row, ratio_row, row
from tests.waiting import wait_until

WAITING, EACH, REPEATS, NAP = 10_000, 100, 3, 0.5
TIMEOUT = 60.0


def run(stack: Stack, settings: Settings) -> list[Row]:
    app = Recovery(settings)
    app.actors = apps.app.actors
    database: Any = MongoClient(settings.mongo_uri, tz_aware=True)[settings.database]
    decisions, broker = database["decisions"], redis.Redis.from_url(settings.broker_url)
    firsts, rates, twice = list[float](), list[float](), 0
    with workers.ours(stack, settings, 1, ["-c", "2"], beat=True):
        app.result(app.start("wide", 10), timeout=60)
        app.start_many("naps", [[EACH, NAP]] * (WAITING // EACH))
        wait_until(lambda: decisions.count_documents({"state": "queued"}) > 0.95 * WAITING, TIMEOUT, "all to wait")
        for number in range(1, REPEATS + 1):
            ids = [one["_id"] for one in decisions.find({"state": "queued"}, {"_id": True})]
            began = _lose(stack)
            # What is asked meanwhile must cost next to nothing: of what is at work there are two.
            ran = {"worker": {"$gt": ""}, "state": "working", "claimedAt": {"$gt": app.resources.store.now()}}
            wait_until(partial(decisions.find_one, ran, {"_id": True}, hint="worker"), TIMEOUT, "a task to run again")
            first = time.monotonic() - began
            wait_until(partial(_wait_again, broker, 0.95 * len(ids)), TIMEOUT, "all to be pushed again")
            again = list(decisions.find({"losses": number}, {"queuedAt": True}))
            moments = sorted(one["queuedAt"] for one in again)
            firsts.append(first)
            # All of a page are queued at the same moment: that of the first is not in between.
            rates.append((len(again) - 1000) / (moments[-1] - moments[0]).total_seconds())
            twice += decisions.count_documents({"losses": {"$gt": number}})
    bare = _bare(stack, decisions, ids)
    return [
        row("Redis lost: the first task runs again", max(firsts), "<= 2", "s"),
        ratio_row("Redis lost: pushed again / bare limit", [rate / bare for rate in rates], ">= 0.5", f"{bare:,.0f}/s"),
        row("Redis lost: tasks pushed twice", twice, "<= 0", "tasks"),
    ]


def _lose(stack: Stack) -> float:
    """Kill Redis with all that it has; when it is back."""
    assert stack.valkey is not None
    stack.valkey.kill()
    stack.valkey.lose_data()
    stack.valkey.start()
    return time.monotonic()


def _wait_again(broker: Any, least: float) -> bool:
    return bool(broker.llen("nap") >= least)


def _bare(stack: Stack, decisions: Any, ids: list[str]) -> float:
    broker = redis.Redis.from_url(stack.broker_url)
    messages = [encode(Queued(key, "a", new_pass(), datetime.now(UTC))) for key in ids]
    requeue.bare(decisions, broker, ids, messages)  # what is used for the first time
    took = [workers.seconds(lambda: requeue.bare(decisions, broker, ids, messages)) for _ in range(REPEATS)]
    return len(ids) / median(took)
