"""What a Graph scan and a Process scan cost when many processes are live and few are overdue.

1,000 overdue among 200,000 live ones against 1,000 among 10,000, in time and in memory of the scanner; and what the
server looked at, from its own account. The overdue ones are healthy: each is read whole, judged, and put off, so each
run makes others overdue.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import bson
from bson.raw_bson import RawBSONDocument
from pymongo import MongoClient

from recovery import Recovery, Settings
from recovery.records import Decision, DecisionState, Graph, Process, Task, to_document
from recovery.records.ids import START_TASK, new_process_id, record_id
from recovery.scan import GraphScanner, ProcessScanner
from recovery.store import layout, schema
from recovery.store.expressions import OVERDUE
from tests.bench.requeue import LONG_AGO
from tests.bench.rows import Row, ratio_row, row
from tests.bench.scan_cost import examined, peak
from tests.bench.sweep_data import TEMPLATE_ID
from tests.bench.workers import seconds
from tests.documents import database_of

LARGE, SMALL, OVERDUE_COUNT, REPEATS = 200_000, 10_000, 1_000, 13
AT_ONCE = 5_000
SCANNERS: dict[str, Callable[[Recovery], GraphScanner | ProcessScanner]] = {
    schema.GRAPHS: lambda app: GraphScanner(app.resources, app.outbox),
    schema.PROCESSES: lambda app: ProcessScanner(app.resources, app.outbox),
}
"""By the collection in which the deadlines stand."""


def run(settings: Settings, large: int = LARGE, small: int = SMALL) -> list[Row]:
    apps = {}
    for count in (small, large):
        there = settings.model_copy(update={"database": f"{settings.database}_{count}"})
        apps[count] = Recovery(there)
        database: Any = MongoClient(there.mongo_uri)[there.database]
        layout.create(database)
        fill(database, count)
    rows = list[Row]()
    for name in SCANNERS:
        rows += _measure(name, apps, large, small)
    return rows


def _measure(name: str, apps: dict[int, Recovery], large: int, small: int) -> list[Row]:
    took: dict[int, list[float]] = {small: [], large: []}
    memory = dict[int, float]()
    for turn in range(REPEATS + 1):
        for count, app in list(apps.items())[:: -1 if turn % 2 else 1]:
            _make_overdue(app, name)
            gc.collect()
            if turn == 0:  # warms up, and is measured for memory: tracing would spoil the time
                memory[count] = peak(partial(_scan, app, name))
            else:
                took[count].append(seconds(partial(_scan, app, name)))
    ratios = [most / few for most, few in zip(took[large], took[small], strict=True)]
    detail = f"median {sorted(took[large])[REPEATS // 2] * 1000:.0f} ms among {large:,}"
    among = f"among {large:,} / among {small:,}"
    return [
        ratio_row(f"{name} scan, 1,000 overdue: {among}", ratios, "<= 1.3", detail),
        row(f"its memory: {among}", memory[large] / memory[small], "<= 1.1", "ratio", f"{memory[large] / 1e6:.1f} MB"),
    ]


def fill(database: Any, count: int) -> None:
    """Running processes, each with a start task that is being worked on, whose deadlines are all to come."""
    now = datetime.now(UTC)
    later, key = now + timedelta(days=1), record_id(TEMPLATE_ID, START_TASK)
    day = timedelta(days=1).total_seconds()
    records = {
        schema.PROCESSES: Process(
            id=TEMPLATE_ID, type="order", args="[[],{}]", started_at=now, recovery_time=later, idle_timeout=day
        ),
        schema.TASKS: Task(id=key, actor="order", args="[[],{}]"),
        schema.DECISIONS: Decision(
            id=key, actor="order", state=DecisionState.WORKING, pass_key="k", attempts=1, queued_at=now, claimed_at=now,
            worker="bench#1", recovery_time=later,
        ),
        schema.GRAPHS: Graph(
            id=TEMPLATE_ID, not_finished={START_TASK: now}, touched_at=now, recovery_time=later, idle_timeout=day
        ),
    }  # fmt: skip
    templates = {name: bson.encode(to_document(record)) for name, record in records.items()}
    for first in range(0, count, AT_ONCE):
        ids = [new_process_id().encode() for _ in range(first, min(first + AT_ONCE, count))]
        for name, template in templates.items():
            documents = [RawBSONDocument(template.replace(TEMPLATE_ID.encode(), one)) for one in ids]
            database[name].insert_many(documents, ordered=False)


def _make_overdue(app: Recovery, name: str) -> None:
    """Make 1,000 overdue, spread over the collection; the server must look at them alone to find them."""
    collection = database_of(app.resources.store)[name]
    sample = collection.aggregate([{"$sample": {"size": 2 * OVERDUE_COUNT}}, {"$project": {"_id": 1}}])
    chosen = list({document["_id"] for document in sample})[:OVERDUE_COUNT]
    collection.update_many({"_id": {"$in": chosen}}, {"$set": {"recoveryTime": LONG_AGO}})
    database = database_of(app.resources.store)
    looked_at = examined(database, name, OVERDUE, sort={"recoveryTime": 1}, limit=2 * OVERDUE_COUNT)
    assert looked_at == OVERDUE_COUNT, f"the server looked at {looked_at} documents of {name} for {OVERDUE_COUNT}"


def _scan(app: Recovery, name: str) -> None:
    result = SCANNERS[name](app).run_once()
    assert (result.error, result.looked_at, result.repaired.total()) == (None, OVERDUE_COUNT, 0), result
