"""Whoever makes new records of a process stands still, and goes on when the process has ended and is gone: nothing of
what was made is run, and nothing of it is left to be in the way of an import."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from recovery.engine import Starts, look_at
from recovery.engine.apply.apply import apply
from recovery.engine.end.fencing import STARTED_BEFORE, remove
from recovery.engine.operators.schedules import Schedules
from recovery.engine.start import occurrences as slots
from recovery.engine.steps import read_each
from recovery.health import look, repair
from recovery.operations.importing import read_back
from recovery.records import Process, ProcessState
from recovery.records.schedule import Schedule
from recovery.settings import Settings
from tests.documents import database_of
from tests.emptied import emptied as emptied
from tests.emptied import lasting as lasting
from tests.faults import Died, threads_held
from tests.ordered import begin_removal
from tests.queues import polled_and_empty
from tests.waiting import wait_until
from tests.world import World, check_quiet

QUEUES = ("wide", "leaf", "total")


@pytest.fixture(autouse=True)
def held() -> Iterator[None]:
    with threads_held():
        yield


def app_on(settings: Settings, ran: list[str]) -> World:
    world = World(settings, apply_timeout=0.3, idle_timeout=0.3, message_timeout=1.0)

    @world.app.actor()
    def leaf(number: int) -> int:
        ran.append("leaf")
        return number

    @world.app.actor()
    def total(numbers: list[int]) -> int:
        ran.append("total")
        return sum(numbers)

    @world.app.process()
    def wide(count: int = 2) -> Any:
        ran.append("wide")
        return total.schedule([leaf.schedule(n) for n in range(count)])

    return world


@pytest.fixture
def ran() -> list[str]:
    return []


@pytest.fixture
def world(emptied: Settings, ran: list[str]) -> World:
    """The program that stands still."""
    return app_on(emptied, ran)


@pytest.fixture
def others(emptied: Settings, ran: list[str]) -> World:
    return app_on(emptied, ran)


def run_and_remove(others: World, process_id: str) -> None:
    """Others find what was not registered, run it, and have it collected."""
    repair(others.app.resources, look(others.app.resources, process_id))
    others.bring_to_end(process_id)
    at_rest(others, process_id)
    assert remove(others.app.resources, [others.process(process_id)]) == {process_id}


def at_rest(others: World, process_id: str) -> None:
    """And a majority has it so."""
    check_quiet(others, process_id)
    wait_until(lambda: not others.store.removals.live([process_id]), 5, "a majority to have it at rest")


def check_nothing_goes_on(world: World, ran: list[str], before: list[str]) -> None:
    polled_and_empty(world.store, *QUEUES, ago=5.0)
    for _ in range(2):
        world.pump()
        world.scan()
    assert ran == before, "nothing is run again"
    assert sum(world.counts().values()) == 0, world.counts()


BEFORE: dict[str, Callable[[World], tuple[object, str]]] = {
    "before anything is made": lambda world: (world.store.tasks, "insert"),
    "before the graph": lambda world: (world.store.graphs, "insert"),
    "before the decision": lambda world: (world.store.decisions, "insert_queued"),
}


@pytest.mark.parametrize("before", BEFORE.values(), ids=BEFORE)
def test_a_start_whose_process_is_gone(
    world: World, others: World, ran: list[str], monkeypatch: pytest.MonkeyPatch, before: Any
) -> None:
    process_id = world.app.start("wide")
    owner, name = before(world)
    real = getattr(owner, name)

    def stand_still(*args: Any, **kwargs: Any) -> Any:
        monkeypatch.undo()
        run_and_remove(others, process_id)
        return real(*args, **kwargs)

    monkeypatch.setattr(owner, name, stand_still)
    world.app.registrar.flush()
    check_nothing_goes_on(others, ran, ["wide", "leaf", "leaf", "total"])


def test_a_start_that_is_cut_off_before_it_looks(
    world: World, others: World, ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its decision is queued, and has no message: who finds that looks first."""
    process_id = world.app.start("wide")
    run_and_remove(others, process_id)
    with monkeypatch.context() as cut_off:
        cut_off.setattr(world.store.processes, "standing", lambda _: 1 / 0)
        world.app.registrar.flush()
    assert others.counts() == {"processes": 0, "graphs": 1, "tasks": 1, "decisions": 1}
    past = others.store.now() - timedelta(seconds=60)
    database_of(others.store)["decisions"].update_many({}, {"$set": {"queuedAt": past, "recoveryTime": past}})
    check_nothing_goes_on(others, ran, ["wide", "leaf", "leaf", "total"])


