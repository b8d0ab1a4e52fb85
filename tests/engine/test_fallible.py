"""Fallible tasks: their failure is a value, and their process goes on."""

from __future__ import annotations

from typing import Any

import pytest

from recovery import Failure, InputError
from recovery.errors import NotEncodable
from recovery.records import Decision, DecisionState, ProcessState
from recovery.records import task as task_record
from tests.faults import Died
from tests.world import World, by_message_only, check_quiet


class PaymentRefused(Exception):
    """An application's own error."""


def add_actors(world: World) -> tuple[Any, Any]:
    @world.app.actor()
    def pay(amount: int) -> int:
        if amount > 5:
            raise PaymentRefused(f"{amount} is too much")
        return amount

    @world.app.actor()
    def tell(found: Any) -> Any:
        return describe(found)

    return pay, tell


def describe(found: Any) -> Any:
    """What came in a value's place, as JSON."""
    if isinstance(found, Failure):
        return f"{found.actor}: {found.kind}: {found.message}"
    if isinstance(found, dict):
        return {key: describe(item) for key, item in found.items()}
    return [describe(item) for item in found] if isinstance(found, list) else found


REFUSED = "pay: PaymentRefused: 7 is too much"


@pytest.mark.parametrize("large", [False, True])
def test_who_waits_gets_the_failure(world: World, large: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of a task that is too large for its decision to have a copy."""
    if large:
        monkeypatch.setattr(task_record, "CALL_BYTES", 0)
    pay, tell = add_actors(world)

    @world.app.process()
    def order() -> Any:
        return tell.schedule({"paid": [pay.options(fallible=True).schedule(n) for n in (3, 7)]})

    assert world.run(order) == {"paid": [3, REFUSED]}
    (process,) = world.store.database["processes"].find()
    check_quiet(world, process["_id"])


def test_on_the_spot_and_by_message(world: World) -> None:
    pay, tell = add_actors(world)

    @world.app.process()
    def order() -> Any:
        return tell.schedule(pay.options(fallible=True).schedule(7))

    assert world.run(order) == REFUSED
    with by_message_only():
        assert world.run(order) == REFUSED


def test_it_may_be_part_of_the_result(world: World) -> None:
    pay, _ = add_actors(world)

    @world.app.process()
    def order() -> Any:
        return {"all": [pay.options(fallible=True).schedule(n) for n in (3, 7)]}

    paid, refused = world.run(order)["all"]
    assert paid == 3
    assert isinstance(refused, Failure)
    assert (refused.kind, refused.message, refused.actor) == ("PaymentRefused", "7 is too much", "pay")
    (process,) = world.store.database["processes"].find()
    failed = world.decisions(process["_id"])[refused.task]
    assert (failed.failed, failed.state) == (False, DecisionState.FINISHED)


def test_a_failure_can_be_returned_and_passed_on(world: World) -> None:
    """By a task that got it; it comes out the same at the end."""
    pay, tell = add_actors(world)
    same = world.app.actor("same")(lambda found: found)
    again = world.app.actor("again")(lambda found: tell.schedule([found]))

    @world.app.process()
    def order() -> Any:
        kept = same.schedule(pay.options(fallible=True).schedule(7))
        return [kept, again.schedule(kept)]

    kept, told = world.run(order)
    assert (describe(kept), told) == (REFUSED, [REFUSED])


def test_promised_by_another(world: World) -> None:
    """Who waits for a decider waits for the fallible child that it promised, and gets its failure."""
    pay, tell = add_actors(world)
    decide = world.app.actor("decide")(lambda amount: pay.options(fallible=True).schedule(amount))

    @world.app.process()
    def order() -> Any:
        return tell.schedule([decide.schedule(7), decide.schedule(2)])

    assert world.run(order) == [REFUSED, 2]


def test_a_decider_that_fails_has_no_children(world: World) -> None:
    pay, tell = add_actors(world)

    @world.app.actor()
    def decide() -> Any:
        pay.schedule(1)
        raise ValueError("after scheduling")

    @world.app.process()
    def order() -> Any:
        return tell.schedule(decide.options(fallible=True).schedule())

    assert world.run(order) == "decide: ValueError: after scheduling"
    assert world.counts()["tasks"] == 3


def test_what_it_schedules_is_not_fallible(world: World) -> None:
    pay, tell = add_actors(world)
    decide = world.app.actor("decide")(pay.schedule)

    @world.app.process()
    def order() -> Any:
        return tell.schedule(decide.options(fallible=True).schedule(7))

    process = world.bring_to_end(world.start(order))
    assert process.state is ProcessState.BROKEN


def test_a_time_out_is_a_failure_too(world: World) -> None:
    _, tell = add_actors(world)

    @world.app.actor(worker_timeout=0.1, restart_after_work_timeout=False)
    def hang() -> None:
        raise Died

    @world.app.process()
    def order() -> Any:
        return tell.schedule(hang.options(fallible=True).schedule())

    process_id = world.start(order)
    with by_message_only():
        for _ in range(2):
            try:
                world.pump()
            except Died:
                break
    world.bring_to_end(process_id)
    assert str(world.app.result(process_id)).startswith("hang: WorkTimeout: hang brought no result within 0.1 s")


def test_nothing_is_interrupted(world: World) -> None:
    pay, _ = add_actors(world)

    @world.app.process()
    def order() -> None:
        pay.options(fallible=True).schedule(7)

    world.run(order)
    assert world.store.database["interruptions"].count_documents({}) == 0


def test_it_is_true_or_false(world: World) -> None:
    pay, _ = add_actors(world)
    with pytest.raises(InputError, match=r"pay.options\(fallible='yes'\): must be True or False"):
        pay.options(fallible="yes")


def test_the_key_is_reserved(world: World) -> None:
    with pytest.raises(NotEncodable, match="the key '\\$failure' is reserved for failures"):
        world.start(world.app.process("order")(lambda found: found), {"$failure": {"kind": "mine"}})


def test_only_an_error_that_breaks_is_a_failed_decision() -> None:
    assert not Decision(id="p/t", actor="a").failed
