"""How fast overdue decisions are requeued, against a loop one by one and against the bare limit.

The loop is one findOneAndUpdate and one `apply_async` per decision, by a Celery application that has its connection.
The bare limit is one `update_many` per thousand with a constant update, and beside the next of them, as a scanner does
it, an LPUSH of messages that are built already: nothing is looked for, read back, judged, counted or built. What is
used for the first time, connections and threads, is used once before anything is measured.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import redis
from celery import Celery
from pymongo import MongoClient, WriteConcern

from recovery import Recovery, Settings
from recovery.queue import encode
from recovery.records import Decision, DecisionState, Graph, to_document
from recovery.records.ids import child_task_id, new_pass, new_process_id, record_id
from recovery.scan import DecisionScanner
from recovery.store import Queued, layout
from recovery.worker.start_up import keep_what_is_imported
from tests.bench.rows import Row, medians, ratio_row
from tests.bench.turns import in_turn, ratios

OVERDUE, PER_PROCESS, LOOP, REPEATS = 50_000, 10, 1_000, 5
LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)


def run(settings: Settings) -> list[Row]:
    app = Recovery(settings)
    database: Any = MongoClient(settings.mongo_uri, tz_aware=True)[settings.database]
    broker = redis.Redis.from_url(settings.broker_url)
    layout.create(database)
    fill(database)
    ids = [document["_id"] for document in database["decisions"].find({}, {"_id": 1})]
    celery = Celery(broker=settings.broker_url, set_as_current=False)
    celery.conf.task_ignore_result = True

    def scan() -> float:
        rate = _rate(database, broker, OVERDUE, lambda: _scan(app))
        assert sum(broker.llen(q) for q in ("a", "b")) == OVERDUE
        return rate

    def loop() -> float:
        return _rate(database, broker, LOOP, lambda: _one_by_one(database, celery, ids[:LOOP]))

    def limit() -> float:
        messages = [encode(Queued(i, "a", new_pass(), LONG_AGO)) for i in ids]
        return _rate(database, broker, OVERDUE, lambda: bare(database["decisions"], broker, ids, messages))

    keep_what_is_imported()  # as a worker does
    works = {"ours": scan, "one by one": loop, "bare limit": limit}
    in_turn(works, 1)
    found = in_turn(works, REPEATS)
    detail = medians(found, "a second")
    return [
        ratio_row("requeue 50,000 / one by one", ratios(found, "ours", "one by one"), ">= 20", detail),
        ratio_row("requeue 50,000 / bare limit", ratios(found, "ours", "bare limit"), ">= 0.6", detail),
    ]


def fill(database: Any, count: int = OVERDUE, deadline: datetime = LONG_AGO, actors: str = "ab") -> None:
    """Working decisions of whole processes, with their graphs."""
    for documents, graphs in _documents(count, deadline, actors):
        database["decisions"].insert_many(documents, ordered=False)
        database["graphs"].insert_many(graphs, ordered=False)


def _documents(count: int, deadline: datetime, actors: str) -> Iterator[tuple[list[Any], list[Any]]]:
    for first in range(0, count, 10_000):
        documents, graphs = [], []
        for _ in range(first, min(first + 10_000, count), PER_PROCESS):
            process_id = new_process_id()
            tasks = [child_task_id("start", 0, n) for n in range(PER_PROCESS)]
            graphs.append(to_document(Graph(
                id=process_id, not_finished=dict.fromkeys(tasks, deadline), touched_at=deadline,
                recovery_time=deadline + timedelta(days=3650),
            )))  # fmt: skip
            documents += [to_document(Decision(
                id=record_id(process_id, task), actor=actors[n % len(actors)], state=DecisionState.WORKING,
                pass_key=new_pass(), attempts=1, queued_at=deadline, claimed_at=deadline, worker="bench#1",
                recovery_time=deadline,
            )) for n, task in enumerate(tasks)]  # fmt: skip
        yield documents, graphs


def _rate(database: Any, broker: redis.Redis, count: int, work: Any) -> float:
    database["decisions"].update_many(
        {}, {"$set": {"state": "working", "recoveryTime": LONG_AGO, "worker": "bench#1", "timeouts": 0}}
    )
    broker.delete("a", "b")
    began = time.perf_counter()
    work()
    return float(count / (time.perf_counter() - began))


def _scan(app: Recovery) -> None:
    result = DecisionScanner(app.resources, app.outbox).run_once()
    assert sum(result.repaired.values()) == OVERDUE, result


def _one_by_one(database: Any, celery: Celery, ids: list[str]) -> None:
    decisions = database["decisions"].with_options(write_concern=WriteConcern(1))
    for decision_id in ids:
        found = decisions.find_one_and_update(
            {"_id": decision_id, "state": "working", "$expr": {"$lte": ["$recoveryTime", "$$NOW"]}},
            [{"$set": {"state": "queued", "pass": new_pass(), "recoveryTime": {"$add": ["$$NOW", 10_000]}}}],
            return_document=True,
        )
        celery.send_task(found["actor"], args=(decision_id, found["pass"]), queue=found["actor"])


def bare(decisions: Any, broker: redis.Redis, ids: list[str], messages: list[str]) -> None:
    decisions = decisions.with_options(write_concern=WriteConcern(1))

    def push(first: int) -> None:
        with broker.pipeline(transaction=False) as pipeline:
            pipeline.lpush("a", *messages[first : first + 1000])
            pipeline.execute()

    with ThreadPoolExecutor(max_workers=1) as beside:
        pushed = []
        for first in range(0, len(ids), 1000):
            decisions.update_many(
                {"_id": {"$in": ids[first : first + 1000]}},
                {"$set": {"state": "queued", "pass": "x", "recoveryTime": datetime.now(UTC)}},
            )
            pushed.append(beside.submit(push, first))
    for one in pushed:
        one.result()
