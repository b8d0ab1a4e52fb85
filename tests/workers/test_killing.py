"""Killing one process and no other: what it does between the look and the signal counts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.waiting import wait_until
from workers.killing import kill_if

STARTS = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
shell = subprocess.Popen(["/bin/sh", "-c", "sleep 600 & echo $! ; wait"], stdout=subprocess.PIPE, text=True)
started = [shell.pid, int(shell.stdout.readline())]
open(sys.argv[1] + ".new", "w").write(" ".join(map(str, started)))
os.rename(sys.argv[1] + ".new", sys.argv[1])
time.sleep(600)
"""


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "600"]) as child:
        yield child
        child.kill()


def test_it_and_all_that_it_started_are_killed(tmp_path: Path) -> None:
    told = tmp_path / "told"
    child = subprocess.Popen([sys.executable, "-c", STARTS, str(told)])
    wait_until(told.exists, 20, "what it started")
    started = [psutil.Process(int(pid)) for pid in told.read_text().split()]
    assert kill_if(child.pid, lambda: True)
    assert child.wait(10) == -signal.SIGKILL
    wait_until(lambda: not any(lives(one) for one in started), 10, "the end of what it started")


def lives(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def test_it_stands_still_while_it_is_looked_at_and_goes_on_if_it_is_not_meant(child: subprocess.Popen[bytes]) -> None:
    process, seen = psutil.Process(child.pid), []

    def still() -> bool:
        seen.append(process.status())
        return False

    assert not kill_if(child.pid, still)
    assert seen == [psutil.STATUS_STOPPED]
    wait_until(lambda: process.status() == psutil.STATUS_SLEEPING, 10, "it to go on")


def test_a_look_that_fails_lets_it_go_on(child: subprocess.Popen[bytes]) -> None:
    with pytest.raises(AssertionError, match="not to be looked at"):
        kill_if(child.pid, unreached)
    wait_until(lambda: psutil.Process(child.pid).status() == psutil.STATUS_SLEEPING, 10, "it to go on")


def test_who_has_ended_is_not_looked_at(child: subprocess.Popen[bytes]) -> None:
    """A zombie, and a number that is nobody's."""
    child.kill()
    wait_until(lambda: psutil.Process(child.pid).status() == psutil.STATUS_ZOMBIE, 10, "its end")
    assert not kill_if(child.pid, unreached)
    child.wait()
    assert not kill_if(child.pid, unreached)


def test_nobody_but_our_children_is_killed() -> None:
    assert not kill_if(os.getppid(), unreached)
    with subprocess.Popen(["/bin/sh", "-c", "sleep 600 & echo $!; wait"], stdout=subprocess.PIPE, text=True) as shell:
        assert shell.stdout is not None
        grandchild = int(shell.stdout.readline())
        assert not kill_if(grandchild, unreached)
        assert kill_if(shell.pid, lambda: True)


def unreached() -> bool:
    raise AssertionError("not to be looked at")
