"""What `recovery show` tells of each task: its call, its value, and what it waits for."""

from __future__ import annotations

import gc
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from typing import Any

import pytest
from typer.testing import CliRunner

from recovery import Promise, Recovery, Settings
from recovery.cli import show_commands as show
from recovery.cli.main import _unless_half_made, app
from recovery.cli.start_commands import _reasons
from recovery.cli.task_texts import call_line
from recovery.records import Worker
from recovery.store.views.process_lookup import CallTexts
from tests.cli.command import command, environment
from tests.world import World

LONG = "x" * 1000


@pytest.fixture
def world(emptied: Settings, monkeypatch: pytest.MonkeyPatch) -> World:
    for name, value in {**emptied.environment(), "COLUMNS": "300"}.items():
        monkeypatch.setenv(name, value)
    made = World(emptied, Recovery(emptied))

    @made.app.actor()
    def pack(item: str, times: int = 1) -> str:
        if item == "nothing":
            raise ValueError("nothing to pack")
        return item * times

    @made.app.actor()
    def ship(parcel: str) -> str:
        return f"sent {parcel}"

    @made.app.process()
    def order(item: str) -> Promise:
        return ship.schedule(pack.schedule(item, times=2))

    @made.app.process()
    def later(item: str) -> Promise:
        return pack.options(delay=600).schedule(item)

    made.tell()
    return made


def shown(process_id: str, *options: str, code: int = 0) -> str:
    done = CliRunner().invoke(app, ["show", process_id, *options])
    assert done.exit_code == code, done
    return done.stdout


def tasks(process_id: str) -> dict[str, dict[str, Any]]:
    """{actor: its task}, as JSON has it."""
    found = json.loads(shown(process_id, "--json"))
    return {one["actor"]: one for one in found["tasks"]}


def served(world: World, *actors: str) -> str:
    """A process of which these actors' tasks were done."""
    process_id = world.start("order", "a")
    world.pump(serve={name: world.app.actors[name] for name in ("order", *actors)})
    world.store.catch_up(10)
    return process_id


def test_calls_and_values(world: World) -> None:
    process_id = served(world, "pack", "ship")
    found = tasks(process_id)
    pack, ship = found["pack"]["task"][:8], found["ship"]["task"][:8]
    told = shown(process_id)
    assert "order  finished  took" in told and f'("a") → <{ship}>' in told
    assert '("a", times=2) → "aa"' in told and f'(<{pack}>) → "sent aa"' in told
    assert (found["pack"]["arguments"], found["pack"]["named_arguments"]) == (["a"], {"times": 2})
    assert found["ship"]["arguments"] == [{"$promise": found["pack"]["task"]}]
    assert (found["ship"]["value"], found["order"]["value"]) == ("sent aa", {"$promise": found["ship"]["task"]})
    assert json.loads(shown(process_id, "--json"))["result"] == "sent aa"


def test_a_long_one_is_cut_and_whole_as_json(world: World) -> None:
    process_id = world.start("order", LONG)
    world.pump()
    world.store.catch_up(10)
    assert f'("{"x" * 40}' in shown(process_id) and LONG not in shown(process_id)
    assert tasks(process_id)["pack"]["arguments"] == [LONG] and tasks(process_id)["pack"]["value"] == LONG * 2


@pytest.mark.parametrize(
    ("args", "value", "most", "line"),
    [
        ('[[1,"a"],{"b":null}]', "3", 80, '(1, "a", b=null) → 3'),
        ("[[],{}]", None, 80, "()"),
        (f'[["{LONG}', None, 12, '("xxxxxxxxx…'),
        ('[["abcdefghij"],{}]', '"klmnopqrst"', 21, '("abcdef… → "klmnopq…'),
        ('[[{"$promise":"abcdefghijkl"}],{}]', '{"$promise":"mnopqrstuvwx"}', 80, "(<abcdefgh>) → <mnopqrst>"),
        ("not JSON", None, 80, "(not JSON…)"),
        (None, None, 80, ""),
    ],
)
def test_a_line_of_a_call(args: str | None, value: str | None, most: int, line: str) -> None:
    found = call_line(CallTexts(args, value), most)
    assert found == line and len(found) <= most


def test_what_a_task_waits_for(world: World) -> None:
    process_id = served(world)
    found = tasks(process_id)
    pack = found["pack"]["task"]
    assert found["ship"]["waits_for"] == [pack]
    assert found["pack"]["hint"] == "waits for a free worker" or found["pack"]["hint"] == "no worker serves pack"
    assert f"ship  waiting  waits for {pack[:8]}" in shown(process_id)
    world.store.actors.block("pack")
    assert "pack has been blocked for " in tasks(process_id)["pack"]["hint"]


def test_what_failed_is_named_first(world: World) -> None:
    process_id = world.start("order", "nothing")
    world.pump()
    world.store.catch_up(10)
    found = tasks(process_id)
    assert f"waits for {found['pack']['task'][:8]} (failed)" == found["ship"]["hint"]
    assert "1 attempts" not in shown(process_id)


