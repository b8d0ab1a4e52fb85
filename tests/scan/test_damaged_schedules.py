"""Schedules with something in them that another program wrote: named, harmless to others, corrected if possible."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from recovery.engine.operators.schedules import Schedules
from recovery.errors import InputError
from recovery.health.model import Cause, Level
from recovery.health.operator_records import schedules as check_schedules
from recovery.records.schedule import SlotOutcome
from tests.cli.command import recovery
from tests.documents import database_of
from tests.scan.test_due_schedules import declare, due, get, make, outcomes, processes, scan
from tests.world import World

NAME = "nightly"
PLANS: dict[str, dict[str, Any]] = {
    "crontab": {"code.schedule": "61 * * * *"},
    "interval": {"code.schedule": "0s"},
    "zone": {"code.timeZone": "Mars/Olympus", "code.schedule": "0 * * * *"},
    "jitter": {"code.jitter": 1e300},
    "a jitter of years": {"code.jitter": 1e8},
    "no JSON": {"code.arguments": "not JSON"},
    "no call": {"code.arguments": '{"a": 1}'},
    "a negative limit": {"code.catchUpLimit": -5, "code.catchUp": "all"},
}
COMMANDS = (
    ("list",),
    ("list", "--json"),
    ("show", NAME),
    ("show", NAME, "--json"),
    ("next", NAME),
    ("trigger", NAME),
    ("pause", NAME, "--reason", "a look at it"),
    ("resume", NAME),
)


def write(world: World, changes: dict[str, Any], unset: tuple[str, ...] = (), name: str = NAME) -> None:
    """Write to a schedule as another program does: past the validators, and in the same version."""
    update: dict[str, Any] = {"$set": changes} if changes else {}
    if unset:
        update["$unset"] = dict.fromkeys(unset, "")
    database_of(world.store)["schedules"].update_one({"_id": name}, update, bypass_document_validation=True)


def document(world: World) -> dict[str, Any]:
    found = database_of(world.store)["schedules"].find_one({"_id": NAME})
    assert found is not None
    return found


def make_two(world: World) -> None:
    """Two schedules that are due: `nightly`, which a test damages, and `other`."""

    def other() -> None: ...

    make(world)
    world.app.process(schedule="1h")(other)
    declare(world)
    moment = world.store.now() - timedelta(minutes=1)
    write(world, {"nextSlot": moment, "recoveryTime": moment}, name="other")


@pytest.mark.parametrize("case", PLANS)
def test_a_plan_that_nobody_can_work_with_is_named_and_stops_no_other(
    world: World, case: str, caplog: pytest.LogCaptureFixture
) -> None:
    make_two(world)
    write(world, PLANS[case])
    version = document(world)["version"]
    scan(world)
    scan(world)
    assert [one["type"] for one in processes(world).values()] == ["other"]
    assert document(world)["version"] == version, "nobody has written to it"
    assert document(world)["recoveryTime"] > world.store.now(), "it is looked at later"
    told = [one for one in caplog.records if NAME in one.getMessage()]
    assert len(told) <= 1 and not any(one.exc_info for one in told), "a line every five minutes"
    check = check_schedules(world.app.resources)
    assert (check.level, check.cause) == (Level.PROBLEM, Cause.RECORDS_DAMAGED)
    assert NAME in check.found and "other" not in check.found


def test_a_plan_that_nobody_can_work_with_is_corrected_by_set(world: World) -> None:
    make(world)
    write(world, PLANS["crontab"])
    with pytest.raises(InputError, match=r"nightly.*61"):
        Schedules(world.app.resources).resume(NAME, "on")
    Schedules(world.app.resources).set(NAME, {"schedule": "2h"}, "a typo")
    assert check_schedules(world.app.resources).level is Level.OK
    due(world)
    scan(world)
    assert outcomes(world) == ["started"]


def test_a_damaged_deadline_does_not_have_a_damaged_plan_looked_at_each_time(world: World) -> None:
    make(world)
    for deadline in (datetime(9999, 1, 1, tzinfo=UTC), None):
        write(world, {**PLANS["crontab"], "recoveryTime": deadline})
        assert scan(world).looked_at == 1
        assert scan(world).looked_at == 0


def test_a_next_slot_that_the_schedule_cannot_have_is_taken_back(world: World) -> None:
    make(world)
    far = datetime(9999, 12, 31, tzinfo=UTC)
    write(world, {"nextSlot": far})
    check = check_schedules(world.app.resources)
    assert (check.level, check.cause) == (Level.PROBLEM, Cause.RECORDS_DAMAGED)
    write(world, {"recoveryTime": far})
    scan(world)
    found = get(world).next_slot
    assert found is not None and found <= world.store.now() + timedelta(hours=1)
    assert check_schedules(world.app.resources).level is Level.OK


@pytest.mark.parametrize("field", ["recoveryTime", "version"])
def test_a_schedule_that_lacks_a_field_is_started_all_the_same(world: World, field: str) -> None:
    make(world)
    write(world, {}, unset=(field,))
    scan(world)
    assert outcomes(world) == ["started"]
    assert get(world).recovery_time is not None and get(world).version > 0


def test_a_paused_schedule_without_a_deadline_stays_at_rest(world: World) -> None:
    make(world)
    Schedules(world.app.resources).pause(NAME, "an audit")
    assert scan(world).looked_at == 0


def test_a_schedule_without_a_plan_comes_to_rest(world: World) -> None:
    make(world)
    write(world, {}, unset=("code",))
    version = document(world)["version"]
    assert scan(world).looked_at == 1
    assert scan(world).looked_at == 0
    assert (get(world).state, get(world).version) == ("ended", version + 1)


@pytest.mark.parametrize("arguments", ["[[1, 2, 3], {}]", '[[], {"colour": "red"}]'])
def test_arguments_that_the_type_does_not_take_are_refused(world: World, arguments: str) -> None:
    """They were started, broke, and left a marker that stopped all schedules of the type."""
    make(world)
    write(world, {"code.arguments": arguments})
    scan(world)
    assert processes(world) == {}
    (result,) = get(world).recent
    assert result.outcome is SlotOutcome.REFUSED and NAME in (result.reason or "")
    assert check_schedules(world.app.resources).cause is Cause.SCHEDULES_REFUSED


def test_a_schedule_that_cannot_be_read_is_named_and_can_be_removed(world: World) -> None:
    make_two(world)
    write(world, {"nextSlot": "yesterday"})
    scan(world)
    assert [one["type"] for one in processes(world).values()] == ["other"]
    assert "nextSlot" in check_schedules(world.app.resources).found
    declare(world)  # a worker that starts is not kept from it
    with pytest.raises(InputError, match=r"nextSlot is a text.*recovery schedule remove nightly"):
        Schedules(world.app.resources).get(NAME)
    assert Schedules(world.app.resources).remove(NAME, "damaged") is None
    declare(world)
    assert get(world).next_slot is not None


@pytest.mark.thorough
@pytest.mark.parametrize("case", ["crontab", "jitter", "no JSON", "next slot"])
def test_no_command_ends_with_a_traceback(world: World, case: str) -> None:
    make(world)
    write(world, PLANS.get(case, {"nextSlot": datetime(9999, 12, 31, tzinfo=UTC)}))
    env = world.app.resources.settings.environment()
    for arguments in COMMANDS:
        done = recovery("schedule", *arguments, env=env)
        assert "Traceback" not in done.stdout + done.stderr, arguments
        assert NAME in done.stdout + done.stderr or done.returncode == 0, arguments
        if "--json" in arguments:
            assert json.loads(done.stdout)
