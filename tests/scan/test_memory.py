"""A worker's parent scans for all: what it reads does not grow with what records hold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta

import pytest

from recovery.engine import Outbox, Resources
from recovery.records import Child, Decision, DecisionState, Graph, Outcome, Process, Record, Task
from recovery.records.ids import new_process_id
from recovery.rules import Rule
from recovery.scan import DecisionScanner, GraphScanner, ProcessScanner
from recovery.settings import Settings
from tests.memory import MB, peak_growth
from tests.store.writing import put
from tests.world import World

pytestmark = pytest.mark.thorough

DAY = timedelta(days=1)
EACH = 50
LARGE = f'[["{"x" * (4 * MB)}"],{{}}]'
"""Of each task that is overdue: 600 MB in all."""
STARTS = 20
CHILDREN_OF = 8
"""Finished tasks with 12 MB of arguments of their children, not applied: 100 MB more."""


def overdue(world: World, state: DecisionState) -> Iterator[Record]:
    """A process, with its start task in this state, whose arguments are large."""
    past = world.store.now() - DAY
    working, finished = state is DecisionState.WORKING, state is DecisionState.FINISHED
    for number in range(EACH):
        process = new_process_id()
        children = tuple(Child(id=f"c{n}", actor="add", args=LARGE) for n in range(3 * (number < CHILDREN_OF)))
        yield Process(id=process, type="add", args="[[],{}]", started_at=past, recovery_time=past + 2 * DAY)
        yield Task(id=f"{process}/start", actor="add", args=LARGE)
        yield Graph(id=process, not_finished={"start": past}, touched_at=past, recovery_time=past + 2 * DAY)
        yield Decision(
            id=f"{process}/start", actor="add", state=state, pass_key="old", queued_at=past, recovery_time=past,
            worker="w#1" if working else None, children=children if finished else (),
            outcome=Outcome(pass_key="old", value="null") if finished else None,
        )  # fmt: skip


@pytest.fixture
def large(world: World) -> Settings:
    """150 overdue tasks with arguments of 4 MB each, a third of them queued, working and finished; and processes with
    as large ones of which nothing is there but their own record."""
    world.app.actor("add")(lambda *_: None)
    world.tell()
    world.store.queues.polled({"add": world.store.now()})
    for state in (DecisionState.QUEUED, DecisionState.WORKING, DecisionState.FINISHED):
        records = list(overdue(world, state))
        for first in range(0, len(records), 20):
            put(world.store, *records[first : first + 20])
    past = world.store.now() - DAY
    for _ in range(STARTS):
        started = {"started_at": past, "recovery_time": past}
        put(world.store, Process(id=new_process_id(), type="add", args=LARGE, **started))
    return world.settings


def scan(settings: Settings) -> Iterator[Sequence[dict[Rule, int]]]:
    """One scan of each kind, as the parent of a worker makes it; what they repaired."""
    resources = Resources.connect(settings)
    outbox = Outbox(resources)
    scanners = [kind(resources, outbox) for kind in (DecisionScanner, GraphScanner, ProcessScanner)]
    resources.store.now()
    yield []
    yield [dict(scanner.run_once(60.0).repaired) for scanner in scanners]


def test_what_is_overdue_with_large_arguments(large: Settings) -> None:
    (decisions, _, processes), growth = peak_growth(scan, large)
    assert decisions == {Rule.MESSAGE_LOST: EACH, Rule.WORK_TIMEOUT: EACH, Rule.DECISION_NOT_APPLIED: EACH}
    assert processes == {Rule.START_NOT_REGISTERED: STARTS}
    assert growth < 100 * MB, f"{growth / MB:.0f} MB more at the peak, of 780 MB that are overdue"
