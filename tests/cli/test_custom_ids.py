"""A process is found by its custom id wherever a command takes an id."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner, Result

from recovery import InputError, Settings
from recovery.cli.main import app
from recovery.engine.lookup import resolve_task
from recovery.records import Process, ProcessState, to_document
from recovery.store.views.process_lookup import Named
from tests.emptied import without_index
from tests.world import World


@pytest.fixture
def world(emptied: Settings, monkeypatch: pytest.MonkeyPatch) -> World:
    for name, value in {**emptied.environment(), "COLUMNS": "300"}.items():
        monkeypatch.setenv(name, value)
    made = World(emptied)

    @made.app.process()
    def order(amount: int) -> int:
        raise ValueError(f"{amount}")

    @made.app.process()
    def refund(amount: int) -> int:
        raise ValueError(f"{amount}")

    return made


def start(world: World, process_type: str, custom_id: str | None) -> str:
    process_id = world.start(process_type, 1, custom_id=custom_id)
    world.pump()
    world.store.catch_up(10)
    return process_id


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def state(world: World, process_id: str) -> ProcessState:
    return world.process(process_id).state


@pytest.mark.parametrize("custom_id", ["mine", "2026/11/4711", "f" * 32])
def test_every_command_takes_it(world: World, custom_id: str) -> None:
    process_id = start(world, "order", custom_id)
    start(world, "order", "another")
    assert json.loads(run("show", custom_id, "--json").stdout)["process"] == process_id
    assert json.loads(run("check", custom_id, "--json").stdout)["process"] == process_id
    for of_task in ("", "/start"):
        (one,) = json.loads(run("broken", "show", custom_id + of_task, "--json").stdout)["tasks"]
        assert one["id"] == f"{process_id}/start"
        assert run("broken", "restart", custom_id + of_task).exit_code == 0
        assert state(world, process_id) is ProcessState.RUNNING
        world.pump()
        world.store.catch_up(10)
    assert "give its id" in str(run("broken", "abort", f"{custom_id}/start").exception)
    assert run("broken", "abort", custom_id).exit_code == 0
    assert state(world, process_id) is ProcessState.ABORTED


def test_of_two_types_it_is_an_error_that_lists_them(world: World) -> None:
    both = {start(world, name, "mine"): name for name in ("order", "refund")}
    for command in (["show"], ["check"], ["broken", "show"], ["broken", "restart"], ["broken", "abort"]):
        error = run(*command, "mine").exception
        assert isinstance(error, InputError) and "'mine' is the custom id of 2 processes: " in str(error)
        assert all(f"{process_id} ({name})" in str(error) for process_id, name in both.items())
    assert {state(world, process_id) for process_id in both} == {ProcessState.BROKEN}


def test_an_id_wins(world: World) -> None:
    first = start(world, "order", None)
    start(world, "refund", first)
    assert json.loads(run("show", first, "--json").stdout)["type"] == "order"


def test_what_nobody_has(world: World) -> None:
    start(world, "order", "mine")
    assert "no process has the id 'yours'" in str(run("show", "yours").exception)
    assert resolve_task(world.app.resources, "yours/start") == ("yours", "start")


def test_a_list_of_what_is_broken_has_them(world: World) -> None:
    mine, other = start(world, "order", "mine"), start(world, "refund", None)
    found = json.loads(run("broken", "list", "--ids", "--json").stdout)
    assert [(one["process"], one["custom_id"]) for one in found["tasks"]] == [(mine, "mine"), (other, None)]
    assert sum(group["count"] for group in found["groups"]) == len(found["tasks"])
    lines = run("broken", "list", "--ids").stdout.splitlines()
    assert [line.split()[:2] for line in lines] == [[f"{mine}/start", "mine"], [f"{other}/start", "refund,"]]
    assert "mine" not in run("broken", "list", "--ids", "--type", "refund").stdout


def test_it_costs_a_seek_for_each_type(world: World) -> None:
    """Not what exists: each query is bounded by the index."""
    made = [
        Process(id=f"{kind}{n}", type=f"type{kind}", args="", custom_id=f"c{n}", state=ProcessState.FINISHED)
        for kind in range(3)
        for n in range(300)
    ]
    database = world.store.database
    database["processes"].insert_many([to_document(process) for process in made])
    world.store.catch_up(10)
    database.command("profile", 2)
    try:
        found = world.store.process_names.find("c7", 10)
    finally:
        database.command("profile", 0)
    assert found == [Named(f"{kind}7", f"type{kind}", "c7") for kind in range(3)]
    examined = [one["keysExamined"] for one in database["system.profile"].find({"ns": f"{database.name}.processes"})]
    assert len(examined) == 1 and sum(examined) < 20, examined
    with without_index(world.store, "processes", "customId"):
        assert world.store.process_names.find("c7", 10) == found, "without its index, too"
