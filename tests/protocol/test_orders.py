"""What is done to processes by order alone: a mark that nobody has ordered has nothing done, is told, and may be
followed by an order. What was marked before there were orders is carried out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import count
from typing import Any
from unittest.mock import patch

import pytest
from pymongo.collection import Collection

from recovery.engine import break_off
from recovery.engine.end.fencing import remove
from recovery.engine.operators.overrides import ProcessTypeOverrides
from recovery.engine.operators.redo import redo_process
from recovery.errors import InputError
from recovery.health import look
from recovery.records import ErrorInfo, OrderKind, Process, ProcessState, mark_of
from recovery.records.ids import new_pass
from recovery.rules import Rule
from recovery.settings import Settings
from recovery.store import definitions, layout, schema
from recovery.store.operators.command_records import ProcessOrders
from tests.documents import database_of
from tests.emptied import emptied as emptied
from tests.emptied import lasting as lasting
from tests.faults import Died
from tests.ordered import order
from tests.scan.making import scanner
from tests.world import World, check_quiet


@pytest.fixture
def world(emptied: Settings) -> World:
    world = World(emptied, apply_timeout=0.3)

    @world.app.actor()
    def half(number: int) -> int:
        return number // 2

    @world.app.process()
    def quarter(number: int) -> Any:
        return half.schedule(half.schedule(number))

    return world


def ended(world: World) -> Process:
    process_id = world.start("quarter", 8)
    world.bring_to_end(process_id)
    check_quiet(world, process_id)
    return world.process(process_id)


def mark(world: World, process: Process, **fields: object) -> None:
    due = {"recoveryTime": world.store.now() - timedelta(seconds=1), **fields}
    database_of(world.store)["processes"].update_one({"_id": process.id}, {"$set": due})


def rules(world: World, process: Process) -> set[Rule]:
    return {finding.rule for finding in look(world.app.resources, process.id).findings}


REDO = {"redo": ["start"], "state": "running", "epoch": 1, "reopened": 1}
WRONG: dict[str, Any] = {
    "of another kind": lambda world, one: order(world.store, OrderKind.REDO, {one.id: one.epoch}),
    "of another epoch": lambda world, one: order(world.store, OrderKind.REMOVE, {one.id: one.epoch + 1}),
    "of another process": lambda world, _: order(world.store, OrderKind.REMOVE, {"0" * 32: 0}),
    "of nobody": lambda *_: new_pass(),
    "missing": lambda *_: None,
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_a_removal_that_nobody_ordered(world: World, wrong: Any) -> None:
    process = ended(world)
    key = wrong(world, process)
    mark(world, process, removing=True, **({"order": key} if key else {}))
    assert rules(world, process) == {Rule.ORDER_MISSING}
    world.scan()
    assert world.process(process.id) == process, "the mark is taken off, and all is as it was"
    assert remove(world.app.resources, [process]) == {process.id}
    assert sum(world.counts().values()) == 0
    assert database_of(world.store)["orders"].count_documents({"_id": {"$regex": process.id}}) <= 1, "but the wrong one"


@pytest.mark.parametrize("due", [True, False], ids=["due", "without a deadline"])
def test_a_mark_on_a_process_that_runs_stops_nobody(world: World, due: bool) -> None:
    """Nor the scanners of all others, nor what its tasks schedule meanwhile."""
    marked, other = world.start("quarter", 8), world.start("quarter", 16)
    fields: dict[str, object] = {"removing": True}
    if not due:
        fields["recoveryTime"] = world.store.now() + timedelta(days=1)
    mark(world, world.process(marked), **fields)
    past = world.store.now() - timedelta(seconds=1)
    database_of(world.store)["graphs"].update_many({}, {"$set": {"recoveryTime": past}})
    for name in ("processes", "graphs"):
        assert scanner(world, name).run_once().error is None
    assert not world.process(marked).removing
    assert [world.bring_to_end(one).result for one in (marked, other)] == ["2", "4"]


def test_a_record_that_a_repair_would_make_invalid_is_passed_over(world: World) -> None:
    """It is one record's fault: the others of its page are repaired, and the scan goes on."""
    odd, *others = (world.start("quarter", number) for number in (8, 16, 24))
    database, processes = database_of(world.store), scanner(world, "processes")
    for name in ("tasks", "graphs", "decisions"):
        database[name].delete_many({"_id": {"$in": [*others, *(f"{one}/start" for one in others)]}})
    without_mark: dict[str, Any] = {"_id": odd, "removing": None}
    database.command("collMod", "processes", validator={"$nor": [without_mark]})
    try:
        past = world.store.now() - timedelta(days=1)
        spoil: Any = [
            {"q": {}, "u": {"$set": {"recoveryTime": past, "startedAt": past}}, "multi": True},
            {"q": {"_id": odd}, "u": {"$set": {"removing": True}}},
        ]
        database.command("update", "processes", updates=spoil, bypassDocumentValidation=True)
        result = processes.run_once()
        assert (result.error, result.repaired) == (None, {Rule.START_NOT_REGISTERED: 2})
        left = database["processes"].find_one({"_id": odd})
        assert left is not None and left["recoveryTime"] > world.store.now(), "it is looked at later"
    finally:
        world.store.layout.create()


def die() -> None:
    raise Died


