"""Killing one process of the pool, and no other: it stands still while the last look is taken.

Between a look at what it runs and a signal to it, a process may end what it runs and begin something else. So it is
stopped first, which no process can refuse, then looked at once more, and only then killed. All this by a descriptor of
the process, since its number may be another's by then.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterable
from pathlib import Path

from recovery.threads import poll
from recovery.worker.identity import ENDED, ProcessStat, process_stat

STOPS_TIMEOUT = 1.0
"""Seconds. A process stands still within a millisecond, unless it waits for a disk."""
LOOK_EVERY = 0.001
ROUNDS = 10
"""Looks for what a process has started: each stops what it finds, so the second one mostly finds nothing new."""

STOPPED = "T"
"""The state of a process that SIGSTOP holds."""


Stopped = dict[int, int | None]
"""{pid: when it was started, if that can be told}; who started another comes before it."""


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
        if found is None or found.parent != os.getpid() or found.state in ENDED:
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


def stop_descendants(known: Iterable[int] = ()) -> Stopped:
    """Stop (SIGSTOP) all that this process started, and what that started; `known` names children if /proc is hidden
    from us."""
    return _stop_descendants(os.getpid(), known)


def kill_descendants(stopped: Stopped) -> None:
    """Kill these, and all that this process has started since."""
    kill_all({**stopped, **_stop_descendants(os.getpid())})


def kill_all(stopped: Stopped) -> None:
    """Kill each process that is still there, parents first, so that none sees the end of what it waits for."""
    for pid, started in stopped.items():
        # One that stands still can be killed by others, and its number be another's by now.
        if started is None or ((found := _look(pid)) is not None and found.started == started):
            _send(pid, signal.SIGKILL)


def _stop_descendants(pid: int, known: Iterable[int] = ()) -> Stopped:
    """Stop all descendants of a process, in rounds, so that none starts another while they are killed."""
    stopped: Stopped = {}
    for _ in range(ROUNDS):
        found: Stopped = {**dict.fromkeys(known), **_descendants(pid)}
        new = found.keys() - stopped.keys()
        if not new:
            break
        for one in found:
            if one in new:
                _send(one, signal.SIGSTOP)
        stopped |= found
    return stopped


def _send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _descendants(pid: int) -> dict[int, int]:
    """Return {pid: start time} of all that a process started, and of what that started, the nearest first."""
    there = _processes()
    found, newest = dict[int, int](), {pid}
    while newest:
        newest = {one for one, process in there.items() if process.parent in newest} - found.keys()
        found |= {one: there[one].started for one in newest}
    return found


def _processes() -> dict[int, ProcessStat]:
    """Return all processes; none if /proc is hidden from us."""
    try:
        pids = [int(folder.name) for folder in Path("/proc").iterdir() if folder.name.isdecimal()]
    except OSError:
        return {}
    return {pid: process for pid in pids if (process := _look(pid)) is not None}


def _look(pid: int) -> ProcessStat | None:
    try:
        return process_stat(pid)
    except OSError:
        return None


def _stands_still(pid: int) -> bool:
    """Wait until a process stands still. Return False if it is gone, or does not stand still in time."""

    def state() -> str:
        found = _look(pid)
        state = ENDED[0] if found is None else found.state
        return state if state in ENDED + STOPPED else ""

    return poll(state, STOPS_TIMEOUT, LOOK_EVERY) == STOPPED
