"""What it costs to read what a majority has, against the primary's own word: one record by its id, and a thousand, on
one node and on three, while another client writes."""

from __future__ import annotations

import random
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from recovery import Settings
from recovery.stack import Stack
from recovery.store import Store, layout, schema
from recovery.store.concerns import committed, current
from tests.bench.requeue import fill
from tests.bench.rows import Row, ratio_row
from tests.bench.workers import seconds
from tests.documents import database_of

RECORDS, TOGETHER, ONES, PAGES, TURNS = 20_000, 1_000, 500, 5, 15


def run(settings: Settings) -> list[Row]:
    found = _measured(settings, "one node")
    with tempfile.TemporaryDirectory() as folder, Stack(Path(folder), mongo_nodes=3) as three:
        return found + _measured(settings.model_copy(update={"mongo_uri": three.mongo_uri}), "three nodes")


def _measured(settings: Settings, where: str) -> list[Row]:
    database: Any = database_of(Store(settings))
    layout.create(database)
    fill(database, RECORDS, datetime.now(UTC) + timedelta(days=1))
    decisions = database[schema.DECISIONS]
    ids = [found["_id"] for found in decisions.find({}, {"_id": True})]
    rows = []
    with _written(decisions, ids):
        for what, read, times in (("one record", _one, ONES), (f"{TOGETHER:,} records", _page, PAGES)):
            ratios = []
            for turn in range(TURNS):
                order = [committed, current] if turn % 2 else [current, committed]
                took = {kind: seconds(_reading(read, kind(decisions), ids, times)) for kind in order}
                ratios.append(took[committed] / took[current])
            rows.append(ratio_row(f"read of {what}, {where}: of a majority / of the primary", ratios, ""))
    return rows


def _reading(read: Callable[[Any, list[str]], None], decisions: Any, ids: list[str], times: int) -> Callable[[], None]:
    def repeated() -> None:
        for _ in range(times):
            read(decisions, ids)

    return repeated


def _one(decisions: Any, ids: list[str]) -> None:
    assert decisions.find_one({"_id": random.choice(ids)})


def _page(decisions: Any, ids: list[str]) -> None:
    first = random.randrange(len(ids) - TOGETHER)
    assert len(list(decisions.find({"_id": {"$in": ids[first : first + TOGETHER]}}))) == TOGETHER


@contextmanager
def _written(decisions: Any, ids: list[str]) -> Iterator[None]:
    """Meanwhile they change, a hundred a second, so a majority has others than the primary."""
    ending = threading.Event()

    def write() -> None:
        while not ending.wait(0.01):
            current(decisions).update_one({"_id": random.choice(ids)}, [{"$set": {"claimedAt": "$$NOW"}}])

    writing = threading.Thread(target=write)
    writing.start()
    yield
    ending.set()
    writing.join()
