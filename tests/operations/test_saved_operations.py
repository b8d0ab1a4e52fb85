"""Operations under names: saved, started, replaced, forgotten; and what can't be."""

from __future__ import annotations

from typing import Any

import pytest

from recovery import InputError, operations
from recovery.engine.operators.saved_searches import remove_search, save_search
from recovery.operations import OperationRequest
from recovery.operations.commands import schedule_operation
from recovery.operations.saved import as_typed, forget_operation, save_operation, unreadable_operations
from recovery.records import Operation, OperationKind, ProcessState, ProcessTypePreferences, SavedOperation, Worker
from recovery.settings import Settings
from recovery.store.operators.command_records import SavedOperations
from tests.operations.ordering import WHY, Ordering

EVERY_KIND = {
    "check": OperationRequest("check", everything=True, thorough=True, rate=50.0, priorities={"order": 2}),
    "repair": OperationRequest("repair", "state:running", thorough=True, spark=True, parquet="/found"),
    "restart": OperationRequest("restart", "type:order", spark=False),
    "restart_from": OperationRequest("restart-from", "type:order", from_actor="step", rate=0.5),
    "abort": OperationRequest("abort", "type:order idle:shorter(1h)"),
    "collect": OperationRequest("collect", "ended:before(30d)", export="/exports", export_format="jsonl"),
    "set_idle_timeout": OperationRequest("set_idle_timeout", everything=True, idle_timeout=600.0),
}
"""{kind: an operation of it}; together they have all options that there are."""


@pytest.fixture
def world(emptied: Settings) -> Ordering:
    made = Ordering(emptied)
    made.orders(1)
    made.store.actors.save([actor.preferences for actor in made.app.actors.values()])
    return made


def saved(world: Ordering) -> dict[str, str]:
    return {name: as_typed(one) for name, one in world.store.saved_operations.all().items()}


def save(world: Ordering, name: str, kind: str, selection: str = "", **more: Any) -> SavedOperation:
    asked = OperationRequest(kind, selection, everything=not selection, **more)
    return save_operation(world.app.resources, name, asked, "each week", by="ann")


def start(world: Ordering, name: str, **more: Any) -> Operation:
    return operations.start(world.app.resources, OperationRequest(name, **more), WHY, by="bob")


def entries(world: Ordering) -> list[tuple[str, str, str]]:
    """Of the audit log, the newest first."""
    return [(one.what, one.target, one.outcome or "") for one in world.store.audit_log.newest(10)]


def test_from_name_to_name(world: Ordering) -> None:
    made = save(world, "@gone", "abort", " state:running ", rate=5.0)
    assert (made.id, made.kind, made.selection, made.rate) == ("gone", OperationKind.ABORT, "state:running", 5.0)
    assert (made.by, made.reason, made.version) == ("ann", "each week", 0)
    assert made.at is not None and abs((world.store.now() - made.at).total_seconds()) < 60
    started = start(world, "@gone")
    assert (started.kind, started.selection, started.rate) == ("abort", "state:running", 5.0)
    assert (started.who, started.why, started.apply_at_once) == ("bob", WHY, None)
    asked = OperationRequest("abort", "state:broken")
    save_operation(world.app.resources, "gone", asked, replace=True, by="bob")
    assert world.store.saved_operations.all()["gone"].version == 1
    assert operations.find(world.app.resources, started.id).selection == "state:running", "it stays as it was ordered"
    assert as_typed(forget_operation(world.app.resources, "@gone", by="bob")) == "abort state:broken"
    assert saved(world) == {}
    assert entries(world) == [
        ("operation forget", "@gone", "forgotten: abort state:broken"),
        ("operation save", "gone", "saved in the place of: abort state:running --rate 5"),
        ("operation start", "abort", "operation 1 is ordered"),
        ("operation save", "@gone", "saved"),
    ]
    (entry,) = world.store.audit_log.newest(1, what="operation start")
    assert '"saved": "gone"' in (entry.details or "")


def test_it_is_done_as_it_was_saved(world: Ordering) -> None:
    save(world, "gone", "abort", "state:running")
    started = start(world, "@gone", apply=True)
    world.bring_on(started)
    assert {world.process(one).state for one in world.results(started)} == {ProcessState.ABORTED}


