"""Operations from order to end: what they plan, what they do, and that nothing is done or counted twice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier
from typing import Any

import pytest

from recovery import InputError, operations
from recovery.engine.operators.saved_searches import remove_search, save_search
from recovery.operations import advance as advancing
from recovery.operations.advance import advance
from recovery.operations.kinds import Kind, repairing
from recovery.records import Operation, OperationResult, OperationState, Phase, ProcessState, ResultState
from recovery.repair import ReadProcesses, readings
from recovery.settings import Settings
from recovery.store import Store
from tests.operations.ordering import WHY, Ordering, adds_up
from tests.store.writing import contents
from tests.sweep import shapes
from tests.sweep.database import Database
from tests.waiting import wait_until


@pytest.fixture
def world(emptied: Settings) -> Ordering:
    return Ordering(emptied)


def without_graphs(world: Ordering, process_ids: list[str]) -> None:
    world.store.database["graphs"].delete_many({"_id": {"$in": process_ids}})
    # What is missing counts once nothing has changed in the process for so long.
    counts = world.store.now() + timedelta(seconds=2 * world.settings.apply_timeout)
    wait_until(lambda: world.store.now() > counts, 5, "what is missing to count")


def test_a_check_tells_what_is_wrong_and_changes_nothing(world: Ordering) -> None:
    healthy = [*map(world.end_of, world.orders(3))]
    ill = world.orders(4)
    without_graphs(world, ill)
    before = world.counts()
    done = world.bring_on(world.ask("check"))
    assert (done.state, done.who, done.why) == (OperationState.FINISHED, "ann", WHY)
    assert done.planned is not None
    assert (done.planned.processes, done.planned.found) == (7, 4)
    assert done.planned.rules["START_NOT_REGISTERED"] == 4
    results = world.results(done)
    assert sorted(results) == sorted(ill) and not results.keys() & set(healthy)
    assert all("START_NOT_REGISTERED" in one.rules and one.findings[0].evidence for one in results.values())
    assert world.counts() == before
    adds_up(world, done)


def test_a_repair_is_planned_first_and_then_done(world: Ordering) -> None:
    ill = world.orders(5)
    without_graphs(world, ill)
    planned = world.bring_on(world.ask("repair"))
    assert planned.state is OperationState.PLANNED and planned.planned is not None and planned.planned.found == 5
    assert world.counts()["graphs"] == 0, "a plan changes nothing"
    operations.apply(world.app.resources, planned.id)
    done = world.bring_on(planned)
    assert done.applied is not None and (done.applied.done, done.applied.errors) == (5, 0)
    assert done.applied.repaired["START_NOT_REGISTERED"] == 5
    assert world.counts()["graphs"] == 5
    adds_up(world, done)
    for process_id in ill:
        assert world.bring_to_end(process_id).state is ProcessState.FINISHED


def test_single_tasks_are_repaired_without_their_processes(world: Ordering, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was found on tasks alone is judged and repaired by their decisions; what has moved on is left alone."""
    started = world.orders(4)
    decisions = world.store.database["decisions"]
    past = {"state": "working", "worker": "gone", "recoveryTime": world.store.now() - timedelta(hours=1)}
    decisions.update_many({"_id": {"$in": [f"{one}/start" for one in started]}}, {"$set": past})
    planned = world.bring_on(world.ask("repair"))
    assert {one.rules for one in world.results(planned).values()} == {("WORK_TIMEOUT",)}
    beats = {"$set": {"recoveryTime": world.store.now() + timedelta(minutes=1)}}
    decisions.update_one({"_id": f"{started[0]}/start"}, beats)
    world.app.abort(started[1], "not wanted")
    read: list[list[str]] = []

    def noted(store: Store, process_ids: list[str], **more: Any) -> Iterator[ReadProcesses]:
        read.append([*process_ids])
        return readings(store, process_ids, **more)

    monkeypatch.setattr(repairing, "readings", noted)
    operations.apply(world.app.resources, planned.id)
    done = world.bring_on(planned)
    states = {key: one.state for key, one in world.results(done).items()}
    assert [states[one] for one in started] == [ResultState.NOTHING] * 2 + [ResultState.DONE] * 2
    assert read == [sorted(started[:2])], "the others were not read whole"
    assert done.applied is not None and done.applied.repaired == {"WORK_TIMEOUT": 2}
    adds_up(world, done)
    for process_id in (*started[:1], *started[2:]):
        decisions.update_many({"state": "working"}, {"$set": {"recoveryTime": world.store.now()}})
        assert world.bring_to_end(process_id).state is ProcessState.FINISHED


