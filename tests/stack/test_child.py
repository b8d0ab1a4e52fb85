"""A child and all that it started end with us, and no sooner than asked."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from recovery.stack import ChildProcess
from recovery.stack.child import stop_all
from tests.waiting import wait_until

StartChild = Callable[[str], ChildProcess]

TWO_PROCESSES = "sleep 600 & echo started; wait"
DEAF = "trap '' TERM; echo started; while :; do sleep 600; done"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[StartChild]:
    children: list[ChildProcess] = []

    def started(script: str) -> ChildProcess:
        child = ChildProcess("a child", ["sh", "-c", script], tmp_path / "a log" / f"{len(children)}.log")
        children.append(child)
        if "started" in script:
            wait_until(lambda: "started" in child.last_lines(), 10, "the child's first line")
        return child

    yield started
    for child in children:
        child.kill_group()


def lives(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def gone(pids: list[int]) -> bool:
    return not any(lives(pid) for pid in pids)


def test_ends_by_itself(start: StartChild) -> None:
    child = start("echo out; echo err >&2; exit 3")
    assert child.wait(10)
    assert (child.running, child.exit_code) == (False, 3)
    assert child.last_lines() == ["out", "err"]
    child.kill_group()
    assert child.exit_code == 3


def test_log_of_an_earlier_child_is_kept_and_not_shown(tmp_path: Path) -> None:
    for text in ("first", "second"):
        child = ChildProcess("a child", ["echo", text], tmp_path / "log")
        assert child.wait(10)
        child.stop()
        assert child.last_lines() == [text]
    assert (tmp_path / "log").read_text() == "first\nsecond\n"


def test_program_that_is_not_there(tmp_path: Path) -> None:
    child = ChildProcess("a child", ["/no/such/program"], tmp_path / "log")
    assert child.wait(10)
    assert child.exit_code == 127
    assert "/no/such/program" in child.last_lines()[-1]
    child.stop()


def test_stop_is_terminate_first(start: StartChild) -> None:
    child = start("trap 'echo bye; exit 0' TERM; echo started; while :; do sleep 0.01; done")
    child.stop()
    assert child.last_lines()[-1] == "bye"
    assert child.exit_code == 0


def test_stop_kills_the_deaf(start: StartChild) -> None:
    child = start(DEAF)
    pids = child.members()
    child.stop(grace=0.1)
    assert child.exit_code == -signal.SIGKILL
    assert gone(pids)


def test_children_are_stopped_side_by_side(start: StartChild) -> None:
    children = [start(DEAF), start("exit 0"), start(TWO_PROCESSES)]
    wait_until(lambda: not children[1].running, 10, "the one that ends by itself")
    stop_all(children, grace=0.2)
    assert [child.exit_code for child in children] == [-signal.SIGKILL, 0, -signal.SIGTERM]
    assert not any(child.members() for child in children)


def test_kill_leaves_what_the_child_started(start: StartChild) -> None:
    child = start(TWO_PROCESSES)
    wait_until(lambda: len(child.members()) == 2, 10, "both processes")
    child.kill()
    assert (child.running, child.exit_code) == (False, -signal.SIGKILL)
    (orphan,) = child.members()
    child.kill_group()
    assert gone([orphan])


def test_kill_group_kills_all(start: StartChild) -> None:
    child = start(TWO_PROCESSES)
    wait_until(lambda: len(child.members()) == 2, 10, "both processes")
    pids = child.members()
    child.kill_group()
    assert gone(pids)
    child.kill_group()
    child.stop()


def test_own_session_so_the_terminal_does_not_reach_it(start: StartChild) -> None:
    child = start(TWO_PROCESSES)
    assert os.getsid(child.pid) == child.pid != os.getsid(0)


# A shell that runs the tests in the background has them, and so the parent, ignore SIGINT.
PARENT = """
import signal, sys
from pathlib import Path
from recovery.stack import ChildProcess
signal.signal(signal.SIGINT, signal.default_int_handler)
child = ChildProcess("a child", ["sh", "-c", {script!r}], Path(sys.argv[1]))
while "started" not in child.last_lines():
    assert not child.wait(0.02)
print(*child.members(), flush=True)
{then}
"""


def run_parent(tmp_path: Path, then: str) -> subprocess.Popen[str]:
    source = PARENT.format(script=TWO_PROCESSES, then=then)
    command = [sys.executable, "-c", source, str(tmp_path / "log")]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2])


def pids_of(parent: subprocess.Popen[str]) -> list[int]:
    assert parent.stdout is not None
    return [int(pid) for pid in parent.stdout.readline().split()]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_is_left_when_the_parent_is_killed(tmp_path: Path, number: signal.Signals) -> None:
    with run_parent(tmp_path, "child.wait()") as parent:
        pids = pids_of(parent)
        assert pids
        parent.send_signal(number)
        parent.wait(30)
    wait_until(lambda: gone(pids), 10, "the end of the killed parent's children")


def test_nothing_is_left_when_the_parent_forgets(tmp_path: Path) -> None:
    with run_parent(tmp_path, "") as parent:
        pids = pids_of(parent)
        assert parent.wait(30) == 0
    assert gone(pids)


def test_nothing_is_left_though_a_fork_of_the_parent_lives(tmp_path: Path) -> None:
    """A fork has the guard's pipe open; the guard must see the parent's end all the same."""
    then = "import os, time\npid = os.fork()\nprint(pid, flush=True) if pid else None\ntime.sleep(600)"
    with run_parent(tmp_path, then) as parent:
        pids = pids_of(parent)
        (fork,) = pids_of(parent)
        parent.kill()
        wait_until(lambda: gone(pids), 10, "the end of the killed parent's children")
        assert lives(fork)
        os.kill(fork, signal.SIGKILL)


def test_a_killed_guard_is_replaced(tmp_path: Path) -> None:
    then = f"""
import os, psutil
(guard,) = [p for p in psutil.Process().children() if "guard.py" in " ".join(p.cmdline())]
guard.kill()
guard.wait()
second = ChildProcess("second", ["sleep", "600"], Path(sys.argv[1]))
print(second.pid, flush=True)
os.kill(os.getpid(), {int(signal.SIGKILL)})
"""
    with run_parent(tmp_path, then) as parent:
        pids = [*pids_of(parent), *pids_of(parent)]
        parent.wait(30)
    wait_until(lambda: gone(pids), 10, "the end of the killed parent's children")