def test_a_start_that_is_cut_off_and_whose_process_is_there(
    world: World, others: World, ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    process_id = world.app.start("wide")
    with monkeypatch.context() as cut_off:
        cut_off.setattr(world.store.processes, "standing", lambda _: 1 / 0)
        world.app.registrar.flush()
    past = others.store.now() - timedelta(seconds=60)
    database_of(others.store)["decisions"].update_many({}, {"$set": {"queuedAt": past, "recoveryTime": past}})
    polled_and_empty(others.store, *QUEUES, ago=5.0)
    others.bring_to_end(process_id)
    assert ran == ["wide", "leaf", "leaf", "total"]


def test_a_start_whose_process_is_just_being_removed(
    world: World, others: World, ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its records went before the others', and itself is there still."""
    process_id = world.app.start("wide")
    repair(others.app.resources, look(others.app.resources, process_id))
    others.bring_to_end(process_id)
    at_rest(others, process_id)
    real = others.store.removals.finish

    def go_on_first(begun: Any) -> int:
        for name in ("decisions", "tasks", "graphs"):
            database_of(others.store)[name].delete_many({})
        world.app.registrar.flush()
        return int(real(begun))

    monkeypatch.setattr(others.store.removals, "finish", go_on_first)
    assert remove(others.app.resources, [others.process(process_id)]) == {process_id}
    check_nothing_goes_on(others, ran, ["wide", "leaf", "leaf", "total"])


def schedule_of(world: World) -> Schedule:
    found = world.store.schedules.get("hourly")
    assert found is not None
    return found


def die(_: object) -> None:
    raise Died


@pytest.mark.parametrize("cut_off", [False, True], ids=["goes on", "is cut off after the start"])
def test_an_occurrence_of_a_schedule_is_run_once(
    world: World, others: World, ran: list[str], monkeypatch: pytest.MonkeyPatch, cut_off: bool
) -> None:
    """Whoever decided on it stands still before the start; others start it, it ends and is removed."""
    world.tell()
    Schedules(world.app.resources).add("hourly", "wide", {"schedule": "1h"}, "a test")
    keys = slots.Keys(world.app.actors)
    look_at(world.app.resources, schedule_of(world), keys)
    now = world.store.now()
    assert world.store.schedules.save(schedule_of(world).evolve(next_slot=now, recovery_time=now))
    real = slots.Starts.start

    def stand_still(starts: Starts, wanted: Process) -> Any:
        monkeypatch.undo()
        told = look_at(others.app.resources, schedule_of(others), keys)
        assert told is not None and told.process is not None
        run_and_remove(others, told.process)
        return real(replace(starts, register=die) if cut_off else starts, wanted)

    monkeypatch.setattr(slots.Starts, "start", stand_still)
    try:
        assert look_at(world.app.resources, schedule_of(world), keys) is None
    except Died:
        past = others.store.now() - timedelta(seconds=60)
        database_of(others.store)["processes"].update_many({}, {"$set": {"recoveryTime": past, "startedAt": past}})
    polled_and_empty(others.store, *QUEUES, ago=5.0)
    for _ in range(2):
        others.pump()
        others.scan()
    assert ran == ["wide", "leaf", "leaf", "total"], "nothing is run again"
    (second,) = database_of(others.store)["processes"].find()
    assert (second["state"], second["error"]["message"]) == ("aborted", STARTED_BEFORE)
    assert not look(others.app.resources, second["_id"]).findings and not others.store.removals.live([second["_id"]])
    assert schedule_of(others).starting is None


def test_what_a_client_says_of_schedules_removes_nothing(world: World, others: World, ran: list[str]) -> None:
    """Of a start of somebody else's that nobody has begun: it is aborted at the most, which whoever writes processes
    can write as well."""
    world.tell()
    Schedules(world.app.resources).add("hourly", "wide", {"schedule": "1h"}, "a test")
    process_id = world.app.start("wide")
    world.app.registrar.flush()
    database_of(world.store)["processes"].update_one({"_id": process_id}, {"$set": {"scheduledBy": "hourly"}})
    past = others.store.now() - timedelta(seconds=60)
    database_of(others.store)["decisions"].update_many({}, {"$set": {"queuedAt": past, "recoveryTime": past}})
    world.redis.flushdb()
    polled_and_empty(others.store, *QUEUES, ago=5.0)
    others.scan()
    assert others.process(process_id).state is ProcessState.ABORTED and not ran
    assert others.counts() == dict.fromkeys(("processes", "graphs", "tasks", "decisions"), 1)


def test_an_occurrence_that_is_still_to_be_settled_is_run(world: World, ran: list[str]) -> None:
    world.tell()
    Schedules(world.app.resources).add("hourly", "wide", {"schedule": "1h"}, "a test")
    keys = slots.Keys(world.app.actors)
    look_at(world.app.resources, schedule_of(world), keys)
    told = Schedules(world.app.resources).trigger("hourly", "a test")
    assert world.bring_to_end(told.process or "").result == "1"
    assert world.process(told.process or "").scheduled_by == "hourly"
    Schedules(world.app.resources).remove("hourly")
    assert len(ran) == 4


FORGOTTEN = ("lastProcess", "accounted", "beside", "recent", "starting")


@pytest.mark.parametrize("message", ["lost", "there"])
def test_an_occurrence_that_its_schedule_has_forgotten_is_run(world: World, ran: list[str], message: str) -> None:
    """Others came after it, or the schedule was removed and added again: who looks later asks no more."""
    world.tell()
    Schedules(world.app.resources).add("hourly", "wide", {"schedule": "1h"}, "a test")
    look_at(world.app.resources, schedule_of(world), slots.Keys(world.app.actors))
    told = Schedules(world.app.resources).trigger("hourly", "a test")
    world.app.registrar.flush()
    database_of(world.store)["schedules"].update_many({}, {"$unset": dict.fromkeys(FORGOTTEN, "")})
    if message == "lost":
        past = world.store.now() - timedelta(seconds=60)
        database_of(world.store)["decisions"].update_many({}, {"$set": {"queuedAt": past, "recoveryTime": past}})
        world.redis.flushdb()
        polled_and_empty(world.store, *QUEUES, ago=5.0)
        world.scan()
    assert world.bring_to_end(told.process or "").result == "1"
    assert len(ran) == 4


def test_a_removal_that_ends_between_two_looks(
    world: World, others: World, ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the process, and at the order by which it is being removed: that goes once all is removed."""
    process_id = world.app.start("wide")
    database = database_of(world.store)
    insert, ask = world.store.decisions.insert_queued, world.store.orders.standing

    def insert_queued(*args: Any, **kwargs: Any) -> Any:
        monkeypatch.setattr(world.store.decisions, "insert_queued", insert)
        repair(others.app.resources, look(others.app.resources, process_id))
        others.bring_to_end(process_id)
        at_rest(others, process_id)
        begin_removal(others.store, [(process_id, 0)], 60)
        for name in ("decisions", "tasks", "graphs"):
            database[name].delete_many({})
        return insert(*args, **kwargs)

    def standing(marks: Any) -> Any:
        monkeypatch.setattr(world.store.orders, "standing", ask)
        for name in ("processes", "orders"):  # the last steps of a removal
            assert database[name].delete_many({}).deleted_count == 1
        return ask(marks)

    monkeypatch.setattr(world.store.decisions, "insert_queued", insert_queued)
    monkeypatch.setattr(world.store.orders, "standing", standing)
    world.app.registrar.flush()
    check_nothing_goes_on(others, ran, ["wide", "leaf", "leaf", "total"])


def test_children_of_a_process_that_is_gone(world: World, others: World, ran: list[str], tmp_path: Path) -> None:
    """Whoever applies stands still. What is left would be in the way of an import."""
    process_id = world.app.start("wide")
    world.app.registrar.flush()
    world.take_one("wide")
    in_hand = read_each(world.store, [f"{process_id}/start"], lambda *_: None)
    assert in_hand[0].decision.children
    others.bring_to_end(process_id)
    at_rest(others, process_id)
    file = tmp_path / "kept.jsonl"
    file.write_text("".join(f"{one.line()}\n" for one in others.store.exports.wholes([process_id])))
    assert remove(others.app.resources, [others.process(process_id)]) == {process_id}
    apply(world.app.resources, in_hand)
    check_nothing_goes_on(others, ran, [*ran])
    read_back(others.app.resources, [file])
    decisions = others.decisions(process_id)
    assert len(decisions) == 4 and all(one.outcome is not None for one in decisions.values())
    assert not look(others.app.resources, process_id).findings
