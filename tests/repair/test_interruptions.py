"""What a broken process is not listed for is listed again as it was, and what it is not broken for is left alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from recovery.engine.end.breaking import break_process
from recovery.health import look, repair
from recovery.records import ErrorInfo, ProcessState
from recovery.repair import Repairer
from recovery.rules import Rule
from recovery.store import Restarted
from tests.failure_map.faults import HOUR
from tests.world import World, by_message_only

Document = dict[str, Any]


@pytest.fixture
def world(world: World) -> World:
    """`order` has one task that fails while `refused`, and one that goes on."""
    world.refused = True  # type: ignore[attr-defined]

    @world.app.actor()
    def pay(amount: int) -> int:
        if world.refused:  # type: ignore[attr-defined]
            raise ValueError(f"{amount} is too much")
        return amount

    @world.app.process()
    def order() -> Any:
        return [pay.schedule(5), pay.schedule(7)]

    return world


def settle(world: World) -> None:
    """Everything happened an hour ago: what is absent is absent."""
    past = world.store.now() - HOUR
    world.store.database["graphs"].update_many({}, {"$set": {"touchedAt": past}})
    world.store.database["processes"].update_many({"endedAt": {"$exists": True}}, {"$set": {"endedAt": past}})


def listed(world: World) -> list[Document]:
    """All but when they were written."""
    return list(world.store.database["interruptions"].find({}, {"at": False}).sort("_id", 1))


def lose(world: World) -> None:
    assert world.store.database["interruptions"].delete_many({}).deleted_count


def found(world: World, process_id: str) -> list[str]:
    findings = look(world.app.resources, process_id).findings
    return [f.record.partition("/")[2] for f in findings if f.rule is Rule.INTERRUPTION_MISSING]


def of_tasks(world: World) -> str:
    return world.bring_to_end(world.start("order")).id


def after_a_restart(world: World) -> str:
    process_id = of_tasks(world)
    assert world.app.restart(process_id) == 2
    world.bring_to_end(process_id)
    assert [one["restarts"] for one in listed(world)] == [1, 1]
    return process_id


def as_a_whole(world: World) -> str:
    process_id = world.start("order")
    error = ErrorInfo(kind="ProcessTimeout", message="the process was not done in time")
    assert break_process(world.app.resources, process_id, 0, error)
    return process_id


def for_lost_records(world: World) -> str:
    """Given up: its start's decision is gone, and with it what it scheduled."""
    world.refused = False  # type: ignore[attr-defined]
    process_id = world.start("order")
    with by_message_only():
        world.take_one("order")
        world.take_one("pay")
    world.store.database["decisions"].delete_one({"_id": f"{process_id}/start"})
    settle(world)
    repair(world.app.resources, look(world.app.resources, process_id))
    process = world.process(process_id)
    assert process.error is not None and process.error.kind == "RecordsLost"
    return process_id


WAYS: list[Callable[[World], str]] = [of_tasks, after_a_restart, as_a_whole, for_lost_records]


@pytest.mark.parametrize("broken", WAYS)
@pytest.mark.parametrize("graph", [True, False], ids=["", "without its graph"])
def test_listed_again_as_it_was(world: World, broken: Callable[[World], str], graph: bool) -> None:
    process_id = broken(world)
    settle(world)
    before = listed(world)
    assert before and found(world, process_id) == [], "listed: the look-alike is left alone"
    lose(world)
    if not graph:
        world.store.database["graphs"].delete_one({"_id": process_id})
    done, _ = repair(world.app.resources, look(world.app.resources, process_id))
    assert done[Rule.INTERRUPTION_MISSING] == len(before) and not found(world, process_id)
    assert listed(world) == before


def test_one_of_two(world: World) -> None:
    process_id = of_tasks(world)
    settle(world)
    first, second = listed(world)
    world.store.database["interruptions"].delete_one({"_id": second["_id"]})
    assert found(world, process_id) == [second["_id"].partition("/")[2]]
    repair(world.app.resources, look(world.app.resources, process_id))
    assert listed(world) == [first, second]


def test_broken_by_another_program(world: World) -> None:
    """Nobody has kept why: it is listed for that, and can be restarted."""
    world.refused = False  # type: ignore[attr-defined]
    process_id = world.start("order")
    world.store.database["processes"].update_one(
        {"_id": process_id}, {"$set": {"state": "broken"}, "$unset": {"recoveryTime": 1}}
    )
    settle(world)
    done, _ = repair(world.app.resources, look(world.app.resources, process_id))
    assert done[Rule.INTERRUPTION_MISSING] == 1
    (one,) = listed(world)
    assert (one["kind"], one["message"]) == ("Unknown", "why it can't go on is not known any more")
    world.app.restart(process_id)
    assert world.bring_to_end(process_id).state is ProcessState.FINISHED and listed(world) == []


def test_what_has_just_broken_is_left_alone(world: World) -> None:
    """Somebody may be listing it."""
    process_id = of_tasks(world)
    lose(world)
    world.app.resources.settings.__dict__["apply_timeout"] = 30.0
    assert found(world, process_id) == []


def test_a_later_one_stays_and_an_earlier_one_is_replaced(world: World) -> None:
    process_id = after_a_restart(world)
    settle(world)
    first, second = listed(world)
    interruptions = world.store.database["interruptions"]
    interruptions.update_one({"_id": first["_id"]}, {"$set": {"restarts": 0, "kind": "Earlier"}})
    interruptions.update_one({"_id": second["_id"]}, {"$set": {"restarts": 2, "kind": "Later"}})
    examined = look(world.app.resources, process_id)
    assert [finding.record for finding in examined.findings] == [first["_id"]]
    repair(world.app.resources, examined)
    assert listed(world) == [first, {**second, "restarts": 2, "kind": "Later"}]


@pytest.mark.parametrize("reopened", [False, True], ids=["queued", "and reopened in the graph"])
def test_a_restart_that_was_cut_off_is_left_alone(world: World, reopened: bool) -> None:
    """Its task goes on, and sets its process running at its end."""
    process_id = of_tasks(world)
    keys = [one["_id"] for one in listed(world)]
    world.refused = False  # type: ignore[attr-defined]
    assert len(world.store.restarts.queue([Restarted(key, 0, 0) for key in keys], "f" * 32)) == 2
    if reopened:
        world.store.restarts.reopen_graphs([Restarted(key, 1, 0) for key in keys])
    lose(world)
    settle(world)
    assert found(world, process_id) == []
    assert world.process(process_id).state is ProcessState.BROKEN


@pytest.mark.parametrize("broken", WAYS[:3])
@pytest.mark.parametrize("operator", ["restart", "abort"])
def test_restarted_while_it_is_listed(
    world: World, broken: Callable[[World], str], operator: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look and the write: who restarts, or aborts, it is through before it is listed."""
    process_id = broken(world)
    settle(world)
    lose(world)
    examined = look(world.app.resources, process_id)
    interruptions = world.store.interruptions
    add, begun = interruptions.add, list[str]()

    def late(one: Any) -> bool:
        if not begun:
            begun.append(one.id)
            getattr(world.app, operator)(process_id, *(["withdrawn"] if operator == "abort" else []))
        return add(one)

    monkeypatch.setattr(interruptions, "add", late)
    Repairer(world.app.resources, world.app.outbox).repair(examined.findings, examined.around)
    assert begun and listed(world) == []


def test_a_restart_needs_no_list(world: World) -> None:
    process_id = of_tasks(world)
    lose(world)
    world.refused = False  # type: ignore[attr-defined]
    assert world.app.restart(process_id) == 2
    assert world.bring_to_end(process_id).state is ProcessState.FINISHED
