"""Whoever works at an operation is killed at each of its steps: others finish it, nothing is done or counted twice."""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

import pytest

from recovery.operations import advance, commands, pages, work
from recovery.operations.kinds import base, kind_of, repairing
from recovery.records import OperationState, ProcessState, ResultState
from recovery.retry import Backoff
from recovery.retry.own_work import OPERATION_RANGE
from recovery.settings import Settings
from recovery.store import definitions
from tests.faults import Died, Fault, Kind, Plan, installed, under
from tests.operations.ordering import Ordering, adds_up
from tests.waiting import wait_until

pytestmark = pytest.mark.thorough


@pytest.fixture
def world(emptied: Settings, monkeypatch: pytest.MonkeyPatch) -> Ordering:
    for module in (advance, commands):
        monkeypatch.setattr(module, "LOOK_EVERY", 0.1)
    for module in (work, pages):
        monkeypatch.setattr(module, "LEASE", 0.2)
    soon = Backoff(initial=0.1, coefficient=1, jitter=(0, 0), maximum=0.1)
    monkeypatch.setattr(work, "OPERATION_RANGE", replace(OPERATION_RANGE, policy=soon))
    for kind in (base.Kind, repairing.RepairAll):
        monkeypatch.setattr(kind, "page", 2)
        monkeypatch.setattr(kind, "step", 1)
    monkeypatch.setattr(pages, "PLANNED", 2)
    return Ordering(emptied)


COUNT = 5
STATES = {
    "collect": "gone",
    "abort": "aborted",
    "restart": "finished",
    "repair": "finished",
    "restart_from": "finished",
    "set_idle_timeout": "finished",
}
SAMPLE = 4
"""Places of each run in `make test-all`, drawn from a seed that a failure shows; `make soak` has them all."""


def prepared(world: Ordering, kind: str) -> list[str]:
    """Processes that an operation of this kind is about."""
    world.broken = True
    if kind == "restart":
        started = world.refunds(COUNT)
        world.broken = False
        return started
    started = world.orders(COUNT)
    if kind in ("restart_from", "collect"):
        started = [*map(world.end_of, started)]
    if kind == "collect":
        world.store.database["processes"].update_many({}, [{"$set": {"endedAt": {"$subtract": ["$$NOW", 7_200_000]}}}])
    if kind == "repair":
        world.store.database["graphs"].delete_many({"_id": {"$in": started}})
        counts = world.store.now() + timedelta(seconds=2 * world.settings.apply_timeout)
        wait_until(lambda: world.store.now() > counts, 5, "what is missing to count")
    return started


def cut_off_at(world: Ordering, kind: str, fault: Fault) -> bool:
    """One operation, whose first worker meets this fault; whether it came to it."""
    for name in definitions.VALIDATORS:
        world.store.database[name].delete_many({})
    world.redis.flushdb()
    started = prepared(world, kind)
    selection = "state:broken" if kind == "restart" else "type:order"
    more = {"idle_timeout": 7.0} if kind == "set_idle_timeout" else {}
    operation = world.ask(kind, selection, apply=True, **more)
    plan = Plan(fault)
    with installed(), under(plan), suppress(Died):
        doomed = world.worker("doomed")
        for _ in range(4):
            doomed.run_once(5)
    done = world.bring_on(operation, OperationState.FINISHED)
    adds_up(world, done)
    results = world.results(done)
    assert results.keys() == set(started), plan
    assert done.planned is not None and done.planned.processes == COUNT, plan
    assert {result.state for result in results.values()} <= {ResultState.DONE, ResultState.NOTHING}, (plan, results)
    if kind == "abort":
        assert {result.state for result in results.values()} == {ResultState.DONE}, (plan, results)
        assert world.states(started) == ["aborted"] * COUNT
        assert [world.process(one).epoch for one in started] == [1] * COUNT, "none was aborted twice"
    elif kind == "collect":
        assert {result.state for result in results.values()} == {ResultState.DONE}, (plan, results)
        assert sum(world.counts().values()) == 0, "nothing is left of them"
    else:
        assert [world.bring_to_end(one).state.value for one in started] == ["finished"] * COUNT
    if kind == "set_idle_timeout":
        assert {result.state for result in results.values()} == {ResultState.DONE}, (plan, results)
        assert {world.process(one).idle_timeout for one in started} == {7.0}
        graphs = world.store.graphs.get_many(started).values()
        assert [graph.idle_timeout for graph in graphs] == [7.0] * COUNT, "each graph came after its process"
    if kind == "restart_from":
        assert [world.process(one).epoch for one in started] == [1] * COUNT, "none was done again twice"
    if kind == "restart":
        assert [world.process(one).reopened for one in started] == [1] * COUNT, "none was restarted twice"
    return bool(plan.told)


KINDS = [Kind.DIES, Kind.DIES_AFTER, Kind.DIES_HALF, Kind.BEFORE, Kind.AFTER, Kind.HALF]


@pytest.mark.soak
@pytest.mark.parametrize("fault", KINDS)
@pytest.mark.parametrize("kind", STATES)
def test_at_each_step(world: Ordering, kind: str, fault: Kind) -> None:
    place = 0
    while cut_off_at(world, kind, Fault(fault, place)):
        place += 1
    assert place > 20


@pytest.mark.parametrize("kind", STATES)
def test_at_some_steps(world: Ordering, kind: str) -> None:
    seed = random.SystemRandom().randrange(10**6)
    chance = random.Random(seed)
    for _ in range(SAMPLE):
        fault = Fault(chance.choice(KINDS), chance.randrange(40))
        try:
            cut_off_at(world, kind, fault)
        except BaseException:
            print(f"seed {seed}: {fault}")
            raise


def test_a_redo_that_an_older_worker_was_cut_off_in_is_ended(world: Ordering, monkeypatch: pytest.MonkeyPatch) -> None:
    """It gave no order for it, so no scanner may end that; the operation may, which was ordered."""
    process_id = world.end_of(world.start("order", 4))
    wait_until(lambda: not world.store.removals.live([process_id]) or world.scan(), 10, "it to be at rest")
    planned = world.bring_on(world.ask("restart_from", "state:finished"))
    (result,) = world.results(planned).values()
    world.store.operation_results.begin([result])
    kind = kind_of(planned.kind, world.app.resources, world.app.outbox)

    def killed(*_: object) -> None:
        raise Died

    with monkeypatch.context() as cut_off:
        cut_off.setattr(world.store.redos, "put_back", killed)
        with pytest.raises(Died):
            kind.apply(planned, [result])
    database = world.store.database
    database["orders"].delete_many({})
    database["processes"].update_one({"_id": process_id}, {"$unset": {"order": ""}})
    world.scan()
    assert world.process(process_id).redo, "by nobody's order it is left alone"
    (done,) = kind.apply(planned, [result.evolve(begun=True)])
    assert done.state is ResultState.DONE
    ended = world.bring_to_end(process_id)
    assert (ended.state, ended.result, len(ended.lives)) == (ProcessState.FINISHED, "6", 1)
    assert database["orders"].count_documents({}) == 0
