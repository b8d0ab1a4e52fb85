"""Commands on a real worker."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import takewhile
from pathlib import Path

import psutil
import pytest

from recovery.cli.main import error_message, exit_code
from recovery.cli.start_commands import value
from recovery.errors import ProcessBroken
from recovery.settings import Settings
from recovery.stack import Stack
from recovery.stack.server_process import free_port, is_free
from recovery.store import Store, layout, schema
from recovery.store.views.overview import DEADLINES
from tests.cli.command import ROOT, command, environment, recovery, refused
from tests.conftest import forget_metrics
from tests.emptied import empty
from tests.preloaded.process import NEVER
from tests.waiting import wait_until

APP = "tests.cli.shop:app"
COMMANDS = (
    "actor",
    "beat",
    "broken",
    "check",
    "demo",
    "doctor",
    "init",
    "process-type",
    "run",
    "show",
    "start",
    "status",
    "sweep",
    "up",
    "worker",
)


@pytest.fixture
def env(settings: Settings) -> dict[str, str]:
    return settings.environment() | {"RECOVERY_APP": APP}


@pytest.fixture(scope="module")
def cluster(stack: Stack, lasting: Settings) -> Iterator[dict[str, str]]:
    """The environment of a cluster with one worker."""
    empty(lasting)
    env = lasting.environment() | {"RECOVERY_APP": APP}
    worker = stack.start_worker(APP, env=env)
    stack.workers.remove(worker)  # else the end of a test that has workers of its own is its end
    workers = Store(lasting).database["workers"]
    wait_until(lambda: workers.count_documents({}) or not worker.running, 30, "the worker")
    assert worker.running, "\n".join(worker.last_lines())
    yield env
    worker.kill_group()
    forget_metrics([worker.pid])


@pytest.fixture
def served(cluster: dict[str, str], lasting: Settings) -> dict[str, str]:
    """The same, without processes."""
    for name in ("processes", "graphs", "decisions", "interruptions"):
        Store(lasting).database[name].delete_many({})
    return cluster


@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_help_is_enough(name: str) -> None:
    done = recovery(*name.split(), "--help")
    assert done.returncode == 0
    assert ("Example: recovery " in done.stdout) if name else all(command in done.stdout for command in COMMANDS)


def test_version() -> None:
    done = recovery("--version")
    assert (done.returncode, done.stdout) == (0, f"recovery-workers {version('recovery-workers')}\n")


@pytest.mark.parametrize("changes", [{}, {"PROMETHEUS_MULTIPROC_DIR": "/none"}], ids=["", "with a folder of metrics"])
def test_help_needs_no_driver(changes: dict[str, str]) -> None:
    """`--help` is quick because nothing is imported for it."""
    source = (
        "import sys; sys.argv = ['recovery', '--help']\n"
        "from recovery.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print(sorted({'pymongo', 'redis', 'celery', 'pyspark', 'prometheus_client'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", source], env=environment(changes), capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_console_script_is_the_same() -> None:
    script = Path(sys.executable).with_name("recovery")
    done = subprocess.run([script, "--help"], env=environment(), capture_output=True, text=True, check=True)
    assert "Begin with: recovery demo" in done.stdout


@pytest.mark.parametrize(
    ("text", "meant"),
    [("3", 3), ('"3"', "3"), ("blue", "blue"), ('{"a": [null]}', {"a": [None]}), ("NaN", "NaN"), ("", ""), ("{", "{")],
)
def test_an_argument_is_json_or_text(text: str, meant: object) -> None:
    assert value(text) == meant


def test_init_twice(env: dict[str, str]) -> None:
    assert ["decisions", "created"] in [line.split() for line in recovery("init", env=env).stdout.splitlines()]
    again = recovery("init", env=env)
    assert again.returncode == 0
    assert "was there" in again.stdout and "restored" not in again.stdout


def test_init_tells_what_it_restored(settings: Settings, env: dict[str, str]) -> None:
    database = Store(settings).database
    layout.create(database)
    database["decisions"].drop_index("deadline")
    database.command("collMod", "graphs", validator={})
    told = recovery("init", env=env).stdout.splitlines()
    restored = [line.split() for line in told if "restored" in line]
    assert [(line[0], " ".join(line[line.index("restored:") :])) for line in restored] == [
        ("decisions", "restored: index deadline"),
        ("graphs", "restored: validator"),
    ]


def test_init_with_an_index_in_the_way(settings: Settings, env: dict[str, str]) -> None:
    database = Store(settings).database
    layout.create(database)
    database["graphs"].drop_index("deadline")
    database["graphs"].create_index([("recoveryTime", -1)], name="deadline")
    said = refused("init", env=env)
    assert "drop it (db.graphs.dropIndex('deadline')), then run `recovery init`" in said
    database["graphs"].drop_index("deadline")
    options = {"partialFilterExpression": {"recoveryTime": {"$exists": True}}}
    database["graphs"].create_index([("recoveryTime", 1)], name="other", **options)
    said = refused("init", env=env)
    assert "other" in said and "Drop it, then run `recovery init` again" in said and "did not answer" not in said


def test_start_wait_show_status(served: dict[str, str]) -> None:
    done = recovery("start", "twice", "10", "--wait", "30", env=served)
    assert done.returncode == 0, done.stderr
    process_id, result = done.stdout.split()
    assert json.loads(result) == 40

    shown = recovery("show", process_id, env=served).stdout
    assert f"{process_id}  twice  finished" in shown
    assert shown.count("double  finished  took ") == 2
    assert "start  twice  finished" in shown

    status = json.loads(recovery("status", "--json", env=served).stdout)
    assert status["processes"] == {"finished": 1, "running": 0, "broken": 0, "aborted": 0}
    assert {name: queue["depth"] for name, queue in status["queues"].items()} == dict.fromkeys(
        ("broken", "double", "echo", "many", "recovery.canary", "refuse", "twice"), 0
    )
    assert len(status["workers"]) == 1
    assert {late["count"] for late in status["overdue"].values()} == {0}
    assert "1 alive" in recovery("status", env=served).stdout


def test_start_with_arguments_of_all_kinds(served: dict[str, str]) -> None:
    done = recovery("start", "echo", "1", "blue", '{"a": [true]}', '"1"', "--wait", "30", env=served)
    assert json.loads(done.stdout.split("\n")[1]) == [1, "blue", {"a": [True]}, "1"]


def test_custom_id(served: dict[str, str]) -> None:
    first = recovery("start", "echo", "--custom-id", "mine", env=served).stdout
    assert recovery("start", "echo", "--custom-id", "mine", env=served).stdout == first
    assert "custom id  mine" in recovery("show", first.strip(), env=served).stdout


def test_a_broken_process(served: dict[str, str]) -> None:
    done = recovery("start", "broken", "out of paper", "--wait", "30", env=served)
    assert done.returncode == 1, "a bad result"
    said = done.stderr
    assert "ValueError: out of paper" in said
    process_id = said.split()[2].strip(",")
    shown = recovery("show", process_id, env=served).stdout
    assert "broken" in shown
    assert "refuse  failed" in shown and "ValueError: out of paper" in shown
    assert json.loads(recovery("status", "--json", env=served).stdout)["processes"]["broken"] == 1


def test_many_tasks_are_counted_together(served: dict[str, str]) -> None:
    done = recovery("start", "many", "250", "--wait", "60", env=served)
    shown = recovery("show", done.stdout.split()[0], env=served).stdout
    assert "251 tasks" in shown
    assert "250 × double  finished" in shown


def test_not_waited_long_enough(env: dict[str, str]) -> None:
    assert recovery("init", env=env).returncode == 0
    done = recovery("start", "twice", "1", "--wait", "0", env=env)
    assert done.returncode == 3
    assert "has not ended within 0s" in done.stderr
    assert done.stdout.strip() in done.stderr, "its id, to ask again with"


def test_unknown_process(env: dict[str, str]) -> None:
    assert "no process type is named 'twise'; did you mean 'twice'?" in refused("start", "twise", env=env)
    assert "'double' is an actor, and no process type" in refused("start", "double", "1", env=env)
    assert "no process has the id 'nothing'" in refused("show", "nothing", env=env)


def test_run_workflows(stack: Stack, settings: Settings) -> None:
    stack.start_worker("recovery.demo.app:app", env=settings.environment())
    run = ("run", "recovery/wfformat/example.json", "--processes", "2", "--time-scale", "0")
    wait_until(lambda: (done := recovery(*run, env=settings.environment())).returncode == 0 and done, 60, "a worker")
    assert "2 of 2 finished" in recovery(*run, env=settings.environment()).stdout


def test_a_worker_of_some_queues(stack: Stack, env: dict[str, str]) -> None:
    stack.start_worker(APP, queues=["double", "refuse"], env=env)

    def queues() -> list[str]:
        found = json.loads(recovery("status", "--json", env=env).stdout)["workers"]
        return found[0]["queues"] if found else []

    assert recovery("init", env=env).returncode == 0
    assert sorted(wait_until(queues, 30, "the worker")) == ["double", "recovery.canary", "refuse"]


@pytest.mark.thorough
def test_up_runs_a_cluster_until_it_is_interrupted(tmp_path: Path) -> None:
    ports = [free_port(), free_port()]
    options = ["--mongo-port", str(ports[0]), "--redis-port", str(ports[1]), "--app", APP, "--workers", "1"]
    env = environment({"RECOVERY_DATA_DIR": str(tmp_path / "data of up")})
    with subprocess.Popen(command("up", *options), env=env, cwd=ROOT, stdout=subprocess.PIPE, text=True) as up:
        assert up.stdout is not None
        lines = []
        for line in up.stdout:
            lines.append(line)
            if "running" in line:
                break
        started = psutil.Process(up.pid).children(recursive=True)
        exports = dict(line.removeprefix("export ").strip().split("=", 1) for line in lines if "export" in line)
        users = {name: value.strip("'") for name, value in exports.items()} | {"RECOVERY_APP": APP}
        done = recovery("start", "twice", "1", "--wait", "30", env=users)
        assert json.loads(done.stdout.split()[1]) == 4
        up.send_signal(signal.SIGINT)
        assert up.wait(60) == 0
    wait_until(lambda: not any(alive(process) for process in started), 10, "the end of all that was started")
    assert all(is_free(port) for port in ports)


def test_no_handler_of_a_signal_sets_an_event() -> None:
    """It runs in the main thread, which may hold the event's lock just then, because it waits for it."""
    sets = {
        path.name
        for path in (ROOT / "recovery").rglob("*.py")
        if re.search(r"signal\.signal\([^)]*\.(set|wake|notify|put)\b", path.read_text())
    }
    assert sets == set()


