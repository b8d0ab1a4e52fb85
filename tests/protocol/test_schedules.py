"""Every arrow of a slot, cut: the scanner that was taking it is killed exactly there, and the next one brings the slot
to its one process, and the schedule to what its failures mean."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from recovery import Settings
from recovery.engine import Keys, break_off, declare_schedules
from recovery.engine.operators.schedules import Schedules
from recovery.engine.start.occurrences import instances
from recovery.records import ErrorInfo
from recovery.records.schedule import Schedule
from recovery.scan import ScheduleScanner
from recovery.schedule import plan_of
from tests.protocol.harness import RESULT, World
from tests.world import check_quiet

pytestmark = pytest.mark.thorough

SLOT = [
    ("Schedules.to_look_at:after", 0),
    ("Schedules.save:before", 0),
    ("Schedules.save:after", 0),
    ("Processes.insert:before", 0),
    ("Processes.insert:after", 0),
    ("Tasks.insert:after", 0),
    ("Graphs.insert:after", 0),
    ("Decisions.insert_queued:after", 0),
    ("Broker.push:before", 0),
    ("Broker.push:after", 0),
    ("Schedules.save:before", 1),
    ("Schedules.save:after", 1),
]
"""(where, how often it gets there before)."""
FAILURE = ["Markers.write:before", "Markers.write:after", "Schedules.save:before", "Schedules.save:after"]
ENABLING = ["Markers.clear:before", "Markers.clear:after", "Schedules.save:before", "Schedules.save:after"]
RETRIABLE = 30101
PLAN = {"schedule": "1h", "arguments": {"numbers": [1, 2, 3]}, "retry_across_count": 1}


@pytest.fixture
def world(emptied: Settings) -> World:
    made = World(emptied)
    declare_schedules(made.app.resources, made.app.actors, {"pyramid": plan_of(PLAN, "a test")})
    due(made)
    return made


def get(world: World) -> Schedule:
    found = world.store.schedules.get("pyramid")
    assert found is not None
    return found


def due(world: World) -> None:
    found, slot = get(world), world.store.now().replace(microsecond=0) - timedelta(minutes=1)
    if found.last_slot is not None and slot <= found.last_slot:
        slot = found.last_slot + timedelta(seconds=1)
    assert world.store.schedules.save(found.evolve(next_slot=slot, recovery_time=slot))


def scan(world: Any) -> None:
    result = ScheduleScanner(world.app.resources, world.app.outbox, Keys(world.app.actors)).run_once()
    assert result.error is None


@pytest.mark.parametrize(("at", "skipped"), SLOT)
def test_a_slot_cut_off(world: World, at: str, skipped: int) -> None:
    slot = get(world).next_slot
    world.dies(at, scan, skipped)
    scan(world)
    scan(world)
    (process,) = world.store.database["processes"].find({})
    after = get(world)
    assert (after.last_slot, after.last_process, after.starting) == (slot, process["_id"], None)
    assert [one.outcome.value for one in after.recent] == ["started"]
    assert world.bring_to_end(process["_id"]).result == str(RESULT)
    check_quiet(world, process["_id"])


def fail(world: World) -> None:
    scan(world)
    *_, last = instances(world.app.resources, get(world))
    error = ErrorInfo(kind="E", message="m", code=RETRIABLE)
    assert break_off(world.app.resources, last, error, restarts=0)
    due(world)


@pytest.mark.parametrize("at", FAILURE)
def test_the_end_of_an_instance_cut_off(world: World, at: str) -> None:
    fail(world)
    world.dies(at, scan)
    scan(world)
    after = get(world)
    assert after.disabled is not None and after.failing is not None and after.failing.count == 1
    assert world.store.markers.find("pyramid") is not None
    assert world.store.database["processes"].count_documents({}) == 1


@pytest.mark.parametrize("at", ENABLING)
def test_enabling_cut_off(world: World, at: str) -> None:
    """By an operator, who does it again unless it is done."""
    fail(world)
    scan(world)
    world.dies(at, lambda dying: Schedules(dying.app.resources).enable("pyramid", "the host is back"))
    Schedules(world.app.resources).enable("pyramid", "the host is back")
    due(world)
    scan(world)
    assert get(world).disabled is None and world.store.markers.find("pyramid") is None
    assert world.store.database["processes"].count_documents({}) == 2
