"""What a worker's processes count while their folder is full, is removed, or can't be made: work goes on."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from recovery.metrics import multiprocess
from recovery.settings import Settings
from tests.cli.command import ROOT, command
from tests.cli.command import environment as environment_of_command

COUNT = """
import recovery.worker
from recovery.worker import counters as file
from recovery import metrics
file.LOOK_EVERY = -1.0
def count(n=1): metrics.REQUEUES.labels("DUE", "pack").inc(n)
def step():
    print("ready", flush=True)
    input()
"""


def environment(folder: Path, **more: str) -> dict[str, str]:
    env = {key: value for key, value in os.environ.items() if key != "PROMETHEUS_MULTIPROC_DIR"}
    return env | {"TMPDIR": str(folder), "PYTHONPATH": str(ROOT)} | more


class Program:
    """A program that counts, in steps: `step()` in its code waits for a call of `go`."""

    def __init__(self, code: str, env: dict[str, str], *before: str) -> None:
        self._process = subprocess.Popen(
            [*before, sys.executable, "-c", COUNT + code],
            env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def wait(self) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n", self._process.communicate()[1]

    def go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def end(self) -> tuple[int, str, str]:
        out, err = self._process.communicate(timeout=30)
        return self._process.returncode, out, err


def counted(folder: Path) -> float:
    return multiprocess.total(multiprocess.collect(folder), "recovery_requeues")


def test_a_removed_folder_is_made_anew_with_all_counts(tmp_path: Path) -> None:
    program = Program("count(3); step(); count(); step()", environment(tmp_path))
    program.wait()
    (folder,) = tmp_path.iterdir()
    assert counted(folder) == 3
    shutil.rmtree(folder)
    assert counted(folder) == 0
    program.go()
    program.wait()
    assert counted(folder) == 4 and folder.stat().st_mode & 0o777 == 0o700
    program.go()
    assert program.end()[0] == 0


def test_a_process_that_is_forked_after_the_folder_was_removed_counts(tmp_path: Path) -> None:
    """Such as one that takes the place of a pool process."""
    code = "count(3); step()\nif not os.fork(): count(5); os._exit(0)\nprint(os.wait()[1])"
    program = Program("import os\n" + code, environment(tmp_path))
    program.wait()
    (folder,) = tmp_path.iterdir()
    shutil.rmtree(folder)
    program.go()
    assert program.end() == (0, "0\n", "")
    assert counted(folder) == 5


def test_a_folder_that_somebody_else_made_instead_is_not_written_to(tmp_path: Path) -> None:
    """Anybody may, in a temporary folder; a link in it would lead to a file of ours."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    program = Program("count(3); step(); count()", environment(tmp_path))
    program.wait()
    (folder,) = tmp_path.glob("recovery-metrics-*")
    shutil.rmtree(folder)
    folder.symlink_to(elsewhere)
    program.go()
    code, _, err = program.end()
    assert code == 0 and "it belongs to another user" in err
    assert not list(elsewhere.iterdir())


def test_a_file_that_is_cut_off_is_written_anew(tmp_path: Path) -> None:
    """As a process leaves it whose machine lost its power."""
    (tmp_path / "counter_1-0.db").write_bytes(b"\xff\xff\xff\x00" + b"x" * 20)
    code = "from recovery.worker.counters import CountedValue\n"
    code += "import recovery.worker.counters as values\nvalues.who_counts = lambda: '1-0'\ncount(2); count()"
    program = Program(code, environment(tmp_path, PROMETHEUS_MULTIPROC_DIR=str(tmp_path)))
    assert program.end()[0] == 0
    assert counted(tmp_path) == 3


def test_a_successor_goes_on_with_what_its_predecessor_counted(tmp_path: Path) -> None:
    for _ in range(2):
        code = "import recovery.worker.counters as values\nvalues.who_counts = lambda: '1-0'\ncount(2)"
        program = Program(code, environment(tmp_path, PROMETHEUS_MULTIPROC_DIR=str(tmp_path)))
        assert program.end()[0] == 0
    assert counted(tmp_path) == 4


def test_many_counts_make_a_file_grow(tmp_path: Path) -> None:
    code = "for n in range(500): metrics.REQUEUES.labels('DUE', f'\u00e4\u00f6\u00fc\\U0001f600{n}' * 9).inc()"
    program = Program(code, environment(tmp_path, PROMETHEUS_MULTIPROC_DIR=str(tmp_path)))
    assert program.end() == (0, "", "")
    assert counted(tmp_path) == 500


IN_MEMORY = """
import os
count(3)
print(metrics.REQUEUES.labels("DUE", "pack")._value.get(), "PROMETHEUS_MULTIPROC_DIR" in os.environ)
"""
FULL = 'mount -t tmpfs -o size=256k tmpfs "$TMPDIR" && exec "$@"'
FILL = """
def fill():
    with open(os.environ["TMPDIR"] + "/fill", "ab", buffering=0) as file:
        try:
            while True: file.write(b"x" * 4096)
        except OSError: pass
"""


