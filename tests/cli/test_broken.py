"""`recovery broken`: what failed is listed and shown, restarted and aborted."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import CliRunner

from recovery import InputError, ProcessBroken, ProcessNotFound
from recovery.cli.main import app
from recovery.engine.end.breaking import break_process
from recovery.errors import DamagedRecord
from recovery.records import ErrorInfo, ProcessState
from recovery.settings import Settings
from recovery.store import Selection, Store, layout
from tests.cli.command import recovery
from tests.world import World

Run = Callable[..., str]
MANY = 3


@pytest.fixture
def world(emptied: Settings) -> World:
    return failed(emptied)


@pytest.fixture
def own_world(settings: Settings) -> World:
    """The same on a database of its own, whose collections may be dropped."""
    layout.create(Store(settings).database)
    return failed(settings)


def failed(settings: Settings) -> World:
    """With processes that broke."""
    made = World(settings)
    made.refused = True  # type: ignore[attr-defined]

    @made.app.actor()
    def pay(amount: int) -> int:
        if made.refused:  # type: ignore[attr-defined]
            raise ValueError(f"[red]{amount}[/red] is too much\nand more")
        return amount

    @made.app.process()
    def order(amount: int) -> Any:
        return pay.schedule(amount)

    @made.app.process()
    def trip() -> Any:
        return {}["nowhere"]

    for name, *args in (*(("order", n) for n in range(MANY)), ("trip",)):
        made.start(name, *args)
    made.pump()
    return made


@pytest.fixture
def run(world: World) -> Run:
    """Run a command in this process; what it prints."""
    environment = world.settings.environment() | {"COLUMNS": "300"}

    def run(*arguments: str) -> str:
        done = CliRunner().invoke(app, ["broken", *arguments], env=environment)
        if done.exception is not None:
            raise done.exception
        return done.stdout

    return run


def states(world: World) -> dict[str, int]:
    found = [process["state"] for process in world.store.database["processes"].find()]
    return {state: found.count(state) for state in set(found)}


def broken(world: World, process_type: str = "order") -> str:
    found = world.store.database["processes"].find_one({"type": process_type})
    assert found is not None
    process_id: str = found["_id"]
    return process_id


def test_list(world: World, run: Run) -> None:
    lines = run("list").splitlines()
    names = ["tasks", "type", "actor", "kind", "fingerprint", "first", "last", "example", "message"]
    assert lines[0].split() == names
    assert lines[1].split()[:4] == ["3", "order", "pay", "ValueError"]
    assert "[red]" in lines[1]
    assert "and more" not in lines[1]
    groups = json.loads(run("list", "--json"))["groups"]
    assert [(g["type"], g["actor"], g["kind"], g["count"]) for g in groups] == [
        ("order", "pay", "ValueError", 3),
        ("trip", "trip", "KeyError", 1),
    ]
    assert all(groups[0][moment].endswith("+00:00") for moment in ("first", "last"))
    for option, value in (("type", "trip"), ("actor", "trip"), ("kind", "KeyError")):
        assert json.loads(run("list", "--json", f"--{option}", value))["groups"] == groups[1:]
    assert json.loads(run("list", "--json", "--fingerprint", groups[0]["fingerprint"]))["groups"] == groups[:1]
    none = run("list", "--type", "none")
    assert none == "no task is interrupted; no type 'none' is listed, there are: order, trip\n"
    none = run("restart", "--kind", "ValueEror")
    assert none == "no task is interrupted; no kind 'ValueEror' is listed, did you mean 'ValueError'?\n"
    assert "no interrupted task matches all of these options" in run("abort", "--kind", "KeyError", "--type", "order")
    assert recovery("broken", "list", env=world.settings.environment()).stdout.splitlines()[0].startswith("tasks")


def terminal(width: int) -> dict[str, str]:
    return {"FORCE_COLOR": "1", "COLUMNS": str(width), "TERM": "xterm"}


@pytest.mark.parametrize("width", [40, 80, 130, 300])
def test_list_cuts_nothing_in_a_terminal(world: World, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    for name, value in terminal(width).items():
        monkeypatch.setenv(name, value)
    done = CliRunner().invoke(app, ["broken", "list"], env=world.settings.environment(), color=True)
    words = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout).split()
    assert len(words) > 10 and not any("…" in word for word in words)
    (group, other) = world.store.interruptions.groups(Selection())
    for one in (group, other):
        assert {one.fingerprint, one.example.partition("/")[0], f"{one.first:%Y-%m-%d}"} <= set(words)


def test_list_of_a_pipe_is_a_line_for_each(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = CliRunner().invoke(app, ["broken", "list"], env=world.settings.environment()).stdout.splitlines()
    (group, _) = world.store.interruptions.groups(Selection())
    assert all(f"{moment:%Y-%m-%d %H:%M:%S}" in lines[1] for moment in (group.first, group.last))
    assert group.kind in lines[1] and group.example.partition("/")[0] in lines[1]
    assert len(lines) == 3, "a header, and a line for each of the two groups"


def test_show(world: World, run: Run) -> None:
    process_id = broken(world)
    told = run("show", process_id)
    (one,) = json.loads(run("show", process_id, "--json"))["tasks"]
    assert told.startswith(f"{one['id']}\npay of order, attempt 1, ")
    assert "ValueError: [red]0[/red] is too much" in told
    assert 'raise ValueError(f"[red]{amount}[/red] is too much' in told
    assert one["stack"].startswith("Traceback")
    assert run("show", one["id"]) == told
    with pytest.raises(InputError, match="no task of it is interrupted; the process is broken"):
        run("show", f"{process_id}/other")
    with pytest.raises(ProcessNotFound):
        run("show", "f" * 32)


def test_show_of_a_process_that_broke_as_a_whole(world: World, run: Run) -> None:
    process_id = world.start("order", 1)
    process = world.process(process_id)
    error = ErrorInfo(kind="Cycle", message="CYCLE: a waits for b waits for a")
    assert break_process(world.app.resources, process_id, process.epoch, error)
    shown = run("show", process_id).splitlines()
    assert shown[1].startswith("order, the process as a whole, ")
    assert shown[2] == "Cycle: a waits for b waits for a"
    assert "Cycle " in run("list") and "CYCLE" not in run("list")
    (kept,) = world.store.interruptions.of_process(process_id)
    assert kept.message == error.message, "the record has the rule"


def test_broken_processes_that_are_not_listed_are_told_of(own_world: World) -> None:
    world = own_world

    def told() -> tuple[str, str]:
        done = CliRunner().invoke(app, ["broken", "list"], env=world.settings.environment() | {"COLUMNS": "300"})
        assert done.exit_code == 0
        return done.stdout, done.stderr

    assert told()[1] == "", "all are listed"
    interruptions = world.store.database["interruptions"]
    interruptions.delete_one({"_id": {"$regex": f"^{broken(world)}"}})
    advice = "left out, since records of what was interrupted were lost. `recovery sweep --repair` lists them again\n"
    assert told()[1] == f"1 broken process {advice}"
    interruptions.drop()
    assert told() == ("no task is interrupted\n", f"4 broken processes {advice}")


def test_show_of_a_process_that_is_not_listed(world: World, run: Run) -> None:
    process_id = broken(world)
    world.store.database["interruptions"].delete_many({})
    with pytest.raises(InputError, match=f"`recovery check {process_id} --repair` makes it again"):
        run("show", process_id)


def test_restart(world: World, run: Run) -> None:
    world.refused = False  # type: ignore[attr-defined]
    plan = run("restart", "--actor", "pay", "--limit", "2")
    assert plan.endswith("would restart 2 interrupted tasks; add --yes to do it\n")
    assert states(world) == {"broken": 4}
    assert run("restart", broken(world)) == "1 task restarted, 1 process set running again\n"
    assert states(world) == {"broken": 3, "running": 1}
    assert run("restart", "--actor", "pay", "--limit", "1", "--yes").startswith("1 task restarted")
    assert run("restart", "--actor", "pay", "--yes").startswith("1 task restarted, 1 process")
    assert run("restart", "--actor", "pay", "--yes").splitlines() == [
        "no task is interrupted; no actor 'pay' is listed, there are: trip",
        "0 tasks restarted, 0 processes set running again",
    ]
    world.pump()
    assert states(world) == {"broken": 1, "finished": 3}


def test_restart_of_one_task(world: World, run: Run) -> None:
    (one,) = json.loads(run("show", broken(world), "--json"))["tasks"]
    assert run("restart", one["id"]).startswith("1 task restarted")
    with pytest.raises(InputError, match="is running; only tasks of a broken process"):
        run("restart", one["id"])


def test_abort(world: World, run: Run) -> None:
    process_id = broken(world)
    assert run("abort", process_id, "--reason", "withdrawn") == "1 process aborted\n"
    error = world.process(process_id).error
    assert error is not None
    assert error.message == "withdrawn"
    assert "would abort 2 processes;" in run("abort", "--type", "order")
    assert "would abort 1 process;" in run("abort", "--type", "order", "--limit", "1")
    assert run("abort", "--type", "order", "--yes") == "2 processes aborted\n"
    assert states(world) == {"aborted": 3, "broken": 1}
    assert world.process(broken(world, "trip")).state is ProcessState.BROKEN


@pytest.mark.parametrize("command", ["restart", "abort"])
def test_either_one_or_a_group(run: Run, command: str) -> None:
    with pytest.raises(InputError, match="nothing is named: give a process id, or a group by --type"):
        run(command)
    with pytest.raises(InputError, match="and a group are named: give either"):
        run(command, "f" * 32, "--type", "order")
    with pytest.raises(InputError, match="and a group are named"):
        run(command, "f" * 32, "--limit", "3")


def test_a_process_is_aborted_as_a_whole(world: World, run: Run) -> None:
    with pytest.raises(InputError, match=f"a process is aborted as a whole; give its id, {broken(world)}"):
        run("abort", f"{broken(world)}/start")
    assert states(world) == {"broken": 4}


NO_TEXT = {"$gt": ""}
DAMAGE: list[tuple[str, dict[str, Any]]] = [
    ("processes", {"error.message": NO_TEXT}),
    ("processes", {"error.kind": 5}),
    ("processes", {"startedAt": "today"}),
    ("processes", {"startedAt": None}),
    ("decisions", {"outcome.error.message": NO_TEXT}),
    ("decisions", {"outcome.error.stack": [1]}),
    ("decisions", {"attempts": "many"}),
    ("tasks", {"parent": NO_TEXT}),
    ("tasks", {"actor": 5}),
    ("interruptions", {"message": NO_TEXT, "kind": 5, "fingerprint": None, "at": "today"}),
]


@pytest.mark.parametrize(("collection", "damage"), DAMAGE, ids=lambda value: str(value)[:40])
def test_records_of_another_program_are_no_traceback(
    world: World, run: Run, collection: str, damage: dict[str, Any]
) -> None:
    """Each is shown as it is, or named as what can't be read; and the other groups are listed beside it."""
    process_id = world.store.interruptions.page(Selection(), "", 1)[0].process_id
    world.store.database.command(
        "update", collection, bypassDocumentValidation=True,
        updates=[{"q": {"_id": {"$regex": f"^{process_id}"}}, "u": {"$set": damage}, "multi": True}],
    )  # fmt: skip
    environment = world.settings.environment()
    for command in (["show", process_id], ["broken", "show", process_id], ["broken", "list"]):
        done = CliRunner().invoke(app, command, env=environment)
        assert done.exception is None or isinstance(done.exception, DamagedRecord), done.exception
        assert done.exception is None or process_id in str(done.exception)
    assert "trip" in run("list")
    with pytest.raises((ProcessBroken, DamagedRecord)):
        world.app.result(process_id, timeout=5)
    # What can't be read is left alone, and named; the others go on.
    spoilt = collection == "processes" and damage != {"startedAt": None}
    assert f"{2 if spoilt else 3} tasks restarted" in run("restart", "--actor", "pay", "--yes")