@pytest.mark.thorough
def test_up_starts_only_servers_if_an_application_is_merely_set(tmp_path: Path) -> None:
    """RECOVERY_APP is there for all commands. Whether the application can be imported is no matter then."""
    options = ["--mongo-port", str(free_port()), "--redis-port", str(free_port())]
    env = environment({"RECOVERY_DATA_DIR": str(tmp_path / "data"), "RECOVERY_APP": "no_such_module:app"})
    with subprocess.Popen(command("up", *options), env=env, cwd=ROOT, stdout=subprocess.PIPE, text=True) as up:
        assert up.stdout is not None
        lines = list(takewhile(lambda line: "running" not in line, up.stdout))
        started = psutil.Process(up.pid).children(recursive=True)
        commands = [" ".join(process.cmdline()) for process in started]
        up.send_signal(signal.SIGINT)
        assert up.wait(60) == 0
    assert not any("worker" in line for line in lines)
    assert commands and not any("celery" in one for one in commands)


def alive(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def test_a_worker_is_celerys_own_process(stack: Stack, env: dict[str, str]) -> None:
    """`recovery worker` becomes Celery, so what is signalled is the worker."""
    worker = stack.start_worker(APP, env={**env, NEVER: "1"})
    wait_until(lambda: "celery" in psutil.Process(worker.pid).cmdline(), 30, "Celery's command line")
    assert "--without-gossip" in psutil.Process(worker.pid).cmdline()
    os.kill(worker.pid, signal.SIGTERM)
    assert worker.wait(30)


def test_a_broken_process_is_told_without_its_rule() -> None:
    """The kind of error says it; the record has both."""
    error = ProcessBroken("p", "t", "RecordsLost", "DECISION_MISSING: the graph names it")
    assert error_message(error) == "process p, task t: RecordsLost: the graph names it"
    assert exit_code(error) == 1
    assert error_message(ProcessBroken("p", None, "ValueError", "ODD: it is")) == "process p: ValueError: ODD: it is"


def test_status_names_all_that_is_overdue(emptied: Settings) -> None:
    database = Store(emptied).database
    past = datetime(2026, 1, 1, tzinfo=UTC)
    for name in DEADLINES:
        state = {schema.DECISIONS: "queued", schema.PROCESSES: "running"}.get(name)
        record = {"_id": "p", "recoveryTime": past, **({"state": state} if state else {})}
        database[name].insert_one(record, bypass_document_validation=True)
    Store(emptied).catch_up(10)
    done = recovery("status", env=emptied.environment())
    assert done.returncode == 0, done.stderr
    for record in ("task", "graph", "process", "schedule"):
        assert f"1 {record}, the oldest for " in done.stdout
