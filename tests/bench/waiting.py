"""What a million tasks cost that wait in queues which nobody serves: how many records are written for them while
nothing happens, beside a worker of other actors that scans."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

from pymongo import MongoClient

from recovery import Settings
from recovery.limits import WAITS_FOR
from recovery.stack import Stack
from recovery.store import layout
from tests.bench import workers
from tests.bench.requeue import fill
from tests.bench.rows import Row, row
from tests.waiting import wait_until

WAITING, SETTLE, SECONDS = 1_000_000, 10.0, 60.0


def run(stack: Stack, settings: Settings) -> list[Row]:
    client: Any = MongoClient(settings.mongo_uri, tz_aware=True)
    database = client[settings.database]
    layout.create(database)
    fill(database, WAITING, datetime.now(UTC) + timedelta(days=1))
    spread = {"$multiply": [{"$rand": {}}, round(WAITS_FOR * 1000)]}
    queued = {"state": "queued", "recoveryTime": {"$add": ["$$NOW", spread]}}
    database["decisions"].update_many({}, [{"$set": queued}, {"$unset": "worker"}])
    with workers.ours(stack, settings, 1, ["-c", "2"], beat=True):
        _wait(SETTLE)
        before = _written(client)
        _wait(SECONDS)
        written = (_written(client) - before) / SECONDS
    waits = database["decisions"].count_documents({"state": "queued"})
    return [row("a million queued, not served: records written", written, "<= 50", "a second", f"{waits:,} wait")]


def _wait(seconds: float) -> None:
    began = time.monotonic()
    wait_until(lambda: time.monotonic() - began > seconds, seconds + 5, "a while in which nothing happens")


def _written(client: Any) -> float:
    return float(client.admin.command("serverStatus")["metrics"]["document"]["updated"])
