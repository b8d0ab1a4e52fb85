"""Whether operations make recovery late: six of them go through 20,000 processes at once, again and again, while 1 % of
100,000 tasks of other processes fall overdue every second.

As in `lag`, the scanners are a real worker's, which works at the operations as well: checks and repairs of everything
there is of one type, and an abort of a quarter of them.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import redis
from pymongo import MongoClient

from recovery import Recovery, Settings, operations
from recovery.engine import Resources
from recovery.operations import OperationRequest
from recovery.records import OperationState
from recovery.stack import Stack
from tests.bench import workers
from tests.bench.lag import LEAD, WORKING, percentiles, spread, take
from tests.bench.requeue import fill
from tests.bench.rows import Row, row
from tests.bench.sweep_data import fill as fill_processes

PROCESSES, AT_ONCE, CALM, SECONDS = 20_000, 6, 15, 45
"""How many operations there are at once, when they begin, and how long all of it is looked at, in seconds."""
LOOK_EVERY = 0.2


def run(stack: Stack, settings: Settings, count: int = WORKING, processes: int = PROCESSES) -> list[Row]:
    resources = Recovery(settings).resources
    store = resources.store
    database: Any = MongoClient(settings.mongo_uri, tz_aware=True)[settings.database]
    decisions, broker = database["decisions"], redis.Redis.from_url(settings.broker_url)
    fill_processes(settings, processes)  # before there are scanners: they would repair what is half written
    with workers.ours(stack, settings, 1, ["-c", "1"], beat=True):
        fill(database, count, store.now() + timedelta(days=1))
        begin = store.now() + timedelta(seconds=2 * LEAD)
        due = spread(decisions, begin, SECONDS)
        strikes, ending = begin + timedelta(seconds=CALM), threading.Event()
        assert store.now() < begin, "the first were overdue before all had their deadlines"
        with ThreadPoolExecutor(1) as beside:
            busy = beside.submit(_operate, resources, strikes, ending)
            try:
                queued = take(decisions, broker, due)
            finally:
                ending.set()
        begun = busy.result()  # or what it failed for: then nothing was beside
    done = database["operations"].count_documents({"state": "finished"})
    if begun < AT_ONCE or not done:
        raise AssertionError(f"nothing was measured: {begun} operations were begun, and {done} ended")
    looked_at = sum((one.planned.processes if one.planned else 0) for one in store.operations.newest(10_000))
    calm = [(queued[one] - at).total_seconds() for one, at in due.items() if at < strikes]
    late = [(queued[one] - at).total_seconds() for one, at in due.items() if at >= strikes]
    p99, told = percentiles(late)
    before = percentiles(calm)[1]
    detail = f"{told} of {len(late):,}; {done} operations ended, {looked_at:,} processes looked at; before: {before}"
    return [row("lag beside operations, p99", p99 / settings.scan_interval, "<= 2", "intervals", detail)]


def _operate(resources: Resources, begin: Any, ending: threading.Event) -> int:
    """Keep so many operations going, from then on; how many were begun."""
    while resources.store.now() < begin:
        ending.wait(LOOK_EVERY)
    asked = [
        *(OperationRequest("check", "type:orders") for _ in range(AT_ONCE - 3)),
        *(OperationRequest("repair", "type:orders", apply=True) for _ in range(2)),
        OperationRequest("abort", "type:orders state:running", apply=True, rate=200.0),
    ]
    numbers = [operations.start(resources, one, "a bench").id for one in asked]
    begun = len(numbers)
    while not ending.wait(LOOK_EVERY):
        for place, number in enumerate(numbers[:-1]):
            if operations.find(resources, number).state is OperationState.FINISHED:
                numbers[place] = operations.start(resources, asked[place], "a bench").id
                begun += 1
    return begun
