"""What lists and tables look like: one line for each record in a pipe, idle queues folded, commands not broken."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest
from typer.testing import CliRunner

from recovery.cli.main import app
from recovery.cli.output import PlainConsole, wrap
from recovery.records import ActorPreferences, Worker
from recovery.settings import Settings
from tests.cli.terminal import WIDTH
from tests.world import World

Run = Callable[..., str]


@pytest.fixture
def world(emptied: Settings) -> World:
    """With the process `order-1`, which broke for a message of two lines, and one whose task waits."""
    made = World(emptied)

    @made.app.actor()
    def pay(amount: int) -> int:
        raise ValueError(f"Connection refused by bank (x*) after {amount} tries\nand more")

    @made.app.actor()
    def ship(amount: int) -> int:
        return amount

    @made.app.process()
    def order(amount: int) -> object:
        return pay.schedule(amount) if amount else ship.schedule(amount)

    made.bring_to_end(made.start("order", 1, custom_id="order-1"))
    made.start("order", 0, custom_id="order-2")
    made.pump(serve={name: made.app.actors[name] for name in ("order", "pay")})
    served = Worker(id="w", name="w@h", host="h", pid=1, pid_started=1, queues=("order", "pay"))
    made.store.workers.beat(served, 600)
    made.store.actors.save([ActorPreferences(id="gone")])
    made.store.catch_up(10)
    return made


@pytest.fixture
def run(world: World, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command in this process, and return what it prints in a pipe, or on a terminal of some width."""

    def run(*arguments: str, width: int | None = None) -> str:
        environment = world.settings.environment() | {"COLUMNS": str(width or WIDTH), "TERM": "dumb"}
        monkeypatch.delenv("FORCE_COLOR", raising=False)
        for name, value in (environment | ({"FORCE_COLOR": "1"} if width else {})).items():
            monkeypatch.setenv(name, value)
        done = CliRunner().invoke(app, arguments, color=False)
        if done.exception is not None:
            raise done.exception
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", done.stdout)

    return run


@pytest.mark.parametrize("command", ["find 'type:order'", "list", "broken list", "broken list --ids"])
def test_each_record_has_one_line_in_a_pipe(run: Run, command: str) -> None:
    lines = run(*command.replace("'", "").split()).splitlines()
    header = 0 if "--ids" in command else 1
    assert len(lines) - header == (1 if "broken" in command else 2)
    if command == "broken list":
        assert re.search(r"[0-9a-f]{32}  Connection refused by bank", lines[1])


@pytest.mark.parametrize(
    ("search", "count"),
    [
        ('message:"connection refused"', 1),
        ("message:REFUSED", 1),
        ("message:*bank*", 1),
        ('message:"(x*)"', 1),
        ("message:refused error:ValueError type:order", 1),
        ("type:order not message:refused", 1),
        ("message:accepted", 0),
        ('message:"x.*a"', 0),
    ],
)
def test_messages_of_errors_are_searched(run: Run, search: str, count: int) -> None:
    assert len(json.loads(run("find", search, "--json"))["processes"]) == count


def test_a_process_type_that_may_have_been_meant_is_suggested(run: Run) -> None:
    said = "none; no process of type 'oder' was seen; did you mean 'order'?\n"
    assert run("find", "type:oder") == run("list", "--type", "oder") == said
    assert run("find", "type:order state:aborted") == "none\n"


def test_idle_queues_are_on_one_line(run: Run) -> None:
    shown = run("status")
    assert "ship  1 waiting" in shown
    assert "3 idle: gone, order, pay\n" in shown
    listed = run("actor", "list").splitlines()
    assert [line.split()[0] for line in listed[:2]] == ["actor", "ship"]
    assert listed[2:] == ["idle: order, pay", "idle, without a worker: gone"]
    run("actor", "set", "pay", "worker_timeout=2m")
    run("actor", "block", "order")
    listed = run("actor", "list").splitlines()
    assert [line.split()[0] for line in listed[1:4]] == ["order", "pay", "ship"], (
        "what is set or blocked is no idle one"
    )
    assert re.search(r"order  0 waiting, polled .*; blocked$", run("status"), re.MULTILINE)
    assert run("status", "--json").count("polled_seconds_ago") == 4, "programs are given all"


def test_tables_of_audit_and_init_are_aligned_in_a_narrow_terminal(run: Run) -> None:
    run("actor", "set", "pay", "worker_timeout=2m", "--reason", "the bank is slow, and has been for some days by now")
    process = json.loads(run("list", "--json"))["processes"][0]["id"]
    run("abort", process, "--reason", "withdrawn", "--yes")
    lines = run("audit", width=WIDTH).splitlines()
    assert lines[0].split() == ["at", "(UTC)", "by", "what", "target"]
    entries = [line for line in lines[1:] if line[0].isdigit()]
    column = lines[0].index("what")
    assert [line[column:].split()[0] for line in entries] == ["process", "actor"]
    below = [line for line in lines[1:] if not line[0].isdigit()]
    assert all(line.startswith(" " * lines[0].index("by")) and len(line) <= WIDTH for line in below)
    assert "withdrawn; done" in below[0] and any(process in line for line in lines)
    assert run("audit").splitlines()[0].split() == ["at", "(UTC)", "by", "what", "target", "why", "outcome"]
    made = [line for line in run("init", width=WIDTH).splitlines() if line.startswith("  ")]
    assert len({line.index("was there") for line in made}) == 1


@pytest.mark.parametrize("width", [20, 40, 60, 80])
def test_a_command_is_not_broken_over_lines(width: int) -> None:
    command = "`recovery operation start set_idle_timeout type:order --reason …`"
    text = PlainConsole(width=width).render_str(f"those keep what they have (see {command}); and so on, `as` they do")
    lines = [line.plain for line in wrap(text, width)]
    assert any(command in line for line in lines)
    assert "".join(lines).replace(" ", "") == text.plain.replace(" ", ""), "nothing is lost"
    assert all(len(line) <= width or command in line for line in lines)


def test_a_task_that_ended_with_its_process_is_aborted(run: Run) -> None:
    run("abort", "order-2", "--reason", "withdrawn", "--yes")
    shown = run("show", "order-2")
    assert re.search(r"ship  aborted  \(0\)$", shown, re.MULTILINE), shown
    assert "–" not in shown and "failed" not in shown and shown.count("withdrawn") == 1
    run("abort", "order-1", "--reason", "withdrawn", "--yes")
    assert re.search(r"pay  failed  took .*ValueError", run("show", "order-1")), "that one failed by itself"
    states = {one["actor"]: one["state"] for one in json.loads(run("show", "order-2", "--json"))["tasks"]}
    assert states["ship"] == "failed", "programs are told the same as before"
