"""Saved operations by command: saved, listed, started, ordered by a schedule, forgotten; and docs/bulk.md on them."""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest

from recovery import Settings
from recovery.records import ProcessTypePreferences
from tests.cli import schemas
from tests.cli.command import recovery
from tests.docs.blocks import DOCS
from tests.operations.ordering import Ordering


@pytest.fixture
def world(emptied: Settings) -> Ordering:
    made = Ordering(emptied)
    made.orders(2)
    return made


def run(world: Ordering, line: str, code: int = 0) -> str:
    done = recovery(*shlex.split(line), env=world.settings.environment() | {"COLUMNS": "300"})
    assert done.returncode == code, done
    return done.stderr if code else done.stdout


def as_json(world: Ordering, line: str) -> dict[str, Any]:
    command = " ".join(line.split()[:2])
    return schemas.read(command, run(world, f"{line} --json"))


def test_saved_listed_started_scheduled_and_forgotten(world: Ordering) -> None:
    said = "saved: `recovery operation start @gone --reason ...` is abort 'type:order state:running' --rate 5\n"
    assert run(world, "operation save gone abort 'type:order state:running' --rate 5 --reason withdrawn") == said
    listed = run(world, "operation saved")
    assert "@gone" in listed and "abort 'type:order state:running' --rate 5" in listed and "withdrawn" in listed
    (one,) = as_json(world, "operation saved")["operations"]
    assert (one["name"], one["kind"], one["rate"], one["error"]) == ("gone", "abort", 5.0, None)
    assert "operation 1" in run(world, "operation start @gone --reason 'the shop is closed'")
    started = as_json(world, "operation show 1")
    assert (started["kind"], started["selection"], started["rate"]) == ("abort", "type:order state:running", 5.0)
    assert started["why"] == "the shop is closed"
    added = run(world, "schedule operation nightly @gone 'schedule=0 3 * * *' --reason 'each night'")
    assert "it then orders: abort, of processes" in added
    orders = as_json(world, "schedule show nightly")["orders"]
    assert (orders["kind"], orders["rate"], orders["saved"], orders["why"]) == ("abort", 5.0, "gone", "each night")
    assert run(world, "operation forget @gone").startswith("@gone is forgotten; it was abort ")
    assert run(world, "operation saved") == "none\n"
    shown = " ".join(run(world, "schedule show nightly").split())
    assert "nightly orders operation abort: active" in shown
    assert "saved as @gone, as it was when the schedule was added" in shown


def test_a_schedule_takes_a_selection_or_all_before_its_settings(world: Ordering) -> None:
    line = "schedule operation {} repair {} schedule=6h jitter=1m --thorough --priority order=2 --reason 'a test'"
    run(world, line.format("some", "type:order"))
    run(world, line.format("every", "--all"))
    found = world.store.schedules.all()
    told = {name: (one.orders.selection, one.orders.priorities) for name, one in found.items() if one.orders}
    assert told == {"some": ("type:order", {"order": 2}), "every": ("", {"order": 2})}
    assert {one.overrides.jitter for one in found.values() if one.overrides} == {60.0}
    shown = " ".join(run(world, "schedule show every").split())
    assert "selection all processes" in shown and "first order 2" in shown and "thorough damage" in shown


def test_the_page_shows_what_is_said(world: Ordering) -> None:
    section = (DOCS / "bulk.md").read_text().partition("## Operations under a name")[2].partition("\n## ")[0]
    (block,) = re.findall(r"```console\n(.*?)```", section, re.DOTALL)
    parts = block.split("$ recovery ")[1:]
    for part in parts:
        line, _, wanted = part.partition("\n")
        assert run(world, line).strip() == wanted.strip(), line
    assert len(parts) >= 4


REFUSED = {
    "operation save gone abort state:broken": "@gone is saved already, by ",
    "operation save 'all gone' abort state:broken": "the name of an operation has letters, digits",
    "operation save new abrot state:broken": "no operation is called 'abrot'; did you mean 'abort'?",
    "operation save new abort state:broken --thorough": "--thorough: is for check and repair; abort looks",
    "operation save new abort": "no selection was given",
    "operation forget gon": "no operation is saved as 'gon'; did you mean @gone?",
    "operation start @gon --reason x": "no operation is saved as 'gon'; did you mean @gone?",
    "operation start @gone state:broken --reason x": "@gone is abort state:running: leave the selection out",
    "operation start @gone": "say in a few words why",
    "schedule operation n @gon schedule=1h --reason x": "no operation is saved as 'gon'; did you mean @gone?",
    "schedule operation n @gone type:order schedule=1h --reason x": "leave the selection out",
    "schedule operation n restart state:broken shedule=1h --reason x": "no setting is named 'shedule'",
    "schedule operation n restart state:broken --reason x": "nothing says when",
    "schedule operation n restart schedule=1h --reason x": "no selection was given",
    "schedule operation n collect --all schedule=1h --reason x": "a scheduled collect needs a selection",
    "schedule operation n restart state:broken schedule=1h": "say in a few words why",
}


def test_what_can_not_be(world: Ordering) -> None:
    world.store.process_types.save([ProcessTypePreferences(id="order")])
    run(world, "operation save gone abort state:running")
    for line, told in REFUSED.items():
        assert told in run(world, line, code=2), line
    assert [*world.store.saved_operations.all()] == ["gone"]
    assert world.store.schedules.all() == {} and world.store.operations.newest(1) == []


def test_a_list_tells_what_can_not_be_read(world: Ordering) -> None:
    kept = world.store.database["savedOperations"]
    kept.insert_one({"_id": "older", "kind": "abort", "selection": "colour:red", "version": 0})
    assert "(can't be read: column 1: no field is called 'colour'" in run(world, "operation saved")
    (found,) = as_json(world, "operation saved")["operations"]
    assert found["error"].startswith("column 1: no field is called 'colour'") and found["saved_at"] is None