def test_restart_and_abort_of_a_selection(world: Ordering) -> None:
    running, broken = world.orders(2), world.refunds(4)
    world.broken = False
    done = world.run_through("restart", "state:broken")
    assert done.applied is not None and done.applied.done == 4
    assert [world.bring_to_end(one).state.value for one in broken] == ["finished"] * 4
    adds_up(world, done)
    more = world.orders(2)
    done = world.run_through("abort", "state:running")
    assert done.applied is not None and done.applied.done == len(more)
    assert world.states(more) == ["aborted"] * 2
    error = world.process(more[0]).error
    assert error is not None and error.message == f"operation {done.id}: {WHY}"
    assert world.states(running) == ["finished"] * 2


def test_a_saved_search_is_what_it_was_when_it_was_asked_for(world: Ordering) -> None:
    running = world.orders(2)
    save_search(world.app.resources, "those", "state:running")
    operation = world.ask("abort", "@those type:order")
    assert operation.selection == "(state:running) type:order"
    save_search(world.app.resources, "those", "state:finished", replace=True)
    remove_search(world.app.resources, "those")
    planned = world.bring_on(operation)
    operations.apply(world.app.resources, planned.id)
    assert world.results(world.bring_on(planned)).keys() == set(running)
    (entry,) = world.store.audit_log.newest(1, what="operation start")
    assert entry.operation == operation.id and '"@those type:order"' in (entry.details or "")
    with pytest.raises(InputError, match="no search is saved as 'those'"):
        world.ask("abort", "@those")


def test_finished_processes_are_done_again(world: Ordering) -> None:
    """From the tasks of an actor: the start task is kept. Not those that were aborted."""
    ended, aborted = [*map(world.end_of, world.orders(3))], world.orders(1)
    world.app.abort(aborted[0], "not wanted")
    done = world.run_through("restart_from", "type:order", from_actor="step")
    assert done.applied is not None and (done.applied.found, done.applied.done, done.applied.errors) == (3, 3, 0)
    results = world.results(done)
    assert {one.plan for one in results.values()} == {"2 tasks of 3 done again or dropped, 2 results thrown away"}
    for process_id in ended:
        process = world.bring_to_end(process_id)
        assert (process.state, process.epoch) == (ProcessState.FINISHED, 1)
        (life,) = process.lives
        assert (life.operation, life.by, life.reason, life.state) == (done.id, "ann", WHY, ProcessState.FINISHED)
        start = contents(world.store, "decisions", [f"{process_id}/start"])[f"{process_id}/start"]
        assert start["attempts"] == 1 and start["outcome"]["finishedAt"] < life.ended_at, "kept"
    adds_up(world, done)
    whole = world.run_through("restart_from", "type:order state:finished")
    assert {one.plan for one in world.results(whole).values()} == {
        "3 tasks of 3 done again or dropped, 3 results thrown away"
    }
    assert {world.bring_to_end(one).epoch for one in ended} == {2}


@pytest.mark.parametrize(
    ("kind", "actor", "told"),
    [
        ("restart", "step", "--from-actor step: is for restart_from"),
        ("restart_from", "stop", "no actor is named 'stop'; did you mean"),
        ("restart_from", "", "--from-actor=''"),
    ],
)
def test_an_actor_to_begin_from_that_can_not_be(world: Ordering, kind: str, actor: str, told: str) -> None:
    world.orders(1)
    with pytest.raises(InputError, match=told):
        world.ask(kind, "type:order", from_actor=actor)


def test_the_very_plan_that_was_shown_is_run(world: Ordering) -> None:
    """What matches since then is left alone, and so is what is no longer as it was shown."""
    first = world.orders(3)
    planned = world.bring_on(world.ask("abort", "type:order"))
    later = world.start("order", 9)
    world.pump(serve={})
    world.app.abort(first[0], "by somebody else")
    ended = world.bring_to_end(first[1])
    assert ended.state is ProcessState.FINISHED and world.process(later).state is ProcessState.FINISHED
    again = world.start("order", 10)
    operations.apply(world.app.resources, planned.id)
    done = world.bring_on(planned)
    results = world.results(done)
    assert results.keys() == set(first)
    assert [results[one].state for one in first] == [ResultState.CHANGED] * 3
    assert results[first[1]].error == "planned as running/0/0, now finished/0/0"
    assert world.process(again).state is ProcessState.RUNNING
    adds_up(world, done)


