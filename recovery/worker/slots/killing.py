"""Kill one process of the pool, and no other: the process is stopped while it is checked for the last time.

Between a look at what a process runs and a signal to it, the process may finish its call and begin another. So it is
stopped first, which no process can refuse, then checked again, and only then killed. All this uses a descriptor of the
process, because its process id may belong to another process by then.
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
"""Maximum seconds to wait until a process has stopped. It takes a millisecond, unless the process waits for a disk."""
LOOK_EVERY = 0.001
ROUNDS = 10
"""Maximum number of searches for descendants. Each stops what it finds, so the second usually finds nothing new."""

STOPPED = "T"
"""The state of a process that SIGSTOP has stopped."""


Stopped = dict[int, int | None]
"""{process id: start time, or None if unknown}. Parents come before their children."""


def kill_if(pid: int, still: Callable[[], bool]) -> bool:
    """Kill a child of ours and all its descendants, if `still()` is true while the child is stopped. Return whether it
    was killed.

    A descendant that has made itself independent (a daemon) goes on.
    """
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        stat = _look(pid)
        if stat is None or stat.parent != os.getpid() or stat.state in ENDED:
            return False
        return _stop_and_kill(process, pid, still)
    except ProcessLookupError:
        return False
    finally:
        os.close(process)


def _stop_and_kill(process: int, pid: int, still: Callable[[], bool]) -> bool:
    signal.pidfd_send_signal(process, signal.SIGSTOP)
    is_confirmed = False
    try:
        is_confirmed = _has_stopped(pid) and still()
    finally:
        if not is_confirmed:  # whatever happened during the check, the process must not stay stopped
            signal.pidfd_send_signal(process, signal.SIGCONT)
    if is_confirmed:
        descendants = _stop_descendants(pid)
        signal.pidfd_send_signal(process, signal.SIGKILL)
        kill_all(descendants)
    return is_confirmed


def stop_descendants(known: Iterable[int] = ()) -> Stopped:
    """Stop (SIGSTOP) all descendants of this process. `known` names children, for the case that /proc is hidden. Return
    the stopped processes."""
    return _stop_descendants(os.getpid(), known)


def kill_descendants(stopped: Stopped) -> None:
    """Kill these processes, and all that this process has started since."""
    kill_all({**stopped, **_stop_descendants(os.getpid())})


def kill_all(stopped: Stopped) -> None:
    """Kill each of these processes that still exists. Parents come first, so that none sees the end of a child that it
    waits for."""
    for pid, started in stopped.items():
        # Another program may kill a stopped process, and its process id may belong to another process by now.
        if started is None or ((stat := _look(pid)) is not None and stat.started == started):
            _send(pid, signal.SIGKILL)


def _stop_descendants(pid: int, known: Iterable[int] = ()) -> Stopped:
    """Stop all descendants of a process, in rounds, so that none starts another while they are killed."""
    stopped: Stopped = {}
    for _ in range(ROUNDS):
        descendants: Stopped = {**dict.fromkeys(known), **_descendants(pid)}
        new_pids = descendants.keys() - stopped.keys()
        if not new_pids:
            break
        for descendant in descendants:
            if descendant in new_pids:
                _send(descendant, signal.SIGSTOP)
        stopped |= descendants
    return stopped


def _send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _descendants(pid: int) -> dict[int, int]:
    """Return {process id: start time} of all descendants of a process, the nearest first."""
    processes = _processes()
    descendants, generation = dict[int, int](), {pid}
    while generation:
        generation = {
            child for child, process in processes.items() if process.parent in generation
        } - descendants.keys()
        descendants |= {child: processes[child].started for child in generation}
    return descendants


def _processes() -> dict[int, ProcessStat]:
    """Return all processes; none if /proc is hidden."""
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


def _has_stopped(pid: int) -> bool:
    """Wait until a process has stopped. Return False if it is gone, or does not stop in time."""

    def state() -> str:
        stat = _look(pid)
        state = ENDED[0] if stat is None else stat.state
        return state if state in ENDED + STOPPED else ""

    return poll(state, STOPS_TIMEOUT, LOOK_EVERY) == STOPPED
