"""What the doctor, the status and the metric say of slots that hang, and of those that were freed."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest

from recovery.cli.status_commands import look
from recovery.health import Level
from recovery.health.live_workers import RECENT, SHOWN
from recovery.health.model import Cause
from recovery.metrics.answers import hung
from recovery.records import FailingSlots, HungSlot
from tests.health.conftest import asked, worker
from tests.world import World

TASK = f"{'f' * 32}/start"


def hangs(world: World, count: int = 1) -> None:
    since = world.store.now() - timedelta(seconds=61)
    slots = tuple(HungSlot(actor="add", task=f"{TASK}{n}", since=since) for n in range(count))
    world.store.workers.beat(worker().evolve(hung=slots), 60)


def test_none_hangs(world: World) -> None:
    check = asked(world, "slots")
    assert (check.level, check.found, check.advice) == (Level.OK, "none hangs", "")
    assert (look(world.app.resources)["hung"], look(world.app.resources)["freed"]) == ([], {})


def test_one_hangs(world: World) -> None:
    """Of a worker that lives: what one told that is gone is gone with it."""
    hangs(world)
    check = asked(world, "slots")
    assert (check.level, check.cause) == (Level.WARNING, Cause.SLOTS_HANG) and "give that a time-out" in check.advice
    assert check.found.startswith(f"1 of workers that live hang: add {TASK}0 on w for 6")
    (told,) = look(world.app.resources)["hung"]
    assert (told["worker"], told["actor"], told["task"]) == ("w", "add", f"{TASK}0") and 61 <= told["seconds"] < 70
    world.store.workers.beat(worker().evolve(hung=()), 60)
    assert asked(world, "slots").level is Level.OK
    hangs(world)
    world.store.database["workers"].update_many({}, {"$set": {"recoveryTime": world.store.now()}})
    assert asked(world, "slots").level is Level.OK and look(world.app.resources)["hung"] == []


def test_many_hang(world: World) -> None:
    hangs(world, SHOWN + 3)
    assert asked(world, "slots").found.endswith(" and 3 more")


def test_what_was_freed_is_told_for_a_while(world: World) -> None:
    for _ in range(2):
        world.store.hung.note_freed("add", "w@host", TASK)
    check = asked(world, "slots")
    assert check.level is Level.WARNING
    told = rf"freed of what hung: add 2 in all, the last [0-9.]+s ago on w@host \({TASK}\)"
    assert re.fullmatch(told, check.found), check.found
    assert look(world.app.resources)["freed"]["add"]["slots"] == 2
    long_ago = world.store.now() - timedelta(seconds=RECENT + 1)
    for moment in (long_ago, long_ago.replace(year=9999)):
        world.store.database["actors"].update_one({"_id": "add"}, {"$set": {"freed.at": moment}})
        assert asked(world, "slots").level is Level.OK
    assert look(world.app.resources)["freed"]["add"]["slots"] == 2, "and in the status for ever"


@pytest.mark.parametrize("freed", [0, 3])
def test_the_metric_begins_at_0(world: World, freed: int) -> None:
    for _ in range(freed):
        world.store.hung.note_freed("add", "w@host", TASK)
    (family,) = hung(world.store)
    (sample,) = family.samples
    assert (sample.name, sample.labels, sample.value) == ("recovery_hung_slots_total", {"actor": "add"}, freed)


def test_slots_that_run_nothing_are_named_with_the_reason(world: World) -> None:
    failing = FailingSlots(in_a_row=2, reason="OSError: no room\x1b[31m")
    world.store.workers.beat(worker().evolve(failing=failing), 60)
    check = asked(world, "slots")
    assert (check.level, check.cause) == (Level.WARNING, Cause.SLOTS_FAIL)
    assert check.found == "claim tasks and can run none on w: 2 slots in a row, the last for OSError: no room\\x1b[31m"
    world.store.workers.beat(worker(), 60)
    assert asked(world, "slots").level is Level.OK


def test_the_latest_rejected_writes_are_told(world: World) -> None:
    assert (asked(world, "rejections").level, asked(world, "rejections").found) == (Level.OK, "none so far")
    for step, guard in (("finish", "pass"), ("claim", "state")):
        world.store.rejected_writes.note("add", step, guard, TASK)
        world.store.rejected_writes.note("add", step, "actor", "not kept, a moment later")
    world.store.catch_up(10)
    check = asked(world, "rejections")
    ago = r"[0-9.]+m?s ago"
    one = rf"claim of {TASK} \(add\) by its state, {ago}"
    other = rf"finish of {TASK} \(add\) by its pass, {ago}"
    assert check.level is Level.OK
    assert re.fullmatch(f"the latest: ({one}; {other}|{other}; {one})", check.found), check.found