@pytest.fixture
def small() -> list[str]:
    """A command that runs another with a temporary folder of 256 KiB, which nobody else sees."""
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", FULL, "sh"]
    try:
        able = subprocess.run(
            [*command, "true"], env={**os.environ, "TMPDIR": "/mnt"}, capture_output=True, check=False
        )
    except FileNotFoundError:
        pytest.skip("there is no program unshare")
    if able.returncode:
        pytest.skip(f"no small folder can be mounted here: {able.stderr.decode()}")
    return command


USE = """
from recovery.metrics import multiprocess
for n in range(2000):
    metrics.REQUEUES.labels("DUE", f"actor-{n % 200}" + "x" * 150).inc()
print(multiprocess.total(multiprocess.collect(os.environ["PROMETHEUS_MULTIPROC_DIR"]), "recovery_requeues"))
os.remove(os.environ["TMPDIR"] + "/fill")
count(10)
print(multiprocess.total(multiprocess.collect(os.environ["PROMETHEUS_MULTIPROC_DIR"]), "recovery_requeues"))
"""


@pytest.mark.parametrize(
    ("code", "in_between"),
    [(f"fill()\n{COUNT}{USE}", 0), (f"{COUNT}count(1); fill()\n{USE}", 1)],
    ids=["at first", "later"],
)
def test_a_full_folder_ends_nothing_and_loses_no_count(
    tmp_path: Path, small: list[str], code: str, in_between: int
) -> None:
    """A block of a mapped file that finds no room is a SIGBUS."""
    env = environment(tmp_path, PROMETHEUS_MULTIPROC_DIR=str(tmp_path / "counts"))
    command = [*small, sys.executable, "-c", f"import os{FILL}{code}"]
    run = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 0, run
    while_full, after = map(float, run.stdout.split())
    assert in_between <= while_full < 2000 and after == in_between + 2010
    assert run.stderr.count("tasks are not affected. Free space there") == 1


def test_no_files_are_written_that_nobody_reads(tmp_path: Path) -> None:
    program = Program(IN_MEMORY, environment(tmp_path, RECOVERY_METRICS_PORT="0"))
    assert program.end() == (0, "3.0 False\n", "")
    assert not list(tmp_path.iterdir())


def test_a_folder_that_can_not_be_made_is_named_and_does_no_harm(tmp_path: Path) -> None:
    none = "/proc/nothing/here"
    code, out, err = Program(IN_MEMORY, environment(tmp_path, PROMETHEUS_MULTIPROC_DIR=none)).end()
    assert (code, out) == (0, "3.0 True\n")
    assert f"could not write this process's metrics to {none}/" in err and "(No such file or directory)" in err


@pytest.mark.thorough
def test_nor_to_a_command(settings: Settings) -> None:
    """Whose counts go by way of MongoDB: as files they would be counted twice."""
    env = {**settings.environment(), "PROMETHEUS_MULTIPROC_DIR": "/proc/nothing/here"}
    run = subprocess.run(
        command("init"), env=environment_of_command(env), capture_output=True, text=True, timeout=60, check=False
    )
    assert (run.returncode, run.stderr) == (0, "")


def test_without_a_temporary_folder_counts_are_kept_in_memory(tmp_path: Path) -> None:
    none = "import tempfile\ndef none(): raise FileNotFoundError(2, 'No usable temporary directory')\n"
    code = f"{none}tempfile.gettempdir = none\n{COUNT}{IN_MEMORY}"
    run = subprocess.run(
        [sys.executable, "-c", code], env=environment(tmp_path), capture_output=True, text=True, timeout=30, check=False
    )
    assert (run.returncode, run.stdout, run.stderr) == (0, "3.0 False\n", "")


@pytest.mark.parametrize("lock", ["CountedValue._lock", "metrics.REQUEUES._lock", "REGISTRY._lock"])
def test_a_thread_that_counts_while_another_forks_does_not_stop_what_is_forked(tmp_path: Path, lock: str) -> None:
    """The lock that it held would be held there for ever."""
    code = """
import os, threading
from prometheus_client import REGISTRY
from recovery.worker.counters import CountedValue
held, go_on = threading.Event(), threading.Event()
def hold():
    with LOCK:
        held.set()
        go_on.wait(10)
threading.Thread(target=hold).start()
held.wait(10)
threading.Timer(0.05, go_on.set).start()
pid = os.fork()
if pid == 0:
    import signal
    signal.alarm(10)
    count()
    list(REGISTRY.collect())
    os._exit(0)
print(os.waitpid(pid, 0)[1])
"""
    assert Program(code.replace("LOCK", lock), environment(tmp_path)).end() == (0, "0\n", "")
