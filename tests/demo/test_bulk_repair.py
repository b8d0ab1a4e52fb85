"""The kill in the midst of a repair comes in its midst, and nobody waits for ever for one that nobody carries out."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from recovery import operations
from recovery.demo import disaster
from recovery.demo.disaster import BulkRepair
from recovery.records import Operation, Phase
from recovery.settings import Settings
from tests.operations.ordering import Ordering
from tests.sweep.database import Database
from tests.sweep.shapes import graph_missing

SECONDS, COUNT = 30.0, 8


@pytest.fixture
def world(emptied: Settings) -> Ordering:
    return Ordering(emptied)


def nothing(*_: object) -> None:
    """No word, and no step."""


@contextmanager
def at_work(world: Ordering) -> Iterator[None]:
    """A worker, in a thread."""
    worker, ending = world.worker(), threading.Event()

    def work() -> None:
        while not ending.wait(0.02):
            worker.run_once(0.1)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        worker.stop()
        thread.join()


def test_who_is_at_it_is_killed_when_half_of_it_is_done(world: Ordering, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disaster, "LOOK_EVERY", 0.05)
    database, seen = Database(world.settings), list[tuple[Operation, int]]()
    for _ in range(COUNT):
        database.add(graph_missing)
    world.store.catch_up(10)

    def kill() -> None:
        (now,) = world.store.operations.newest(1)
        seen.append((now, operations.progress(world.app.resources, now).totals.done))

    with at_work(world):
        repaired = BulkRepair(world.app.resources, nothing, nothing, kill).run(time.monotonic() + SECONDS)
    assert (repaired.state, repaired.problem) == ("finished", None)
    ((now, done),) = seen
    assert now.phase is Phase.APPLY
    assert repaired.killed is not None and (repaired.killed.done, repaired.killed.of) == (done, COUNT)
    assert COUNT / 2 <= done < COUNT
    assert world.store.database["graphs"].count_documents({}) == COUNT


def test_one_that_nobody_carries_out_is_waited_for_till_then(world: Ordering) -> None:
    began = time.monotonic()
    told = BulkRepair(world.app.resources, nothing, nothing).run(began + 0.3)
    assert time.monotonic() - began < 5
    assert told.problem == "operation 1 is planning, and the time has run out"


def test_where_nothing_is_found_nobody_can_be_killed(world: Ordering) -> None:
    with at_work(world):
        told = BulkRepair(world.app.resources, nothing, nothing, nothing).run(time.monotonic() + SECONDS)
    assert told.killed is None
    assert told.problem == "operation 1 found nothing to repair, so no worker was killed half way"
