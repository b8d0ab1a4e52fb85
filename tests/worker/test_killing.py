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

from recovery.worker.slots import killing
from recovery.worker.slots.killing import kill_all, kill_descendants, kill_if, stop_descendants
from tests.living import lives
from tests.waiting import wait_until

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
    started = [int(pid) for pid in told.read_text().split()]
    assert kill_if(child.pid, lambda: True)
    assert child.wait(10) == -signal.SIGKILL
    wait_until(lambda: not any(lives(one) for one in started), 10, "the end of what it started")


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


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, signal.Signals]]:
    """The signals that were sent, where 5 has started 3, and that 4; and we 5 and 9."""
    parents, sent = {4: 3, 3: 5, 5: os.getpid(), 9: os.getpid(), 2: 1}, list[tuple[int, signal.Signals]]()
    there = {pid: killing.ProcessStat("S", parent, 100 + pid) for pid, parent in parents.items()}
    monkeypatch.setattr(killing, "_processes", lambda: there)
    monkeypatch.setattr(killing, "_look", there.get)
    monkeypatch.setattr(os, "kill", lambda *signal: sent.append(signal))
    return sent


def test_who_started_another_comes_before_it(sent: list[tuple[int, signal.Signals]]) -> None:
    """Else it sees the end of what it waits for, and takes it for an answer."""
    stopped = stop_descendants()
    assert stopped.keys() == {3, 4, 5, 9}
    kill_all(stopped)
    for number, order in ((signal.SIGSTOP, sent[:4]), (signal.SIGKILL, sent[4:])):
        assert {one for _, one in order} == {number}
        pids = [pid for pid, _ in order]
        assert pids.index(5) < pids.index(3) < pids.index(4)


def test_a_number_that_is_anothers_by_now_is_not_killed(sent: list[tuple[int, signal.Signals]]) -> None:
    kill_all({3: 103, 4: 99, 77: 177})
    assert sent == [(3, signal.SIGKILL)]


def test_what_was_started_since_is_killed_too(sent: list[tuple[int, signal.Signals]]) -> None:
    """And what was stopped and is no descendant any more, since its parent is gone."""
    kill_descendants({2: 102, 3: 103})
    assert {pid for pid, number in sent if number is signal.SIGKILL} == {2, 3, 4, 5, 9}


def test_of_known_children_no_more_is_needed(
    sent: list[tuple[int, signal.Signals]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where /proc is hidden from us."""
    monkeypatch.setattr(killing, "_processes", dict)
    monkeypatch.setattr(killing, "_look", lambda _: None)
    kill_all(stop_descendants([5, 9]))
    assert sent == [(pid, number) for number in (signal.SIGSTOP, signal.SIGKILL) for pid in (5, 9)]
