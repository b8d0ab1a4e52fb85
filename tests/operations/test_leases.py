"""Workers that have lost a lease and don't know it yet: nothing is done twice, told wrongly, or put into a plan that
was shown. Each interleaving is made on purpose: while one worker is at a page, another one comes and does all of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest

from recovery import operations
from recovery.operations import pages
from recovery.operations.kinds import checking
from recovery.operations.kinds.base import Kind, Planned
from recovery.operations.kinds.checking import CheckAll
from recovery.records import Operation, OperationRange, OperationState, ResultState
from recovery.settings import Settings
from tests.faults import Died
from tests.operations.ordering import Ordering, adds_up
from tests.waiting import wait_until


@pytest.fixture
def world(emptied: Settings, monkeypatch: pytest.MonkeyPatch) -> Ordering:
    monkeypatch.setattr(pages, "RENEW", 0.0)
    return Ordering(emptied)


def planned(world: Ordering, kind: str, selection: str) -> Operation:
    operation = world.bring_on(world.ask(kind, selection))
    operations.apply(world.app.resources, operation.id)
    return operation


def lose_leases(world: Ordering) -> None:
    """As if so long had passed that all are over."""
    world.store.database["operationRanges"].update_many(
        {"recoveryTime": {"$exists": True}}, [{"$set": {"recoveryTime": {"$subtract": ["$$NOW", 1000]}}}]
    )


def meanwhile(
    monkeypatch: pytest.MonkeyPatch, kind: type[Kind], world: Ordering, happens: Callable[[], None], step: str = "do"
) -> None:
    """Who is about to `do` it, once, is paused until this has happened: he has seen the processes as they were before.
    Before the step `together` he has not."""
    real, told = getattr(kind, step), list[str]()

    def paused(self: Kind, operation: Operation, what: Sequence[Any]) -> Any:
        if not told:
            told.append("paused")
            lose_leases(world)
            happens()
        return real(self, operation, what)

    monkeypatch.setattr(kind, step, paused)


@pytest.mark.parametrize("kind", ["restart", "restart_from", "abort"])
def test_who_is_late_does_nothing_again(world: Ordering, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """The other one does it all, and what was restarted fails once more meanwhile."""
    ids = world.orders(3) if kind == "abort" else world.refunds(3)
    operation = planned(world, kind, "state:running" if kind == "abort" else "state:broken")

    def another() -> None:
        world.bring_on(operation, OperationState.FINISHED, worker=world.worker("another"))
        assert {one.state.value for one in map(world.bring_to_end, ids)} == {"aborted" if kind == "abort" else "broken"}

    meanwhile(monkeypatch, world.kind(kind), world, another)
    world.worker("late").run_once(5)
    done = world.bring_on(operation)
    adds_up(world, done)
    assert done.applied is not None and done.applied.done == 3
    after = [world.process(one) for one in ids]
    assert [(one.epoch, one.times_reopened) for one in after] == [
        {"restart": (0, 1), "restart_from": (1, 1), "abort": (1, 0)}[kind]
    ] * 3


@pytest.mark.parametrize("kind", ["restart", "restart_from", "abort"])
def test_what_somebody_else_has_done_again_is_left_alone(
    world: Ordering, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    (one,) = world.refunds(1)
    operation = planned(world, kind, "state:broken")

    def operator() -> None:
        world.app.restart(one)
        world.bring_to_end(one)

    meanwhile(monkeypatch, world.kind(kind), world, operator)
    world.worker("late").run_once(5)
    world.bring_on(operation)
    process = world.process(one)
    assert (process.state.value, process.epoch, process.reopened) == ("broken", 0, 1)


def test_who_lost_his_lease_does_not_say_what_became_of_it(world: Ordering, monkeypatch: pytest.MonkeyPatch) -> None:
    """He finds that all has changed: another worker did it, who is cut off before he could write that down."""
    ids = world.orders(2)
    operation = planned(world, "abort", "state:running")

    seen: list[list[str]] = []

    def dies(_: object, results: Sequence[object]) -> None:
        if results:
            raise Died

    def another() -> None:
        with monkeypatch.context() as patched, suppress(Died):
            patched.setattr(type(world.store.operation_results), "end", dies)
            world.worker("another").run_once(5)
        seen.append(world.states(ids))

    meanwhile(monkeypatch, world.kind("abort"), world, another, "together")
    world.worker("late").run_once(5)
    assert seen == [["aborted"] * 2]
    assert [one.state for one in world.results(operation).values()] == [ResultState.FOUND] * 2
    lose_leases(world)
    done = world.bring_on(operation)
    assert [one.state for one in world.results(done).values()] == [ResultState.DONE] * 2


def test_who_lost_his_lease_puts_nothing_into_a_plan(world: Ordering, monkeypatch: pytest.MonkeyPatch) -> None:
    (one,) = world.orders(1)
    operation = world.ask("abort", "state:running")
    real = world.kind("abort").plan
    told: list[str] = []

    def paused(self: Kind, asked: Operation, process_ids: Sequence[str]) -> Planned:
        plan = real(self, asked, process_ids)
        if plan.results and not told:
            told.append("paused")
            world.bring_to_end(one)
            lose_leases(world)
            world.bring_on(operation, worker=world.worker("another"))
        return plan

    monkeypatch.setattr(world.kind("abort"), "plan", paused)
    world.worker("late").run_once(5)
    assert told and world.results(operation) == {}
    assert world.now(operation).state is OperationState.PLANNED


def test_what_comes_into_a_plan_after_it_was_shown_is_left_alone(world: Ordering) -> None:
    one, other = world.orders(2)
    operation = world.bring_on(world.ask("abort", f"id:{one}"))
    (result,) = world.results(operation).values()
    late = result.evolve(id=f"{operation.id}/{other}", process=other, saved_at=None)
    world.store.operation_results.insert([late])
    operations.apply(world.app.resources, operation.id)
    done = world.bring_on(operation)
    assert world.states([one, other]) == ["aborted", "running"]
    told = world.results(done)[other]
    assert (told.state, told.error) == (ResultState.CHANGED, pages.LATE)
    adds_up(world, done)


@pytest.mark.parametrize("change", ["pause", "rate", "cancel"])
def test_a_survey_ends_where_it_is_not_to_go_on(world: Ordering, monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    """All of it is one range: who goes through it feels what an operator changes."""
    ids = world.orders(5)
    world.store.database["graphs"].delete_many({})
    operation, real = world.ask("check"), CheckAll.survey
    monkeypatch.setattr(checking, "SAVED_TOGETHER", 1)
    told: list[str] = []

    def surveyed(self: CheckAll, *args: Any) -> Any:
        for part in real(self, *args):
            if not told:
                told.append(change)
                if change == "rate":
                    operations.set_rate(world.app.resources, operation.id, 1000.0)
                else:
                    {"pause": operations.pause, "cancel": operations.cancel}[change](
                        world.app.resources, operation.id, "a test"
                    )
            yield part

    monkeypatch.setattr(CheckAll, "survey", surveyed)
    world.worker().run_once(5)

    def first() -> OperationRange:
        return world.store.operation_ranges.all(operation.id, operation.phase)[0]

    wait_until(lambda: first().lease is None, 5, "it to be given back at once, or to be done")
    part = first()
    assert told
    if change == "rate":
        assert part.leases == 2 and part.cursor is not None, "gone through by pages, which the rate allows"
    else:
        assert part.totals.processes == 0, "nothing of it counts"
    if change == "pause":
        operations.resume(world.app.resources, operation.id)
    done = world.bring_on(operation)
    if change == "cancel":
        assert done.state is OperationState.CANCELLED and done.planned is None
    else:
        assert done.planned is not None and done.planned.processes == len(ids)
