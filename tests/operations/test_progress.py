"""Progress as somebody watches it: what it costs, and that it is exact in the end."""

from __future__ import annotations

import pytest

from recovery import operations
from recovery.operations.progress import COUNT_AFTER, Watching
from recovery.records import OperationResult, OperationState, Phase, Totals
from recovery.records.operation_parts import result_id
from recovery.settings import Settings
from recovery.store.views.ranges import Ranges
from tests.operations.ordering import Ordering
from tests.waiting import wait_until

COUNTING = 3.0
"""Seconds that it takes to count the results, here."""
LOOKS = 0.5


@pytest.fixture
def world(emptied: Settings) -> Ordering:
    return Ordering(emptied)


class Clock:
    """The clock of who watches, and how often he has the results counted, which takes its time."""

    def __init__(self, world: Ordering, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.counts = 1000.0, 0
        self._totals = world.store.operation_results.totals
        monkeypatch.setattr(world.store.operation_results, "totals", self._count)

    def _count(self, number: int) -> Totals:
        self.now += COUNTING
        self.counts += 1
        return self._totals(number)


@pytest.mark.parametrize("apply", [False, True], ids=["planned", "applied"])
def test_processes_are_counted_only_while_all_are_planned(
    world: Ordering, monkeypatch: pytest.MonkeyPatch, apply: bool
) -> None:
    counted = list[int]()
    volume = Ranges.volume
    monkeypatch.setattr(Ranges, "volume", lambda self: counted.append(1) or volume(self))
    world.orders(2)
    operation = world.ask("abort")
    assert operations.progress(world.app.resources, operation).expected == 2
    assert counted == [1]
    planned = world.bring_on(operation)
    counted.clear()
    if apply:
        planned = operations.apply(world.app.resources, planned.id)
    assert operations.progress(world.app.resources, planned).operation.phase is (Phase.APPLY if apply else Phase.PLAN)
    assert counted == []


def test_who_watches_counts_for_a_twentieth_of_the_time(world: Ordering, monkeypatch: pytest.MonkeyPatch) -> None:
    world.orders(2)
    operation = world.ask("abort", "state:running")
    clock = Clock(world, monkeypatch)
    watching = Watching(world.app.resources, lambda: clock.now)
    began = clock.now
    while clock.now - began < 600:
        watching.look(operation)
        clock.now += LOOKS
    assert clock.counts * COUNTING <= 600 / COUNT_AFTER
    assert clock.counts >= 600 / (COUNT_AFTER * COUNTING + COUNTING + LOOKS) - 1, "and as often as it may"


def test_in_between_the_ranges_tell_how_far_it_is(world: Ordering, monkeypatch: pytest.MonkeyPatch) -> None:
    world.orders(4)
    planned = world.bring_on(world.ask("abort", "state:running"))
    operation = operations.apply(world.app.resources, planned.id)
    clock = Clock(world, monkeypatch)
    watching = Watching(world.app.resources, lambda: clock.now)
    assert watching.look(operation).share == 0.0
    wait_until(lambda: (world.advance(operation) or operation).ready, 10, "its ranges")
    ranges = world.store.database["operationRanges"]
    half = {"totals.done": 2, "totals.found": 2, "totals.processes": 2}
    assert ranges.update_one({"operation": operation.id, "phase": "apply"}, {"$set": half}).modified_count == 1
    seen = watching.look(operation)
    assert (seen.share, seen.totals.done, clock.counts) == (0.5, 2, 1)
    clock.now += COUNT_AFTER * COUNTING + 1
    assert watching.look(operation).totals.done == 2 and clock.counts == 2


def test_once_it_is_over_it_is_what_was_counted_then(world: Ordering, monkeypatch: pytest.MonkeyPatch) -> None:
    world.orders(3)
    planned = world.bring_on(world.ask("abort", "state:running"))
    clock = Clock(world, monkeypatch)
    watching = Watching(world.app.resources, lambda: clock.now)
    watching.look(planned.evolve(state=OperationState.PLANNING))
    operations.apply(world.app.resources, planned.id)
    done = world.bring_on(planned)
    counts, clock.now = clock.counts, clock.now + 1000
    seen = watching.look(done)
    assert seen.totals == done.applied and seen.totals.done == 3 and clock.counts == counts


def test_of_one_that_was_cancelled_what_was_done_is_counted(world: Ordering) -> None:
    """Whatever the ranges say: a page may have been done and not be committed."""
    world.orders(2)
    operation = operations.cancel(world.app.resources, world.ask("abort", "state:running").id, "not wanted")
    late = OperationResult(id=result_id(operation.id, "p"), operation=operation.id, process="p", type="order")
    world.store.operation_results.insert([late])
    assert operations.progress(world.app.resources, operation).totals.found == 1
