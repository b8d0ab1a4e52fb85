"""What operators do with operations: each thing once, whoever is at it at the same time, and on record."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest

from recovery import InputError, operations
from recovery.engine.operators.auditing import origin
from recovery.operations import OperationRequest
from recovery.records import Operation, OperationState
from recovery.settings import Settings
from tests.operations.ordering import WHY, Ordering


@pytest.fixture
def world(emptied: Settings) -> Ordering:
    return Ordering(emptied)


def test_two_operators_at_once_apply_it_once(world: Ordering, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both have read that it is planned before either of them writes."""
    ids = world.orders(2)
    planned = world.bring_on(world.ask("abort", "state:running"))
    save, applied = world.store.operations.save, list[Operation]()

    def after_another(*args: Any, **options: Any) -> Operation | None:
        if not applied:
            applied.append(planned)
            applied[0] = operations.apply(world.app.resources, planned.id, by="bob")
        return save(*args, **options)

    monkeypatch.setattr(world.store.operations, "save", after_another)
    with pytest.raises(InputError, match="is running; only a plan that is complete can be applied"):
        operations.apply(world.app.resources, planned.id, by="ann")
    assert applied[0].state is OperationState.RUNNING and world.now(planned) == applied[0], "left as it was"
    entries = world.store.audit_log.newest(2, what="operation apply")
    assert [(one.who, (one.outcome or "").split(":")[0]) for one in entries] == [("bob", "done"), ("ann", "refused")]
    done = world.bring_on(planned)
    assert done.applied is not None and (done.applied.done, done.applied.changed) == (2, 0)
    assert world.states(ids) == ["aborted"] * 2


def test_one_that_is_over_stays_as_it_is(world: Ordering) -> None:
    world.orders(2)
    done = world.run_through("abort", "state:running")
    for step, said in (
        (lambda: operations.apply(world.app.resources, done.id), "finished, since 20.*can be applied"),
        (lambda: operations.pause(world.app.resources, done.id), "finished, since 20.*can be paused"),
        (lambda: operations.resume(world.app.resources, done.id), "finished, since 20.*can be resumed"),
        (lambda: operations.cancel(world.app.resources, done.id, "late"), "finished, since 20.*nothing to cancel"),
        (lambda: operations.set_rate(world.app.resources, done.id, 5.0), "finished, since 20.*no longer be changed"),
    ):
        with pytest.raises(InputError, match=said):
            step()
    assert world.now(done) == done


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (OperationRequest("abort"), "no selection was given.*--all"),
        (OperationRequest("abort", "state:running", everything=True), "give one of them"),
        (OperationRequest("abort", "type:none"), "no process matches 'type:none'"),
        (OperationRequest("abrot", "state:running"), "did you mean 'abort'"),
        (OperationRequest("abort", "state:running", rate=0.0), "rate 0.0: .*above 0"),
        (OperationRequest("abort", "state:running", rate=-1.0), "pause it"),
        (OperationRequest("abort", "state:running", rate=float("nan")), "above 0"),
        (OperationRequest("abort", "state:running", priorities={"oder": 1}), "did you mean 'order'"),
        (OperationRequest("check", "state:running", apply=True), "a check changes nothing"),
    ],
)
def test_bad_input_is_an_error_and_saves_nothing(world: Ordering, asked: OperationRequest, said: str) -> None:
    world.orders(1)
    with pytest.raises(InputError, match=said):
        operations.start(world.app.resources, asked, WHY)
    assert world.store.operations.newest(1) == []


def test_a_reason_is_needed(world: Ordering) -> None:
    world.orders(1)
    with pytest.raises(InputError, match="say in a few words why"):
        operations.start(world.app.resources, OperationRequest("check", everything=True), " ")


def test_a_number_that_is_none(world: Ordering) -> None:
    with pytest.raises(InputError, match="no operation has the number 7; there is none yet"):
        operations.apply(world.app.resources, 7)


