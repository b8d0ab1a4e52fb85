"""What a scan costs when much is live and little is overdue: it must cost what is overdue.

1,000 overdue among 1,000,000 working decisions against 1,000 among 10,000, in time and in memory of the
scanner; and what the server looked at, from its own account.
"""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import redis
from pymongo import MongoClient

from recovery import Recovery, Settings
from recovery.scan import DecisionScanner
from recovery.store import layout
from recovery.store.expressions import OVERDUE, record_range
from tests.bench.requeue import LONG_AGO, PER_PROCESS, fill
from tests.bench.rows import Row, ratio_row, row
from tests.bench.workers import seconds

LARGE, SMALL, OVERDUE_COUNT, REPEATS = 1_000_000, 10_000, 1_000, 9
PROCESSES = OVERDUE_COUNT // PER_PROCESS


def run(settings: Settings) -> list[Row]:
    # A page over what is overdue, so that each scan is one page and one look for more.
    settings = settings.model_copy(update={"scan_batch": OVERDUE_COUNT + 1})
    sizes = {}
    for count in (SMALL, LARGE):
        there = settings.model_copy(update={"database": f"{settings.database}_{count}"})
        sizes[count] = (Recovery(there), MongoClient[Any](there.mongo_uri)[there.database])
        layout.create(sizes[count][1])
        fill(sizes[count][1], count, datetime.now(UTC) + timedelta(days=1))
    broker = redis.Redis.from_url(settings.broker_url)
    took: dict[int, list[float]] = {SMALL: [], LARGE: []}
    memory: dict[int, list[float]] = {SMALL: [], LARGE: []}
    for turn in range(REPEATS + 1):
        for count, (app, database) in list(sizes.items())[:: -1 if turn % 2 else 1]:
            looked_at = _make_overdue(database)
            assert looked_at == OVERDUE_COUNT, f"the server looked at {looked_at} documents for {OVERDUE_COUNT}"
            broker.flushdb()
            gc.collect()
            if turn == 0:  # warms up, and is measured for memory: tracing would spoil the time
                memory[count].append(peak(partial(_scan, app)))
            else:
                took[count].append(seconds(partial(_scan, app)))
    ratios = [large / small for large, small in zip(took[LARGE], took[SMALL], strict=True)]
    detail = f"median {sorted(took[LARGE])[REPEATS // 2] * 1000:.0f} ms among 1,000,000"
    grown = memory[LARGE][0] / memory[SMALL][0]
    return [
        ratio_row("scan of 1,000 overdue: among 1,000,000 / among 10,000", ratios, "<= 1.3", detail),
        row("its memory: among 1,000,000 / among 10,000", grown, "<= 1.1", "ratio", f"{memory[LARGE][0] / 1e6:.1f} MB"),
    ]


def _make_overdue(database: Any) -> int:
    """Make 1,000 decisions overdue; how many documents the query for them looks at."""
    decisions = database["decisions"]
    later = datetime.now(UTC) + timedelta(days=1)
    decisions.update_many({"state": "queued"}, {"$set": {"state": "working", "recoveryTime": later}})
    # All tasks of as many processes, spread over the collection, so that either scan has the same to do.
    sample = database["graphs"].aggregate([{"$sample": {"size": 2 * PROCESSES}}, {"$project": {"_id": 1}}])
    processes = list({document["_id"] for document in sample})[:PROCESSES]
    for process_id in processes:
        decisions.update_many(record_range(process_id), {"$set": {"recoveryTime": LONG_AGO}})
    return examined(database, "decisions", OVERDUE, limit=2 * OVERDUE_COUNT)


def examined(database: Any, collection: str, condition: Any, **options: Any) -> int:
    """How many documents the server looks at for a query, as it tells itself."""
    plan = database.command("explain", {"find": collection, "filter": condition, **options})
    return int(plan["executionStats"]["totalDocsExamined"])


def peak(scan: Callable[[], None]) -> float:
    """The most bytes that Python held while it scanned."""
    tracemalloc.start()
    scan()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return float(peak)


def _scan(app: Recovery) -> None:
    result = DecisionScanner(app.resources, app.outbox).run_once()
    assert sum(result.repaired.values()) == OVERDUE_COUNT, result