def test_at_once(world: Ordering) -> None:
    ids = world.orders(2)
    done = world.bring_on(world.ask("abort", "state:running", apply=True))
    assert done.state is OperationState.FINISHED and world.states(ids) == ["aborted"] * 2


def test_paused_resumed_and_cancelled(world: Ordering) -> None:
    ids = world.orders(6)
    planned = world.bring_on(world.ask("abort", "state:running", rate=1000.0))
    operations.apply(world.app.resources, planned.id)
    operations.pause(world.app.resources, planned.id, "lunch")
    world.worker().run_once(5)
    assert world.states(ids) == ["running"] * 6, "nothing is done while it is paused"
    operations.resume(world.app.resources, planned.id)
    done = world.bring_on(planned)
    assert done.applied is not None and done.applied.done == 6
    others = world.orders(2)
    other = world.bring_on(world.ask("abort", "state:running"))
    operations.cancel(world.app.resources, other.id, "not after all")
    world.worker().run_once(5)
    assert world.states(others) == ["running"] * 2
    assert world.now(other).state is OperationState.CANCELLED and world.now(other).ended_at is not None


def test_a_rate_holds_for_all_who_work_at_it(world: Ordering, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two workers at once, each at a range of its own, by the time of the database."""
    monkeypatch.setattr(advancing, "RESULTS_EACH", 16)
    world.orders(30)
    planned = world.bring_on(world.ask("abort", "state:running", rate=20.0))
    operations.apply(world.app.resources, planned.id)
    wait_until(lambda: (world.advance(planned) or planned).ready, 10, "its ranges")
    together = Barrier(2)

    def work(name: str) -> None:
        worker = world.worker(name)
        together.wait(10)
        world.bring_on(planned, worker=worker)

    with ThreadPoolExecutor(2) as workers:
        for one in [workers.submit(work, name) for name in ("one", "two")]:
            one.result(40)
    parts = world.store.operation_ranges.all(planned.id, Phase.APPLY)
    assert sorted((part.worker, part.totals.done) for part in parts) == [("one", 15), ("two", 15)]
    ended = [one.ended_at for one in world.results(planned).values() if one.ended_at is not None]
    begun = world.now(planned).begun_at
    # Those of whoever asks first pass at once, the others after them: fifteen at twenty a second.
    assert len(ended) == 30 and begun is not None and (max(ended) - begun).total_seconds() >= 0.74
    turns = [world.store.operations.take_turn(planned.id, OperationState.FINISHED, 20) for _ in range(3)]
    first, second, third = (turn.seconds for turn in turns if turn is not None)
    assert (round(second - first), round(third - second)) == (1, 1)


def test_priorities(world: Ordering) -> None:
    refunds = world.refunds(2)
    orders = world.orders(2)
    planned = world.bring_on(world.ask("abort", "type:order", priorities={"refund": 5}))
    operations.cancel(world.app.resources, planned.id, "the other way round")
    planned = world.bring_on(world.ask("abort", priorities={"refund": 5, "order": -1}))
    operations.apply(world.app.resources, planned.id)
    worker, order = world.worker(), list[str]()

    def step() -> bool:
        operation = world.now(planned)
        if operation.state is OperationState.RUNNING and operation.ready:
            worker.work_at(operation, until=0.0)  # one page
        else:
            advance(world.app.resources, operation)
        order.extend(p for p in (*orders, *refunds) if p not in order and world.process(p).state == "aborted")
        return operation.state is OperationState.FINISHED

    wait_until(step, 20, "the operation to be finished")
    assert set(order[:2]) == set(refunds) and set(order[2:]) == set(orders)


@pytest.mark.parametrize("selection", ["", "type:order or type:refund or type:other"])
@pytest.mark.parametrize("rate", [None, 1000.0], ids=["as a whole", "page by page"])
def test_priorities_order_the_analysis(world: Ordering, selection: str, rate: float | None) -> None:
    """A check looks at the types with a priority first. All other types, and what has lost its Process record, have
    priority 0. Nothing is found or counted twice."""
    database = Database(world.settings)
    by_type = {
        name: {database.add(shapes.work_timeout, process_type=name) for _ in range(3)}
        for name in ("order", "refund", "other")
    }
    lost = database.add(shapes.work_timeout)
    world.store.database["processes"].delete_one({"_id": lost})
    asked = world.ask("check", selection, priorities={"refund": 5, "order": -1}, rate=rate)
    worker, found = world.worker(), list[str]()

    def step() -> bool:
        operation = world.now(asked)
        if operation.state is OperationState.PLANNING and operation.ready:
            worker.work_at(operation, until=0.0)  # one page
        else:
            advance(world.app.resources, operation)
        found.extend(sorted(world.results(asked).keys() - set(found)))
        return world.now(asked).state is OperationState.FINISHED

    wait_until(step, 20, "the operation to be finished")
    first, middle, last = found[:3], found[3:-3], found[-3:]
    assert set(first) == by_type["refund"]
    assert set(middle) == by_type["other"] | (set() if selection else {lost})
    assert set(last) == by_type["order"]
    planned = world.now(asked).planned
    assert planned is not None
    assert (planned.found, planned.processes) == (len(found), 9)
    assert planned.types == {"order": 3, "refund": 3, "other": 3} | ({} if selection else {"": 1})


def test_two_that_exclude_each_other(world: Ordering) -> None:
    broken = world.refunds(3)
    restart = world.bring_on(world.ask("restart", "state:broken"))
    abort = world.bring_on(world.ask("abort", "state:broken"))
    check = world.ask("check")
    operations.apply(world.app.resources, restart.id)
    with pytest.raises(InputError, match=rf"operation {restart.id} \(restart, running\).*{broken[0]}"):
        operations.apply(world.app.resources, abort.id)
    assert world.now(abort).state is OperationState.PLANNED
    assert world.bring_on(check).state is OperationState.FINISHED, "a check runs beside everything"
    world.broken = False
    world.bring_on(restart)
    operations.apply(world.app.resources, abort.id)
    done = world.bring_on(abort)
    assert done.applied is not None and done.applied.changed == 3, "they run, or have ended, by then"


@pytest.mark.parametrize("kind", ["restart", "restart_from"])
def test_one_that_fails_does_not_hold_up_the_others(world: Ordering, kind: str) -> None:
    """Those that were done before it, in the same page, are told as done."""
    ids = sorted(world.refunds(3))
    planned = world.bring_on(world.ask(kind, "state:broken"))
    world.store.database["decisions"].update_many(
        {"_id": {"$regex": f"^{ids[1]}"}}, {"$set": {"state": 7}}, bypass_document_validation=True
    )
    operations.apply(world.app.resources, planned.id)
    done = world.bring_on(planned)
    results = world.results(done)
    assert [results[one].state for one in ids] == [ResultState.DONE, ResultState.ERROR, ResultState.DONE]
    assert results[ids[1]].error
    adds_up(world, done)


@pytest.mark.parametrize("kind", ["set_idle_timeout", "repair"])
def test_what_fails_is_told_as_an_error(world: Ordering, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """And not as changed by somebody else, whatever the plan remembers of the process."""
    ids = world.orders(2)
    world.store.database["graphs"].delete_many({} if kind == "repair" else {"_id": "none"})
    counts = world.store.now() + timedelta(seconds=2 * world.settings.apply_timeout)
    wait_until(lambda: world.store.now() > counts, 10, "what is missing to count")
    planned = world.bring_on(world.ask(kind, "type:order", **({"idle_timeout": 7.0} if kind != "repair" else {})))
    real = world.kind(kind).together

    def fails(self: Kind, operation: Operation, results: Sequence[OperationResult]) -> list[OperationResult]:
        if ids[0] in [result.process for result in results]:
            raise ValueError("spoilt")
        return real(self, operation, results)

    monkeypatch.setattr(world.kind(kind), "together", fails)
    operations.apply(world.app.resources, planned.id)
    results = world.results(world.bring_on(planned))
    assert (results[ids[0]].state, results[ids[0]].error) == (ResultState.ERROR, "ValueError: spoilt")
    assert results[ids[1]].state is ResultState.DONE