def test_a_mark_on_what_is_done_again_leaves_its_order(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    process = ended(world)
    with monkeypatch.context() as cut_off:
        cut_off.setattr(world.store.redos, "put_back", lambda *_: die())
        with pytest.raises(Died):
            redo_process(world.app.resources, process.id, "wrong data")
    past = world.store.now() - timedelta(seconds=1)
    mark(world, world.process(process.id), removing=True, recoveryTime=past)
    for _ in range(2):
        world.scan()
    assert world.bring_to_end(process.id).state is ProcessState.FINISHED
    assert len(world.process(process.id).lives) == 1


def test_a_process_that_lost_its_epoch_stops_no_other(world: World) -> None:
    odd, other = world.start("quarter", 8), world.start("quarter", 16)
    spoilt: dict[str, Any] = {"$unset": {"epoch": ""}, "$set": {"removing": True, "order": "mine"}}
    database_of(world.store)["processes"].update_one({"_id": odd}, spoilt)
    assert world.store.processes.committed_epochs([odd, other]) == {odd: 0, other: 0}
    assert {key: one.epoch for key, one in world.store.processes.standing([odd, other]).items()} == {odd: 0, other: 0}


def test_an_order_for_a_marker_of_what_did_not_break_goes(world: World) -> None:
    process = ended(world)
    ProcessTypeOverrides(world.app.resources).set(process.type, {"markers": True})
    seen = process.evolve(state=ProcessState.RUNNING)
    assert not break_off(world.app.resources, seen, ErrorInfo(kind="ValueError", message="late"), restarts=0)
    assert database_of(world.store)["orders"].count_documents({}) == 0


def test_a_removal_is_ordered_again_over_a_mark(world: World) -> None:
    process = ended(world)
    mark(world, process, removing=True)
    assert remove(world.app.resources, [world.process(process.id)]) == {process.id}
    assert sum(world.counts().values()) == 0


def test_tasks_that_nobody_ordered_to_be_done_again(world: World) -> None:
    """A worker that knows no orders has begun it, perhaps: only an operator can tell, who orders it."""
    process = ended(world)
    mark(world, process, **REDO)
    before = world.process(process.id)
    for _ in range(2):
        assert rules(world, process) == {Rule.ORDER_MISSING}
        world.scan()
        seen = world.process(process.id)
        assert seen.evolve(recovery_time=None) == before.evolve(recovery_time=None)
    redo_process(world.app.resources, process.id, "it was forged")
    done = world.bring_to_end(process.id)
    assert (done.state, done.epoch, done.order, done.result) == (ProcessState.FINISHED, 2, None, "2")
    check_quiet(world, process.id)
    assert database_of(world.store)["orders"].count_documents({}) == 0


def test_what_is_ordered_is_not_ordered_by_another(world: World) -> None:
    process = ended(world)
    mark(world, process, **REDO, order=order(world.store, OrderKind.REDO, {process.id: 1}, ["start"]))
    with pytest.raises(InputError, match="just being restarted from start; ask again"):
        redo_process(world.app.resources, process.id, "a test")
    world.scan()
    assert world.bring_to_end(process.id).epoch == 1


def test_the_order_tells_from_where(world: World) -> None:
    """Not the mark, in which anybody may put other tasks."""
    process = ended(world)
    found = database_of(world.store)["decisions"].find_one({"actor": "half", "outcome.value": "2"})
    last = str(found and found["_id"]).partition("/")[2]
    key = order(world.store, OrderKind.REDO, {process.id: 1}, [last])
    mark(world, process, **REDO, order=key)
    world.scan()
    passes = {task: one.outcome.pass_key for task, one in world.decisions(process.id).items() if one.outcome}
    assert world.bring_to_end(process.id).result == "2"
    assert passes.keys() == world.decisions(process.id).keys() - {last}, "only that was done again"


CUTS: dict[str, tuple[Any, str, int]] = {
    "before anything is ordered": (ProcessOrders, "give", 0),
    "with an order that no process names": (Collection, "update_one", 0),
    "with one of two ordered": (ProcessOrders, "give", 1),
    "with all ordered": (layout, "_change_validator", 0),
}
"""{where whoever makes the collection is killed: whose method it is then about to call, and for which time, from 0}."""


@contextmanager
def killed_before(owner: Any, name: str, time: int) -> Iterator[None]:
    """Within, whoever calls this function for that time dies."""
    function, times = getattr(owner, name), count()

    def called(*args: Any, **options: Any) -> Any:
        if next(times) == time:
            raise Died
        return function(*args, **options)

    with patch.object(owner, name, called), pytest.raises(Died):
        yield


@pytest.mark.parametrize("cut", [None, *CUTS])
def test_what_was_marked_before_there_were_orders_is_carried_out(world: World, cut: str | None) -> None:
    """By workers of an older version, which are gone: once, when the collection is made, however often that is cut
    off."""
    database, removed, again, other = database_of(world.store), ended(world), ended(world), ended(world)
    database["orders"].drop()
    mark(world, removed, removing=True)
    mark(world, again, **REDO)
    if cut is not None:
        with killed_before(*CUTS[cut]):
            world.store.layout.create()
        assert any(missing.endswith(" orders") for missing in world.store.layout.missing()), "recovery doctor tells"
    world.store.layout.create()
    assert world.store.layout.missing() == []
    marked = [mark_of(world.process(one.id)) for one in (removed, again)]
    assert world.store.orders.standing(marked).keys() == {removed.id, again.id}
    mark(world, other, removing=True)
    world.store.layout.create()
    world.scan()
    assert world.store.processes.get(removed.id) is None
    assert world.bring_to_end(again.id).epoch == 1
    assert world.process(other.id) == other
    assert schema.ORDERS in definitions.VALIDATORS