def test_the_audit_log_tells_all(world: Ordering) -> None:
    world.orders(1)
    resources = world.app.resources
    number = world.bring_on(world.ask("abort", "state:running", rate=9.0, priorities={"order": 3})).id
    operations.set_rate(resources, number, 5.0, "gently", by="bob")
    operations.set_rate(resources, number, None, "as fast as it goes", by="bob")
    operations.apply(resources, number, "looked at it", by="bob")
    operations.pause(resources, number, "lunch", by="cy")
    operations.resume(resources, number, "after lunch", by="cy")
    with pytest.raises(InputError):
        operations.apply(resources, number, "once more", by="eve")
    operations.cancel(resources, number, "not after all", by="dan")
    entries = world.store.audit_log.newest(20, operation=number)[::-1]
    told = [(one.what.split()[1], one.who, one.why, (one.outcome or "").split(":")[0]) for one in entries]
    assert told == [
        ("start", "ann", WHY, f"operation {number} is ordered"),
        ("rate", "bob", "gently", "done"),
        ("rate", "bob", "as fast as it goes", "done"),
        ("apply", "bob", "looked at it", "done"),
        ("pause", "cy", "lunch", "done"),
        ("resume", "cy", "after lunch", "done"),
        ("apply", "eve", "once more", "refused"),
        ("cancel", "dan", "not after all", "done"),
    ]
    assert [one.target for one in entries] == ["abort", *[str(number)] * 7]
    assert {one.origin for one in entries} == {origin()}
    details = [json.loads(one.details) if one.details else {} for one in entries]
    start = {"selection": "state:running", "rate": 9.0, "priorities": {"order": 3}, "apply": False}
    assert details[:3] == [start, {"rate": 5.0}, {"rate": "unlimited"}]
    moments = [moment for one in entries for moment in (one.at, one.ended_at) if moment is not None]
    assert len(moments) == 16 and moments == sorted(moments), "one after the other"


@pytest.mark.parametrize(("died", "outcome"), [(False, "cut off: KeyboardInterrupt"), (True, None)])
def test_the_audit_log_has_it_before_it_is_done(
    world: Ordering, monkeypatch: pytest.MonkeyPatch, died: bool, outcome: str | None
) -> None:
    """Who was stopped in the midst of it is on record; who was killed as well, without an outcome."""
    world.orders(1)
    planned = world.bring_on(world.ask("abort", "state:running"))
    seen = list[str | None]()

    def cut_off(*_: Any, **__: Any) -> None:
        seen.extend(one.outcome for one in world.store.audit_log.newest(1, what="operation apply"))
        if died:
            monkeypatch.setattr(world.store.audit_log, "end", lambda *_: None)
        raise KeyboardInterrupt

    monkeypatch.setattr(world.store.operations, "save", cut_off)
    with pytest.raises(KeyboardInterrupt):
        operations.apply(world.app.resources, planned.id, "looked at it")
    (entry,) = world.store.audit_log.newest(1, what="operation apply")
    assert seen == [None] and (entry.why, entry.operation, entry.outcome) == ("looked at it", planned.id, outcome)
    assert (entry.ended_at is None) is died


def test_numbers_go_on_and_nothing_is_lost_between_some_who_order(world: Ordering) -> None:
    world.orders(1)
    who, each = ("ann", "bob", "cy", "dan"), 6
    together = Barrier(len(who))

    def ask(name: str) -> list[int]:
        together.wait(10)
        asked = OperationRequest("check", everything=True)
        return [operations.start(world.app.resources, asked, f"for {name}", by=name).id for _ in range(each)]

    with ThreadPoolExecutor(len(who)) as operators:
        numbers = dict(zip(who, operators.map(ask, who), strict=True))
    assert sorted(number for some in numbers.values() for number in some) == [*range(1, len(who) * each + 1)]
    saved = {one.id: (one.who, one.why) for one in world.store.operations.newest(100)}
    assert saved == {number: (name, f"for {name}") for name, some in numbers.items() for number in some}
