"""`--yes` confirms in every command. Without it `recovery abort` and `recovery restart` show what they would do."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from typer.testing import CliRunner

from recovery import InputError, Promise
from recovery.cli.command_options import NOT_YES, YES
from recovery.cli.main import app
from recovery.settings import Settings
from tests.cli import schemas
from tests.cli.every import all_commands
from tests.world import World

Run = Callable[..., str]


@pytest.fixture
def world(emptied: Settings) -> World:
    """With the process `order-1`, which has finished, and `order-2`, which runs."""
    made = World(emptied)

    @made.app.actor()
    def look_up(item: str) -> int:
        return len(item)

    @made.app.actor()
    def price(length: int) -> int:
        return length + 1

    @made.app.process()
    def order(item: str) -> list[Promise]:
        return [price.schedule(look_up.schedule(item)), price.schedule(look_up.schedule(item))]

    made.bring_to_end(made.start("order", "tea", custom_id="order-1"))
    made.start("order", "tea", custom_id="order-2")
    made.store.catch_up(10)
    return made


@pytest.fixture
def run(world: World) -> Run:
    """Run a command in this process, and return what it prints."""
    environment = world.settings.environment() | {"COLUMNS": "300"}

    def run(*arguments: str) -> str:
        done = CliRunner().invoke(app, arguments, env=environment)
        if done.exception is not None:
            raise done.exception
        return done.stdout

    return run


def state(world: World, custom_id: str) -> str:
    found = world.store.database["processes"].find_one({"customId": {"$regex": custom_id}})
    assert found is not None
    return str(found["state"])


def test_an_abort_is_shown_first_and_done_with_yes(world: World, run: Run) -> None:
    shown = run("abort", "order-2")
    assert "(order), which is running, with 1 unfinished task; add --yes to do it\n" in shown
    assert state(world, "order-2") == "running"
    found = schemas.read("abort", run("abort", "order-2", "--reason", "withdrawn", "--yes", "--json"))
    assert (found["type"], found["state"], found["done"]) == ("order", "running", True)
    assert state(world, "order-2") == "aborted"
    assert "withdrawn" in run("show", "order-2")
    assert run("abort", "order-2").endswith("is aborted already; nothing was changed\n")
    assert run("abort", "order-2", "--yes").endswith("is aborted\n"), "an abort that was cut off is done again"


def test_what_has_finished_and_a_task_can_not_be_aborted(world: World, run: Run) -> None:
    for more in ((), ("--yes",)):
        with pytest.raises(InputError, match="has finished; there is nothing to abort"):
            run("abort", "order-1", *more)
        with pytest.raises(InputError, match="a process is aborted as a whole"):
            run("abort", "order-2/start", *more)
    assert (state(world, "order-1"), state(world, "order-2")) == ("finished", "running")


def test_a_restart_from_an_actor_is_from_all_of_its_tasks(world: World, run: Run) -> None:
    shown = run("restart", "order-1", "--from", "look_up")
    assert "4 tasks would be done again; 1 kept" in shown
    assert shown.endswith("nothing was changed; add --yes to do it\n")
    of_actor = {task for task, one in world.decisions(process_id(world)).items() if one.actor == "look_up"}
    found = json.loads(run("restart", "order-1", "--from", "look_up", "--json"))
    assert set(found["from"]) == of_actor and len(of_actor) == 2
    one = min(of_actor)
    assert json.loads(run("restart", "order-1", "--from", one[:8], "--json"))["from"] == [one]
    with pytest.raises(InputError, match="did you mean 'look_up'"):
        run("restart", "order-1", "--from", "lookup")
    assert "4 tasks done again" in run("restart", "order-1", "--from", "look_up", "--reason", "wrong", "--yes")
    assert state(world, "order-1") == "running"


def process_id(world: World) -> str:
    found = world.store.database["processes"].find_one({"customId": {"$regex": "order-1"}})
    assert found is not None
    return str(found["_id"])


def confirming() -> list[str]:
    return [name for name, command in all_commands().items() if any(YES in one.opts for one in command.params)]


def test_these_commands_are_confirmed() -> None:
    assert set(confirming()) == {
        *("abort", "restart", "broken abort", "broken restart", "drill"),
        *("operation start", "operation apply", "schedule operation"),
    }


@pytest.mark.parametrize("name", confirming())
def test_another_name_of_yes_is_refused_with_the_right_one(name: str) -> None:
    for other in sorted(NOT_YES):
        done = CliRunner().invoke(app, [*name.split(), "x", other])
        assert isinstance(done.exception, InputError)
        said = str(done.exception)
        assert said.startswith(f"{other}: ") and said.endswith(f"{name} has no such option; --yes confirms")


def test_no_command_confirms_by_another_name() -> None:
    """`schedule trigger --force` confirms nothing: it starts a process beside one that runs."""
    for name, command in all_commands().items():
        options = {option for one in command.params for option in one.opts}
        assert options & NOT_YES <= ({"--force"} if name == "schedule trigger" else set()), name
