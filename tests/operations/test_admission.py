"""Two operations that exclude each other and are applied at the same moment: one of them begins. Each interleaving is
made on purpose."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from recovery import InputError, operations
from recovery.operations import advance, commands
from recovery.records import Operation, OperationState, Phase
from recovery.settings import Settings
from recovery.store.schema import KEPT_RESULTS
from tests.operations.ordering import Ordering

RUNNING, PLANNED = OperationState.RUNNING, OperationState.PLANNED


@pytest.fixture
def world(emptied: Settings) -> Ordering:
    return Ordering(emptied)


def two(world: Ordering) -> tuple[Operation, Operation]:
    world.orders(3)
    return tuple(world.bring_on(world.ask(kind, "state:running")) for kind in ("abort", "restart_from"))


def while_it_is_looked(monkeypatch: pytest.MonkeyPatch, one: Operation, happens: Callable[[], object]) -> None:
    """Who is about to begin it has found nobody else, and before he writes that down, once, this happens."""
    real, told = advance.conflict, list[str]()

    def paused(resources: object, operation: Operation) -> str | None:
        found = real(resources, operation)
        if operation.id == one.id and not told:
            told.append("paused")
            happens()
        return found

    monkeypatch.setattr(advance, "conflict", paused)


@pytest.mark.parametrize("late", [0, 1])
def test_of_two_at_once_one_begins(world: Ordering, monkeypatch: pytest.MonkeyPatch, late: int) -> None:
    both = two(world)
    first, other = both[late], both[1 - late]
    refused: list[Operation] = []

    def apply(one: Operation) -> None:
        try:
            operations.apply(world.app.resources, one.id)
        except InputError as error:
            assert "already covers at least 3 of these processes" in str(error)
            refused.append(one)

    while_it_is_looked(monkeypatch, first, lambda: apply(other))
    apply(first)
    states = [world.now(one).state for one in both]
    assert sorted(states) == sorted([RUNNING, PLANNED])
    assert [one.id for one in refused] == [one.id for one in both if world.now(one).state is PLANNED]
    assert world.now(refused[0]).refusal


def test_one_that_begins_meanwhile_is_seen(world: Ordering, monkeypatch: pytest.MonkeyPatch) -> None:
    """The younger one begins between the older one's look at it and the word that it is refused."""
    older, younger = two(world)
    real, told = advance.refuse, list[str]()

    def paused(resources: object, operation: Operation, why: str) -> Operation | None:
        if operation.id == younger.id and not told:
            told.append("paused")
            running = world.store.operations.get(younger.id)
            assert running is not None
            world.store.operations.save(running.evolve(state=RUNNING, phase=Phase.APPLY), 5.0)
        return real(resources, operation, why)

    monkeypatch.setattr(advance, "refuse", paused)
    admitting = younger.evolve(state=OperationState.ADMITTING)
    assert world.store.operations.save(admitting, 5.0)
    with pytest.raises(InputError, match=f"operation {younger.id} .*running"):
        operations.apply(world.app.resources, older.id)
    assert told and world.now(older).state is PLANNED


def test_a_cancelled_one_ends_its_page_first(world: Ordering) -> None:
    older, younger = two(world)
    operations.apply(world.app.resources, older.id)
    while not world.now(older).ready:
        world.advance(older)
    ranges = world.store.operation_ranges
    leased = ranges.lease(older.id, Phase.APPLY, "somebody", "worker", 30.0)
    assert leased is not None
    operations.cancel(world.app.resources, older.id, "not after all")
    with pytest.raises(InputError, match="it is finishing its last pages; try again in half a minute"):
        operations.apply(world.app.resources, younger.id)
    ranges.give_back(leased, None)
    assert operations.apply(world.app.resources, younger.id).state is RUNNING


@pytest.mark.parametrize("command", [operations.apply, operations.resume])
def test_a_plan_of_which_results_may_be_gone(world: Ordering, command: Callable[..., object]) -> None:
    older, _ = two(world)
    if command is operations.resume:
        operations.apply(world.app.resources, older.id)
        operations.pause(world.app.resources, older.id)
    before = world.now(older)
    asked = world.store.now() - timedelta(seconds=KEPT_RESULTS)
    world.store.database["operations"].update_one({"_id": older.id}, {"$set": {"askedAt": asked}})
    with pytest.raises(InputError, match=r"kept for 90 days.*order it again"):
        command(world.app.resources, older.id)
    assert world.now(older).state is before.state
    assert commands.KEPT.days == 85
