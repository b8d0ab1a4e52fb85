"""The small init that a worker has in a container."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from recovery import Recovery, Settings
from recovery.cli import first_process
from recovery.stack.child import ChildProcess
from tests.cli.command import command, environment
from tests.waiting import wait_until

# It adopts what others leave, as the first process of a container does.
ADOPTS = (
    "import ctypes, os, sys; assert not ctypes.CDLL(None).prctl(36, 1, 0, 0, 0); os.execv(sys.argv[1], sys.argv[1:])"
)
INIT = [sys.executable, "-c", ADOPTS, sys.executable, "-I", "-S", first_process.__file__]
LEAVES_ORPHANS = """
for number in 1 2 3; do (true & exit 0); done
trap 'exit 7' TERM
echo ready
while :; do read -r _; done
"""
IN_CONTAINER = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc"]
ORPHANS = """
import subprocess

from recovery import Recovery

app = Recovery()


@app.process()
def orphans(count):
    for _ in range(count):
        subprocess.run(["sh", "-c", "true & exit 0"], check=True)
    return count


@app.process()
def zombies():
    states = subprocess.run(["ps", "-eo", "stat="], capture_output=True, text=True, check=True).stdout.split()
    return sum(state.startswith("Z") for state in states)
"""


@contextmanager
def running(script: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [*INIT, "/bin/sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        yield process
    finally:
        for one in psutil.Process(process.pid).children(recursive=True) if process.poll() is None else ():
            one.kill()
        process.kill()
        process.wait()


@pytest.mark.thorough
def test_orphans_are_reaped_and_signals_handed_on() -> None:
    with running(LEAVES_ORPHANS) as init:
        children = psutil.Process(init.pid).children
        wait_until(lambda: len(children()) == 1, 10, "the end of all orphans")
        (program,) = children()
        assert program.cmdline()[0] == "/bin/sh"
        init.terminate()
        assert init.wait(10) == 7


@pytest.mark.thorough
def test_its_exit_code_names_the_signal_that_ended_the_program() -> None:
    with running(LEAVES_ORPHANS) as init:
        wait_until(lambda: len(psutil.Process(init.pid).children()) == 1, 10, "the end of all orphans")
        psutil.Process(init.pid).children()[0].kill()
        assert init.wait(10) == 128 + signal.SIGKILL


def _may_be_contained() -> bool:
    try:
        return subprocess.run([*IN_CONTAINER, "true"], capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


@pytest.mark.cluster
def test_a_worker_that_is_the_first_process_leaves_no_zombies(settings: Settings, tmp_path: Path) -> None:
    if not _may_be_contained():
        pytest.skip("processes here may not have namespaces of their own")
    (tmp_path / "contained.py").write_text(ORPHANS)
    env = environment(settings.environment())
    program = [*IN_CONTAINER, *command("worker", "--app", "contained:app", "--concurrency", "1")]
    worker = ChildProcess("contained", program, tmp_path / "log", env=env, cwd=tmp_path)
    app = Recovery(settings)
    for name in ("orphans", "zombies"):
        app.process(name)(lambda *_: None)
    try:
        assert app.result(app.start("orphans", 5), timeout=60) == 5
        wait_until(lambda: app.result(app.start("zombies"), timeout=20) == 0, 20, "all orphans to be reaped")
        init = psutil.Process(worker.pid).children()[0]
        init.terminate()
        assert worker.wait(20), "\n".join(worker.last_lines())
    finally:
        worker.kill_group()
