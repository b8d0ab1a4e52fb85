"""Each input that can't be used is refused in one message that names it and says what to do."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from recovery.settings import Settings
from recovery.stack.server_process import free_port
from tests.cli.command import environment, recovery, refused
from tests.seldom import by_turns

APP = "tests.cli.shop:app"

WRONG_APPS = {
    "none": ("", "RECOVERY_APP"),
    "form": ("tests.cli.shop", "package.module:name"),
    "dots": ("..:x", "package.module:name"),
    "module": ("tests.cli.shopp:app", "no module 'tests.cli.shopp'"),
    "name": ("tests.cli.shop:appp", "it has 'app'"),
    "kind": ("tests.cli.shop:not_an_app", "is a int"),
}


@pytest.mark.parametrize(("wrong", "command"), by_turns([*WRONG_APPS], ["worker", "start"]))
def test_wrong_app(command: str, wrong: str) -> None:
    app, said = WRONG_APPS[wrong]
    arguments = [command, *(["twice"] if command == "start" else [])]
    if command == "start":
        assert said in refused(*arguments, env={"RECOVERY_APP": app} if app else {})
    else:
        assert said in refused(*arguments, *(["--app", app] if app else []))


@pytest.mark.thorough
def test_an_app_that_imports_what_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "lacking.py").write_text("import no_such_library\n")
    for command in (["worker"], ["start", "order"]):
        said = refused(*command, "--app", "lacking:app", cwd=tmp_path)
        assert "lacking imports 'no_such_library', which cannot be found" in said


MODULES = {
    "raises": ("raise ValueError('\\x1b[2Jno')", "raises.py, line 1 while raises was imported: ValueError: \\x1b[2Jno"),
    "exits": ("import sys\nsys.exit(3)", "exits.py, line 2 while exits was imported: SystemExit: 3"),
    "broken": ("def", "broken.py, line 1 while broken was imported: SyntaxError"),
    "misnamed": (
        "from recovery import Recovery\nRecovery().actor('recovery.nudge')(print)",
        "actor name 'recovery.nudge'",
    ),
}


@pytest.mark.thorough
@pytest.mark.parametrize("module", MODULES)
def test_an_app_that_can_not_be_imported(module: str, tmp_path: Path) -> None:
    text, said = MODULES[module]
    (tmp_path / f"{module}.py").write_text(text)
    assert said in refused("worker", "--app", f"{module}:app", cwd=tmp_path)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["start", "twice", "[" * 100_000, "--app", APP], "nested too deeply"),
        (["start", "twice", "1" * 5000, "--app", APP], "too long a number"),
        (["worker", "--app", APP, "--queues", "doubel"], "did you mean 'double'?"),
        (["worker", "--app", APP, "--queues", "double, refusee"], "did you mean 'refuse'?"),
        (["worker", "--app", APP, "--queues", ","], "names no queue"),
        (["worker", "--app", APP, "--name", "a@b"], "--name"),
        (["up", "--workers", "2"], "--app"),
        (["up", "--app", "none:app"], "none"),
        (["up", "--app", "tests.cli.shop:appp"], "it has 'app'"),
        (["up", "--mongo-port", "20000", "--redis-port", "20000"], "two servers can't have one port"),
        (["demo", "--processes", "0"], "--processes 0: must be at least 1"),
        (["demo", "--kill-every", "-1"], "--kill-every"),
        (["demo", "none.json"], "none.json: can't be read"),
        (["run", "none.json"], "none.json: can't be read"),
        (["run", "README.md"], "README.md: is not JSON"),
        (["demo", "README.md"], "README.md: is not JSON"),
    ],
)
def test_wrong_argument(arguments: list[str], said: str) -> None:
    assert said in refused(*arguments)


def test_wrong_setting() -> None:
    assert "did you mean RECOVERY_MONGO_URI?" in refused("status", env={"RECOVERY_MONGO_URL": "x"})


def test_demo_with_one_port_for_all_workers_metrics() -> None:
    assert "RECOVERY_METRICS_PORT" in refused("demo", env={"RECOVERY_METRICS_PORT": "9000"})


def test_wrong_option_of_typers() -> None:
    done = recovery("worker", "--app", APP, "--pool", "gevent")
    assert done.returncode == 2
    assert "'prefork', 'threads'" in done.stderr


@pytest.mark.thorough
def test_mongodb_does_not_answer(settings: Settings) -> None:
    """Each waits for some seconds; all at once, so that the test does too."""
    uri = f"mongodb://127.0.0.1:{free_port()}"
    env = settings.environment() | {"RECOVERY_MONGO_URI": uri, "RECOVERY_APP": APP}
    commands = (["status"], ["start", "twice", "1"], ["run", "recovery/wfformat/example.json"], ["sweep"])
    began = time.monotonic()
    with ThreadPoolExecutor() as pool:
        for said in pool.map(lambda arguments: refused(*arguments, env=env), commands):
            assert uri in said and "RECOVERY_MONGO_URI" in said
    assert time.monotonic() - began < 15


def test_redis_does_not_answer(settings: Settings) -> None:
    url = f"redis://127.0.0.1:{free_port()}/0"
    assert url.removesuffix("/0") in refused("init", env=settings.environment() | {"RECOVERY_BROKER_URL": url})


def test_servers_of_this_machine_on_other_ports_are_started_there(settings: Settings) -> None:
    mongo, redis = settings.mongo_uri.rpartition(":")[2].partition("/")[0], free_port()
    url = f"redis://127.0.0.1:{redis}/0"
    said = refused("init", env=settings.environment() | {"RECOVERY_BROKER_URL": url})
    assert f"`recovery up --mongo-port {mongo} --redis-port {redis}`" in said
    assert ".." not in said
    elsewhere = f"redis://cache.invalid:{redis}/0"
    assert "--mongo-port" not in refused("init", env=settings.environment() | {"RECOVERY_BROKER_URL": elsewhere})


@pytest.mark.thorough
def test_a_server_that_is_silent(settings: Settings) -> None:
    """It takes connections and says nothing: waited for a few seconds, not for ever."""
    with socket.create_server(("127.0.0.1", 0)) as silent, ThreadPoolExecutor() as pool:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        mongo_uri, broker_url = f"mongodb://{address}/?replicaSet=rs0", f"redis://{address}/0"
        status = pool.submit(refused, "status", env={"RECOVERY_MONGO_URI": mongo_uri})
        init = pool.submit(refused, "init", env=settings.environment() | {"RECOVERY_BROKER_URL": broker_url})
        assert address in status.result()
        assert address in init.result()


@pytest.mark.thorough
def test_port_of_up_is_taken(tmp_path: Path) -> None:
    for option in ("--mongo-port", "--redis-port"):
        other = {"--mongo-port": "--redis-port", "--redis-port": "--mongo-port"}[option]
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = str(taken.getsockname()[1])
            said = refused(
                "up", option, port, other, str(free_port()), env={"RECOVERY_DATA_DIR": str(tmp_path / option)}
            )
            assert f"127.0.0.1:{port}: the port is in use" in said


def test_no_worker_for_run(settings: Settings) -> None:
    assert recovery("init", env=settings.environment()).returncode == 0
    said = refused("run", "recovery/wfformat/example.json", env=settings.environment())
    assert "workflow_task" in said and "recovery worker --app recovery.demo.app:app" in said


@pytest.mark.thorough
def test_a_host_that_metrics_can_not_be_served_on(settings: Settings) -> None:
    changes = {"RECOVERY_APP": APP, "RECOVERY_METRICS_HOST": "192.0.2.1", "RECOVERY_METRICS_PORT": str(free_port())}
    done = recovery("worker", "--concurrency", "1", env=settings.environment() | changes)
    assert done.returncode == 2
    assert "metrics can't be served on 192.0.2.1:" in done.stderr and "set RECOVERY_METRICS_HOST" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("argument", "unbuffered"),
    [("--version", ""), ("--version", "1"), ("--help", ""), ("nosuch", ""), ("nosuch", "1")],
)
def test_what_can_not_be_written(argument: str, unbuffered: str) -> None:
    """Told once, and by the exit code: also where it is found out at the end, when what was kept back is written."""
    with Path("/dev/full").open("w") as full:
        line, env = [sys.executable, "-m", "recovery", argument], environment({"PYTHONUNBUFFERED": unbuffered})
        done = subprocess.run(line, env=env, stdout=full, stderr=subprocess.PIPE, check=False, text=True)
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
        assert done.stderr.startswith("error: ")
        done = subprocess.run(line, env=env, stdout=full, stderr=full, check=False)
        assert done.returncode == 2


def test_that_nobody_reads_any_more_is_no_error() -> None:
    reads, writes = os.pipe()
    os.close(reads)
    line, env = [sys.executable, "-m", "recovery", "--version"], environment({"PYTHONUNBUFFERED": ""})
    done = subprocess.run(line, env=env, stdout=writes, stderr=subprocess.PIPE, check=False, text=True)
    os.close(writes)
    assert (done.returncode, done.stderr) == (0, "")