def test_when_it_starts(world: World) -> None:
    process_id = world.start("later", "a")
    world.pump()
    world.store.catch_up(10)
    assert tasks(process_id)["pack"]["hint"].startswith("starts at 20") and " UTC, in " in shown(process_id)


def test_one_task_is_not_several(world: World) -> None:
    process_id = world.start("order", "a")
    world.store.catch_up(10)
    assert "\n1 task\n" in shown(process_id)


@pytest.mark.parametrize(("item", "code"), [("a", 0), ("nothing", 1)])
def test_watched_until_its_end(world: World, monkeypatch: pytest.MonkeyPatch, item: str, code: int) -> None:
    monkeypatch.setattr(show, "LOOK_EVERY", 0.05)
    process_id = world.start("order", item)
    worker = threading.Timer(0.3, world.pump)
    worker.start()
    told = shown(process_id, "--watch", code=code)
    worker.join()
    assert ("finished" if code == 0 else "broken") in told.splitlines()[0]
    assert told.count(process_id) == 1, "in a pipe it is told once"


def interruptible(*arguments: str, env: Mapping[str, str]) -> subprocess.Popen[str]:
    """A command that can be interrupted, also where these tests can't be: what a shell runs in the background, and all
    that it starts, ignores Ctrl-C."""
    return subprocess.Popen(
        command(*arguments),
        env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip


@pytest.mark.thorough
@pytest.mark.parametrize("waits", ["start", "show"])
def test_ctrl_c_ends_the_waiting_alone(world: World, waits: str) -> None:
    env = environment({**world.settings.environment(), "RECOVERY_APP": "tests.cli.shop:app", "PYTHONUNBUFFERED": "1"})
    start = interruptible("start", "twice", "3", "--wait", env=env)
    assert start.stdout is not None
    process_id = start.stdout.readline().strip()
    assert len(process_id) == 32
    waiting = start
    if waits == "show":
        start.send_signal(signal.SIGINT)
        start.communicate(timeout=30)
        world.store.catch_up(10)
        # With a terminal's control sequences it is known when it watches.
        waiting = interruptible("show", process_id, "--watch", env={**env, "FORCE_COLOR": "1", "TERM": "xterm"})
        assert waiting.stdout is not None
        while process_id not in waiting.stdout.readline():
            assert waiting.poll() is None
    waiting.send_signal(signal.SIGINT)
    _, said = waiting.communicate(timeout=30)
    assert waiting.returncode == 130, said
    assert f"process {process_id} goes on" in said and "Traceback" not in said


class HalfMade:
    """An object whose making is cut off: it has no `whole`."""

    def __init__(self) -> None:
        raise KeyboardInterrupt

    def __del__(self) -> None:
        print(self.whole)  # type: ignore[attr-defined]


class Broken:
    def __del__(self) -> None:
        raise ValueError("this is told")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_what_a_ctrl_c_left_half_made_says_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "unraisablehook", _unless_half_made)
    with pytest.raises(KeyboardInterrupt):
        HalfMade()
    gc.collect()
    assert capsys.readouterr().err == ""
    made = Broken()
    del made
    assert "this is told" in capsys.readouterr().err


def test_the_versions_of_the_application(world: World) -> None:
    older = Recovery(world.app.settings, name=world.app.name, version="0.9")
    older.process("order")(lambda item: item)
    process_id = served(world, "pack", "ship")
    started, told = older.start("order", "a"), world.app.version
    as_json = json.loads(shown(process_id, "--json"))
    assert as_json["application_version"] == told
    assert {one["application_version"] for one in as_json["tasks"]} == {told}
    assert f"version    {told}\n" in shown(process_id)
    assert "by version" not in shown(process_id)
    world.pump()
    world.store.catch_up(10)
    assert "version    0.9\n" in shown(started)
    assert f"by version {told}" in shown(started)


def test_what_waits_for_a_newer_worker(world: World) -> None:
    newer = Recovery(world.app.settings, version="2.0")

    @newer.process("order")
    def order(item: str, urgent: bool) -> str:
        return f"{item} {urgent}"

    process_id = newer.start("order", "tea", urgent=True)
    newer.registrar.flush()
    world.store.workers.beat(Worker(id="w", name="w", host="h", pid=1, pid_started=1, queues=("order",)), 60)
    assert world.pump() == 1
    world.store.catch_up(10)
    told = f"waits for a newer worker: version {world.app.version} got an unexpected keyword argument 'urgent'"
    assert f'order  delayed  {told}  ("tea", urgent=true)' in shown(process_id)
    (task,) = json.loads(shown(process_id, "--json"))["tasks"]
    assert (task["state"], task["attempts"], task["hint"]) == ("delayed", 0, told)
    assert _reasons(world.app.resources, process_id) == [f"order {told}"]
