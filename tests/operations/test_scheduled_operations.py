"""Schedules order operations of every kind, with all options, directly or by the name of a saved one; and an earlier
version's workers leave alone what they would do wrongly."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from recovery import operations
from recovery.engine import Keys
from recovery.engine.operators.schedules import Schedules
from recovery.errors import DamagedRecord, InputError
from recovery.operations import OperationRequest
from recovery.operations.commands import schedule_operation
from recovery.operations.saved import forget_operation, save_operation
from recovery.records import Operation, OperationKind, OperationState, Record, Worker, from_document
from recovery.records.operation import ExportFormat
from recovery.records.schedule import Schedule
from recovery.scan import ScheduleScanner
from recovery.settings import Settings
from recovery.store.expressions import OVERDUE
from tests.operations.ordering import WHY, Ordering
from tests.operations.test_saved_operations import EVERY_KIND

NAME = "weekly"
AT_THREE = {"schedule": "0 3 * * 0"}
NOT_COLLECT = [kind.value for kind in OperationKind if kind is not OperationKind.COLLECT]


@pytest.fixture
def world(emptied: Settings) -> Ordering:
    made = Ordering(emptied)
    made.store.actors.save([actor.preferences for actor in made.app.actors.values()])
    spark = Worker(id="s", name="s", host="here", pid=1, pid_started=1, queues=(), spark=True)
    made.store.workers.beat(spark, 60)
    return made


def schedule(world: Ordering, asked: OperationRequest) -> Schedule:
    return schedule_operation(world.app.resources, NAME, asked, AT_THREE, "each week", by="ann")


def get(world: Ordering) -> Schedule:
    found = world.store.schedules.get(NAME)
    assert found is not None
    return found


def ordered(world: Ordering) -> Operation:
    """The operation of a slot that is due now, as the scanner orders it."""
    saved = get(world)
    moment = world.store.now().replace(microsecond=0) - timedelta(minutes=1)
    if saved.recent:
        moment = max(moment, saved.recent[-1].slot + timedelta(seconds=1))
    assert world.store.schedules.save(saved.evolve(next_slot=moment, recovery_time=moment))
    result = ScheduleScanner(world.app.resources, world.app.outbox, Keys(world.app.actors)).run_once()
    assert result.error is None
    (operation,) = world.store.operations.newest(1)
    return operation


def test_a_saved_repair_is_ordered_and_repairs(world: Ordering) -> None:
    """Whole: tasks of a worker that is gone are queued again by the repair of a slot, and by no other look."""
    started = world.orders(2)
    world.lose_messages()
    past = {"state": "working", "worker": "gone", "recoveryTime": world.store.now() - timedelta(hours=1)}
    world.store.database["decisions"].update_many({"_id": {"$regex": "/start$"}}, {"$set": past})
    world.store.catch_up(10)
    save_operation(world.app.resources, "mend", OperationRequest("repair", "type:order", thorough=True))
    made = schedule(world, OperationRequest("@mend"))
    assert made.orders is not None and made.orders.saved == "mend"
    operation = ordered(world)
    assert (operation.kind, operation.selection, operation.thorough) == ("repair", "type:order", True)
    assert (operation.who, operation.why, operation.apply_at_once) == ("schedule weekly", "each week", True)
    done = world.bring_on(operation, OperationState.FINISHED)
    assert done.applied is not None and done.applied.repaired == {"WORK_TIMEOUT": 2}
    assert [world.bring_to_end(one).state.value for one in started] == ["finished"] * 2
    assert [(one.outcome.value, one.operation) for one in get(world).recent] == [("started", operation.id)]
    (entry,) = world.store.audit_log.newest(1, what="operation start")
    assert (entry.who, entry.operation) == ("schedule weekly", operation.id)
    assert '"saved": "mend"' in (entry.details or "") and '"thorough": true' in (entry.details or "")


@pytest.mark.parametrize("kind", [kind.value for kind in OperationKind])
@pytest.mark.parametrize("by_name", [False, True])
def test_every_kind_is_ordered_with_all_options(world: Ordering, kind: str, by_name: bool) -> None:
    asked = EVERY_KIND[kind]
    if by_name:
        save_operation(world.app.resources, "one", asked)
    schedule(world, OperationRequest("@one") if by_name else asked)
    operation = ordered(world)
    assert operation.what() == asked.checked_to_save(world.app.resources).what()
    # A check is nothing but its plan.
    assert operation.apply_at_once is (None if kind == "check" else True)
    assert get(world).type == f"operation {kind}"


def test_a_check_is_over_without_anybody(world: Ordering) -> None:
    world.orders(1)
    schedule(world, OperationRequest("check", everything=True))
    assert world.bring_on(ordered(world), OperationState.FINISHED).ended_at is not None
    assert ordered(world).id == 2


def test_the_schedule_keeps_the_operation_that_was_saved(world: Ordering) -> None:
    save_operation(world.app.resources, "gone", OperationRequest("abort", "state:broken", rate=5.0))
    before = schedule(world, OperationRequest("@gone")).orders
    save_operation(world.app.resources, "gone", OperationRequest("abort", "state:running"), replace=True)
    assert ordered(world).selection == "state:broken"
    operations.cancel(world.app.resources, 1, WHY)
    forget_operation(world.app.resources, "gone")
    assert ordered(world).rate == 5.0
    assert get(world).orders == before


@pytest.mark.parametrize(
    ("asked", "said", "told"),
    [
        (OperationRequest("@gone"), AT_THREE, "no operation is saved as 'gone'; there are @there"),
        (OperationRequest("@there", rate=5.0), AT_THREE, "@there is repair --all: leave --rate out"),
        (OperationRequest("@there"), {}, "no times are given"),
        (OperationRequest("repare", everything=True), AT_THREE, "did you mean 'repair'"),
        (OperationRequest("repair"), AT_THREE, "no selection was given"),
        (OperationRequest("repair", "@stuck"), AT_THREE, "no search is saved as 'stuck'"),
        (OperationRequest("abort", "state:running", thorough=True), AT_THREE, "is for check and repair"),
        (OperationRequest("collect", everything=True), AT_THREE, "a scheduled collect needs a selection"),
        (
            OperationRequest("repair", everything=True),
            {**AT_THREE, "overlap": "allow"},
            "only one of its operations may run",
        ),
    ],
)
def test_what_can_not_be_scheduled(world: Ordering, asked: OperationRequest, said: dict[str, Any], told: str) -> None:
    save_operation(world.app.resources, "there", OperationRequest("repair", everything=True))
    with pytest.raises(InputError, match=told):
        schedule_operation(world.app.resources, NAME, asked, said, "each week")
    assert world.store.schedules.all() == {}


def test_spark_has_to_be_served_when_it_is_scheduled(world: Ordering) -> None:
    world.store.workers.remove(["s"])
    with pytest.raises(InputError, match="no live worker serves the queue spark"):
        schedule(world, OperationRequest("check", everything=True, spark=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class OrdersBefore(Record):
    """The field `orders` as the version before read it, which passes over fields that it does not know."""

    kind: OperationKind
    selection: str
    export: str | None = None
    export_format: ExportFormat | None = None
    rate: float | None = None
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleBefore(Record):
    """Of a schedule as that version read it what matters here."""

    id: str
    orders: OrdersBefore | None = None


def found_before(world: Ordering) -> list[str]:
    """The schedules that a scanner of that version looked at: those that it could read, and those that it could not,
    whose deadline it moved."""
    ours = {"$or": [{"keyed": {"$exists": True}}, {"type": {"$in": [*world.app.actors]}}]}
    return [one["_id"] for one in world.store.database["schedules"].find({**OVERDUE, **ours})]


@pytest.mark.parametrize("kind", [kind.value for kind in OperationKind])
def test_an_earlier_worker_leaves_it_alone(world: Ordering, kind: str) -> None:
    """It would order it without the options that it does not know, and an earlier command would save it without them: a
    restart from an actor's tasks would be one from the beginning."""
    made = schedule(world, EVERY_KIND[kind])
    past = world.store.now() - timedelta(minutes=1)
    assert world.store.schedules.save(made.evolve(next_slot=past, recovery_time=past))
    assert found_before(world) == []
    document = world.store.database["schedules"].find_one({"_id": NAME})
    with pytest.raises(DamagedRecord, match="its orders is its why is missing"):
        from_document(ScheduleBefore, document or {})


def test_what_an_earlier_version_added_is_carried_out_by_both(world: Ordering) -> None:
    """It has a key, and says why as that version did, also after it was ordered and changed by this one."""
    orders = {"kind": "collect", "selection": "ended:before(30d)", "rate": 9.0, "why": "a month is enough"}
    past = world.store.now().replace(microsecond=0) - timedelta(minutes=1)
    document = {"_id": NAME, "type": "operation collect", "orders": orders, "keyed": {"arguments": "[[],{}]"}}
    document |= {"overrides": AT_THREE, "nextSlot": past, "recoveryTime": past, "version": 0}
    world.store.database["schedules"].insert_one(document)
    assert found_before(world) == [NAME]
    operation = ordered(world)
    assert (operation.kind, operation.selection, operation.rate) == ("collect", "ended:before(30d)", 9.0)
    assert (operation.why, operation.apply_at_once) == ("a month is enough", True)
    Schedules(world.app.resources).set(NAME, {"schedule": "0 4 * * *"}, "later")
    after = world.store.database["schedules"].find_one({"_id": NAME})
    assert after is not None and after["orders"] == orders and after["keyed"] == document["keyed"]
    before = from_document(ScheduleBefore, after).orders
    assert before is not None and before.why == "a month is enough"
