"""A schedule that has what is old collected: one operation for each slot, whoever looks and whatever breaks, and never
two at once."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from recovery import operations
from recovery.cli.schedule_operations import OPERATION
from recovery.engine import Keys, look_at, order
from recovery.engine.operators.schedules import Schedules
from recovery.errors import InputError
from recovery.operations import OperationRequest
from recovery.operations.commands import schedule_operation
from recovery.records import Operation, OperationState
from recovery.records.operation import ExportFormat
from recovery.records.schedule import Schedule
from recovery.scan import ScanResult, ScheduleScanner
from recovery.search import parse
from recovery.settings import Settings
from recovery.store.operators.operation_records import Operations
from tests.docs.blocks import ROOT
from tests.faults import Died
from tests.operations.ordering import Ordering
from tests.store.writing import contents

NAME, DAY = "old", timedelta(days=1)
AT_THREE = {"schedule": "0 3 * * *"}


@pytest.fixture
def world(emptied: Settings) -> Ordering:
    return Ordering(emptied)


def make(
    world: Ordering, selection: str = "ended:before(30d)", said: dict[str, Any] = AT_THREE, **more: Any
) -> Schedule:
    """A schedule with a slot that is due."""
    asked = OperationRequest("collect", selection, **more)
    schedule_operation(world.app.resources, NAME, asked, said, "a month is enough", by="ann")
    return due(world)


def get(world: Ordering) -> Schedule:
    found = world.store.schedules.get(NAME)
    assert found is not None
    return found


def due(world: Ordering) -> Schedule:
    """Its next slot a minute ago, as if time had gone by; another one than the last."""
    saved = get(world)
    moment = world.store.now().replace(microsecond=0) - timedelta(minutes=1)
    if saved.recent:
        moment = max(moment, saved.recent[-1].slot + timedelta(seconds=1))
    assert world.store.schedules.save(saved.evolve(next_slot=moment, recovery_time=moment))
    return get(world)


def scan(world: Ordering) -> ScanResult:
    result = ScheduleScanner(world.app.resources, world.app.outbox, Keys(world.app.actors)).run_once()
    assert result.error is None
    return result


def ordered(world: Ordering) -> list[Operation]:
    return world.store.operations.newest(10)[::-1]


def outcomes(world: Ordering) -> list[str]:
    return [one.outcome.value for one in get(world).recent]


def aged(world: Ordering, days: int) -> str:
    """A process that ended so long ago."""
    key = world.end_of(world.orders(1)[0])
    world.scan()
    of_it = {"_id": key}
    ended = world.store.now() - days * DAY
    world.store.database["processes"].update_one(of_it, {"$set": {"endedAt": ended}})
    return key


def test_what_is_old_goes_by_itself(world: Ordering, tmp_path: Path) -> None:
    """Whole: a slot comes, what ended before the time that is said is removed and exported, nothing else, and the
    schedule, the operation and the audit log tell of each other."""
    old, lately = aged(world, 40), aged(world, 20)
    made = make(world, export=str(tmp_path), export_format="parquet", rate=5000.0)
    assert made.next_slot is not None
    scan(world)
    (operation,) = ordered(world)
    assert (operation.kind, operation.selection, operation.rate) == ("collect", "ended:before(30d)", 5000.0)
    assert (operation.who, operation.why) == ("schedule old", "a month is enough")
    assert (operation.export, operation.export_format) == (str(tmp_path), ExportFormat.PARQUET)
    assert operation.slot == f"old@{made.next_slot:%Y-%m-%dT%H:%M:%SZ}"
    done = world.bring_on(operation, OperationState.FINISHED)
    assert done.applied is not None and done.applied.done == 1
    assert contents(world.store, "processes").keys() == {lately} != {old}
    assert [file.suffix for file in tmp_path.iterdir()] == [".parquet"]
    (entry,) = world.store.audit_log.newest(5, what="operation start")
    assert (entry.who, entry.operation, entry.outcome) == ("schedule old", operation.id, "operation 1 is ordered")
    (asked,) = world.store.audit_log.newest(5, what="schedule operation")
    assert (asked.who, asked.why, asked.outcome) == ("ann", "a month is enough", "done")
    after = get(world)
    assert (after.last_operation, after.last_process, after.last_slot) == (operation.id, None, made.next_slot)
    assert outcomes(world) == ["started"]
    assert scan(world).looked_at == 0
    due(world)
    scan(world)
    assert [one.id for one in ordered(world)] == [1, 2], "the one before is over"


def test_what_the_page_has_as_old_is_old(world: Ordering) -> None:
    """Every selection by age that docs/collection.md shows takes what ended long ago, and not what just has."""
    old, lately = aged(world, 1000), aged(world, 0)
    terms = set(re.findall(r"ended:\w+\(\w+\)", (ROOT / "docs" / "collection.md").read_text()))
    terms |= set(re.findall(r"ended:\w+\(\w+\)", OPERATION))
    assert terms
    for term in terms:
        found = world.store.search.page(parse(term, now=world.store.now()), None, 10)
        assert (old in found, lately in found) == (True, False), term


def test_any_number_of_scanners_at_once_order_one(world: Ordering) -> None:
    make(world)
    gate = threading.Barrier(8)

    def one(_: int) -> ScanResult:
        gate.wait()
        return scan(world)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(one, range(8)))
    assert len(ordered(world)) == 1
    assert outcomes(world) == ["started"]


@pytest.mark.parametrize("state", [OperationState.PLANNING, OperationState.PAUSED])
def test_a_slot_is_skipped_while_the_last_operation_is_under_way(world: Ordering, state: OperationState) -> None:
    make(world)
    scan(world)
    if state is OperationState.PAUSED:
        operations.pause(world.app.resources, 1)
    due(world)
    scan(world)
    assert len(ordered(world)) == 1
    assert outcomes(world) == ["started", "skipped"]
    assert get(world).recent[-1].reason == "operation 1 is under way"
    with pytest.raises(InputError, match="operation 1 is under way; there is one at a time"):
        Schedules(world.app.resources).trigger(NAME, "now", force=True)
    operations.cancel(world.app.resources, 1, "enough")
    due(world)
    scan(world)
    assert len(ordered(world)) == 2


def test_one_that_was_not_admitted_holds_up_none(world: Ordering) -> None:
    make(world)
    scan(world)
    (first,) = ordered(world)
    assert world.store.operations.save(first.evolve(state=OperationState.PLANNED, refusal="another one"), None)
    due(world)
    scan(world)
    assert len(ordered(world)) == 2


def cuts(world: Ordering) -> Iterator[tuple[str, Any]]:
    """Where whoever looks may be killed: once the slot is decided on, and once its operation is ordered."""
    yield "before the order", patch.object(Operations, "insert", side_effect=Died)
    insert = Operations.insert

    def die(*given: Any) -> None:
        insert(world.store.operations, *given)
        raise Died

    yield "after the order", patch.object(Operations, "insert", side_effect=die)


@pytest.mark.parametrize("cut", ["before the order", "after the order"])
def test_cut_off_anywhere_it_is_one_operation(world: Ordering, cut: str) -> None:
    make(world)
    with dict(cuts(world))[cut], pytest.raises(Died):
        scan(world)
    assert get(world).starting is not None
    scan(world)
    assert len(ordered(world)) == 1
    assert (outcomes(world), get(world).last_operation) == (["started"], 1)


def test_who_stood_still_orders_nothing(world: Ordering) -> None:
    """Of those who saw a slot due, one decided, and stood still; others ordered, and that operation is over by now."""
    make(world)
    with patch.object(Operations, "insert", side_effect=Died), pytest.raises(Died):
        scan(world)
    late = get(world)
    scan(world)
    world.bring_on(ordered(world)[0], OperationState.FINISHED)
    assert look_at(world.app.resources, late, order=order) is None
    assert len(ordered(world)) == 1


def test_it_is_paused_triggered_and_removed_as_any_schedule(world: Ordering) -> None:
    make(world)
    schedules = Schedules(world.app.resources, by="ann")
    schedules.pause(NAME, "an audit")
    assert scan(world).looked_at == 0
    schedules.resume(NAME, "it is over")
    assert schedules.set(NAME, {"schedule": "0 4 * * *"}, "later").plan.schedule == "0 4 * * *"
    assert schedules.trigger(NAME, "now").operation == 1
    schedules.remove(NAME)
    assert world.store.schedules.all() == {}


@pytest.mark.parametrize(
    ("asked", "said", "told"),
    [
        (OperationRequest("collect", ""), AT_THREE, "no selection was given"),
        (OperationRequest("collect", "ended:<never"), AT_THREE, "never"),
        (OperationRequest("collect", "ended:before(30d)", export="here"), AT_THREE, "give the whole path"),
        (OperationRequest("collect", "ended:before(30d)"), {"schedule": "0 3 30 2 *"}, "never fires"),
        (OperationRequest("collect", "ended:before(30d)"), {"jitter": "1m"}, "no times are given"),
        (
            OperationRequest("collect", "ended:before(30d)"),
            {**AT_THREE, "overlap": "allow"},
            "only one of its operations may run",
        ),
        (
            OperationRequest("collect", "ended:before(30d)"),
            {**AT_THREE, "arguments": []},
            "is for schedules of processes",
        ),
        (
            OperationRequest("collect", "ended:before(30d)"),
            {**AT_THREE, "retry_across": "1h"},
            "is for schedules of processes",
        ),
    ],
)
def test_what_can_not_be_scheduled(world: Ordering, asked: OperationRequest, said: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        schedule_operation(world.app.resources, NAME, asked, said, "a month is enough")
    assert world.store.schedules.all() == {}


def test_names_and_settings_that_can_not_be(world: Ordering) -> None:
    make(world)
    asked = OperationRequest("collect", "ended:before(30d)")
    with pytest.raises(InputError, match="there is one of this name"):
        schedule_operation(world.app.resources, NAME, asked, AT_THREE, "a month is enough")
    with pytest.raises(InputError, match="is the name of another process type"):
        schedule_operation(world.app.resources, "order", asked, AT_THREE, "a month is enough")
    with pytest.raises(InputError, match="say in a few words why"):
        schedule_operation(world.app.resources, "other", asked, AT_THREE, "")
    for said in ({"overlap": "allow"}, {"arguments": [1]}):
        with pytest.raises(InputError, match="schedule old: "):
            Schedules(world.app.resources).set(NAME, said, "why not")
