"""How a command starts: what it imports, and what a Ctrl-C does meanwhile."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import typer.main

from recovery import metrics_folder
from recovery.cli.main import _unless_half_made, app
from recovery.cli.on_demand import COMMANDS, build
from recovery.settings import Settings
from recovery.stack.server_process import free_port
from tests.cli.command import ROOT, command, environment, recovery

NOT_NEEDED = (
    *("celery", "kombu", "billiard", "amqp", "prometheus_client", "pyspark", "pyarrow", "yaml", "pydantic"),
    *(
        "recovery.engine.app",
        "recovery.engine.apply",
        "recovery.engine.run",
        "recovery.engine.actors",
        "recovery.operations",
    ),
    *("recovery.sweep", "recovery.drill", "recovery.worker", "recovery.stack", "recovery.health.doctor"),
)
"""Modules, with all that is below them, that no command needs to look something up."""
RECORDS = ("recovery.records.operation", "recovery.records.schedule", "recovery.store.definitions")
OF_REDIS = ("redis", "opentelemetry", "recovery.queue")

CTRL_C = """
import os, signal, sys

class CtrlC:
    \"\"\"Sends this process a SIGINT at the first import of a module.\"\"\"

    def find_spec(self, name, path=None, target=None):
        if name == os.environ.get("CTRL_C_AT"):
            sys.meta_path.remove(self)
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, CtrlC())
"""


def imported(line: list[str], env: dict[str, str]) -> set[str]:
    """Run a command, and return the modules that it imported."""
    source = (
        f"import sys; sys.argv = {['recovery', *line]!r}\n"
        "from recovery.cli.entry import main\n"
        "try: main()\n"
        "finally: print(*sys.modules, file=sys.stderr)"
    )
    clean = {name: value for name, value in environment(env).items() if name != metrics_folder.MULTIPROC_DIR}
    done = subprocess.run([sys.executable, "-c", source], env=clean, capture_output=True, text=True, cwd=ROOT)
    return set(done.stderr.splitlines()[-1].split())


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("line", "not_needed"),
    [
        (["status"], (*NOT_NEEDED, *RECORDS)),
        (["find", "state:running"], (*NOT_NEEDED, *OF_REDIS)),
        (["list"], (*NOT_NEEDED, *OF_REDIS, "lark", "recovery.retry")),
        (["show", "none"], (*NOT_NEEDED, *RECORDS, *OF_REDIS, "lark")),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_command_imports_only_what_it_asks_with(
    line: list[str], not_needed: tuple[str, ...], emptied: Settings
) -> None:
    found = imported(line, emptied.environment())
    assert sorted(name for name in found for one in not_needed if name == one or name.startswith(f"{one}.")) == []


@pytest.mark.parametrize("module", sorted({*COMMANDS.values()}))
def test_a_module_is_listed_with_the_commands_that_it_adds(module: str) -> None:
    assert sorted(build(module)) == sorted(name for name, home in COMMANDS.items() if home == module)


def test_one_command_is_built_without_the_others() -> None:
    group = typer.main.get_group(app)
    assert group.commands.get("status").name == "status"
    assert group.commands.get("no-such-command") is None
    assert list(group.commands._built) == ["status"]  # type: ignore[attr-defined]


@pytest.mark.thorough
@pytest.mark.parametrize(
    "module", ["recovery.cli.main", "typer", "recovery.cli.status_commands", "pymongo", "redis.client"]
)
def test_a_ctrl_c_while_a_command_starts_is_no_traceback(module: str, tmp_path: Path, emptied: Settings) -> None:
    (tmp_path / "sitecustomize.py").write_text(CTRL_C)
    env = environment({**emptied.environment(), "CTRL_C_AT": module})
    env["PYTHONPATH"] = f"{tmp_path}:{env['PYTHONPATH']}"
    done = subprocess.run(command("status"), env=env, capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


class Interrupted:
    """An object at whose removal a Ctrl-C strikes."""

    def __del__(self) -> None:
        raise KeyboardInterrupt


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_ctrl_c_where_nothing_can_be_raised_is_not_lost(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # Spark sets its own in the process of its tests
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    monkeypatch.setattr(sys, "unraisablehook", _unless_half_made)
    interrupted = [Interrupted()]
    with pytest.raises(KeyboardInterrupt):
        interrupted.clear()
        threading.Event().wait(10)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "line", ["find state:running", "list", "audit", "marker list", "schedule list", "process-type list"]
)
def test_what_is_in_mongodb_is_shown_without_redis(line: str, emptied: Settings) -> None:
    away = emptied.model_copy(update={"broker_url": f"redis://127.0.0.1:{free_port()}/0"})
    done = recovery(*line.split(), env=away.environment())
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.thorough
def test_a_schedule_is_looked_up_without_redis(emptied: Settings) -> None:
    away = emptied.model_copy(update={"broker_url": f"redis://127.0.0.1:{free_port()}/0"})
    done = recovery("schedule", "show", "nightly", env=away.environment())
    assert done.returncode == 2 and "no schedule" in done.stderr, done.stderr