@pytest.mark.parametrize("kind", [kind.value for kind in OperationKind])
def test_every_kind_is_started_as_if_it_were_written_out(world: Ordering, kind: str) -> None:
    worker = Worker(id="s", name="s", host="here", pid=1, pid_started=1, queues=(), spark=True)
    asked = EVERY_KIND[kind]
    save_operation(world.app.resources, "one", asked)
    world.store.workers.beat(worker, 60)
    by_name, written = start(world, "@one"), operations.start(world.app.resources, asked, WHY)
    assert by_name.what() == written.what() == world.store.saved_operations.all()["one"].what()
    assert by_name.id != written.id


def test_no_option_is_left_out_above() -> None:
    given = {name for asked in EVERY_KIND.values() for name in OperationRequest.__slots__ if getattr(asked, name)}
    assert set(OperationRequest.__slots__) - given == {"apply", "here", "none_is_fine", "slot"}
    assert EVERY_KIND.keys() == set(OperationKind)


def test_the_same_again_changes_nothing(world: Ordering) -> None:
    first = save(world, "gone", "abort", "state:running", rate=5.0)
    asked = OperationRequest("abort", "state:running", rate=5.0)
    assert save_operation(world.app.resources, "gone", asked, "why not", by="bob") == first
    assert save_operation(world.app.resources, "gone", asked, replace=True, by="bob") == first
    assert {one[2] for one in entries(world)} == {"saved", "was saved already"}


@pytest.mark.parametrize(
    ("name", "asked", "said"),
    [
        ("there", OperationRequest("check", everything=True), "@there is saved already, by ann, at 20.*: abort state:"),
        ("there is", OperationRequest("check", everything=True), "name 'there is': the name of an operation has lett"),
        ("@", OperationRequest("check", everything=True), "as in weekly-check"),
        ("x" * 51, OperationRequest("check", everything=True), "at most 50"),
        ("new", OperationRequest("chek", everything=True), "no operation is called 'chek'; did you mean 'check'"),
        ("new", OperationRequest("@there"), "no operation is called '@there'"),
        ("new", OperationRequest("check"), "no selection was given"),
        ("new", OperationRequest("check", "state:running", everything=True), "give one of them"),
        ("new", OperationRequest("check", "stat:broken"), "no field is called 'stat'; did you mean state?"),
        ("new", OperationRequest("check", "@stuck"), "no search is saved as 'stuck'"),
        ("new", OperationRequest("abort", "state:running", thorough=True), "is for check and repair; abort looks"),
        ("new", OperationRequest("restart", "state:broken", from_actor="step"), "is for restart_from; a restart"),
        ("new", OperationRequest("restart_from", "state:broken", from_actor="stp"), "did you mean 'step'"),
        ("new", OperationRequest("check", everything=True, parquet="/found"), "give --spark"),
        ("new", OperationRequest("set_idle_timeout", everything=True), "--idle-timeout is required"),
        ("new", OperationRequest("collect", "ended:before(1d)", export="here"), "give the whole path"),
        ("new", OperationRequest("check", everything=True, rate=0.0), "above 0"),
        ("new", OperationRequest("check", everything=True, priorities={"oder": 1}), "did you mean 'order'"),
    ],
)
def test_what_can_not_be_saved(world: Ordering, name: str, asked: OperationRequest, said: str) -> None:
    save(world, "there", "abort", "state:running")
    with pytest.raises(InputError, match=said):
        save_operation(world.app.resources, name, asked)
    assert saved(world) == {"there": "abort state:running"}
    assert entries(world)[0][2].startswith("refused: ")


def test_what_is_there_only_later_may_be_saved(world: Ordering) -> None:
    """Processes that match, and a worker that serves Spark, have to be there when it is started."""
    save(world, "later", "abort", "state:broken", spark=True)
    with pytest.raises(InputError, match="no process matches 'state:broken'"):
        start(world, "@later")
    world.refunds(1)
    with pytest.raises(InputError, match="no live worker serves the queue spark"):
        start(world, "@later")


def test_a_saved_search_is_read_when_it_is_started(world: Ordering) -> None:
    save_search(world.app.resources, "stuck", "state:broken")
    save(world, "gone", "abort", "@stuck type:order")
    assert saved(world) == {"gone": "abort '@stuck type:order'"}
    with pytest.raises(InputError, match="@stuck is a part of the operation @gone: change or remove that first"):
        remove_search(world.app.resources, "stuck")
    save_search(world.app.resources, "stuck", "state:running", replace=True)
    assert start(world, "@gone").selection == "(state:running) type:order"
    forget_operation(world.app.resources, "gone")
    remove_search(world.app.resources, "stuck")


