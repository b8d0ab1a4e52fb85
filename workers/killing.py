"""Killing one process of the pool, and no other: it stands still while the last look is taken.

Between a look at what it runs and a signal to it, a process may end what it runs and begin something else. So it is
stopped first, which no process can refuse, then looked at once more, and only then killed. All this by a descriptor of
the process, since its number may be another's by then.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

STOPS_WITHIN = 1.0
"""Seconds. A process stands still within a millisecond, unless it waits for a disk."""
LOOK_EVERY = 0.001
ROUNDS = 10
"""Looks for what a process has started: each stops what it finds, so the second one mostly finds nothing new."""

GONE, STOPPED = "ZX", "T"


class _Process(NamedTuple):
    state: str
    parent: int


def kill_if(pid: int, still: Callable[[], bool]) -> bool:
    """Kill a child of ours and all that it started, if `still` says so once it stands still: whether it was killed.

    What it started and what made itself independent of it (a daemon) goes on.
    """
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        found = _look(pid)
        if found is None or found.parent != os.getpid() or found.state in GONE:
            return False
        return _stop_and_kill(process, pid, still)
    except ProcessLookupError:
        return False
    finally:
        os.close(process)


def _stop_and_kill(process: int, pid: int, still: Callable[[], bool]) -> bool:
    signal.pidfd_send_signal(process, signal.SIGSTOP)
    meant = False
    try:
        meant = _stands_still(pid) and still()
    finally:
        if not meant:  # whatever came of the look, it does not stand for ever
            signal.pidfd_send_signal(process, signal.SIGCONT)
    if meant:
        started = _stop_descendants(pid)
        signal.pidfd_send_signal(process, signal.SIGKILL)
        kill_all(started)
    return meant


def kill_descendants() -> None:
    """Kill all that this process started, and what that did."""
    kill_all(_stop_descendants(os.getpid()))


def kill_all(pids: set[int]) -> None:
    """SIGKILL to each that is there."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def _stop_descendants(pid: int) -> set[int]:
    """Have all that a process started stand still, so that none starts another while they are killed."""
    stopped: set[int] = set()
    for _ in range(ROUNDS):
        new = _descendants(pid) - stopped
        if not new:
            break
        for one in new:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(one, signal.SIGSTOP)
        stopped |= new
    return stopped


def _descendants(pid: int) -> set[int]:
    pids = [int(folder.name) for folder in Path("/proc").glob("[0-9]*")]
    parents = {one: process.parent for one in pids if (process := _look(one)) is not None}
    found, newest = set[int](), {pid}
    while newest:
        newest = {one for one, parent in parents.items() if parent in newest} - found
        found |= newest
    return found


def _look(pid: int) -> _Process | None:
    try:
        # The name in brackets may hold anything, so the fields are counted from the last bracket.
        text = (Path("/proc") / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2]
    except OSError:
        return None
    state, parent = text.split()[:2]
    return _Process(state, int(parent))


def _stands_still(pid: int) -> bool:
    deadline, pause = time.monotonic() + STOPS_WITHIN, threading.Event()
    while time.monotonic() < deadline:
        found = _look(pid)
        if found is None or found.state in GONE:
            return False
        if found.state == STOPPED:
            return True
        pause.wait(LOOK_EVERY)
    return False