def test_what_can_not_be_started(world: Ordering) -> None:
    save(world, "gone", "abort", "state:running")
    for asked, said in (
        (OperationRequest("@gon"), "no operation is saved as 'gon'; did you mean @gone?"),
        (OperationRequest("@gone", "state:broken"), "@gone is abort state:running: leave the selection out"),
        (OperationRequest("@gone", everything=True, rate=5.0), "leave --all, --rate out"),
        (OperationRequest("@gone", spark=False, thorough=True), "leave --thorough, --spark out"),
    ):
        with pytest.raises(InputError, match=said):
            operations.start(world.app.resources, asked, WHY)
    forget_operation(world.app.resources, "gone")
    with pytest.raises(InputError, match=r"there is none \(`recovery operation save`\)"):
        start(world, "@gone")
    with pytest.raises(InputError, match="no operation is saved as 'gone'"):
        forget_operation(world.app.resources, "gone")
    assert world.store.operations.newest(1) == []


def test_what_can_not_be_read_any_more_is_told_and_can_be_replaced(world: Ordering) -> None:
    kept = world.store.database["savedOperations"]
    kept.insert_one({"_id": "older", "kind": "abort", "selection": "colour:red", "version": 0})
    kept.insert_one({"_id": "newer", "kind": "abort", "version": 0})
    found = unreadable_operations(world.app.resources, world.store.saved_operations.all())
    assert found.keys() == {"older"} and "no field is called 'colour'" in found["older"]
    with pytest.raises(InputError, match="no field is called 'colour'"):
        start(world, "@older")
    save_operation(world.app.resources, "older", OperationRequest("abort", "state:running"), replace=True)
    assert start(world, "@older").selection == "state:running"


def test_one_without_a_version_can_be_replaced_and_forgotten(world: Ordering) -> None:
    kept = world.store.database["savedOperations"]
    kept.insert_one({"_id": "older", "kind": "abort", "selection": "state:broken"})
    save_operation(world.app.resources, "older", OperationRequest("abort", "state:running"), replace=True)
    assert kept.find_one()["version"] == 1
    kept.update_one({}, {"$unset": {"version": True}})
    assert forget_operation(world.app.resources, "older").selection == "state:running"


def test_one_that_is_damaged_is_named_with_what_to_do(world: Ordering) -> None:
    kept = world.store.database["savedOperations"]
    kept.insert_one({"_id": "bad", "kind": "abort", "priorities": {"order": 1.5}})
    told = "@bad can't be read: .*Correct or remove it in MongoDB's collection `savedOperations`"
    with pytest.raises(InputError, match=told):
        save_operation(world.app.resources, "bad", OperationRequest("abort", "state:running"), replace=True)
    with pytest.raises(InputError, match=told):
        forget_operation(world.app.resources, "bad")


def test_a_name_that_is_no_text(world: Ordering) -> None:
    for name in (None, 5, ["a"]):
        with pytest.raises(InputError, match="name="):
            forget_operation(world.app.resources, name)  # type: ignore[arg-type]


def test_a_misspelt_type_is_refused_when_it_is_saved_or_scheduled(world: Ordering) -> None:
    world.store.process_types.save([ProcessTypePreferences(id="order")])
    asked = OperationRequest("abort", "type:ordre")
    with pytest.raises(InputError, match=r"no process of type 'ordre' was seen; .*order"):
        save_operation(world.app.resources, "a", asked)
    with pytest.raises(InputError, match=r"no process of type 'ordre' was seen; .*order"):
        schedule_operation(world.app.resources, "s", asked, {"schedule": "1h"}, WHY)
    assert world.store.saved_operations.all() == world.store.schedules.all() == {}


@pytest.mark.parametrize("what", ["insert", "replace", "remove"])
def test_of_two_at_once_one_is_told(world: Ordering, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if what != "insert":
        save(world, "a", "abort", "state:running")
    step = getattr(SavedOperations, what)
    asked = OperationRequest("abort", "state:aborted")

    def late(self: Any, one: SavedOperation) -> bool:
        monkeypatch.undo()
        save_operation(world.app.resources, "a", asked, replace=True)
        return bool(step(self, one))

    monkeypatch.setattr(SavedOperations, what, late)
    with pytest.raises(InputError, match="@a was changed by somebody else just now"):
        if what == "remove":
            forget_operation(world.app.resources, "a")
        else:
            save_operation(world.app.resources, "a", OperationRequest("abort", "state:broken"), replace=True)
    assert saved(world) == {"a": "abort state:aborted"}
