"""Process groups, as /proc shows them: who of a group lives, and whether it stands still."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from pathlib import Path

STOPPED = "T"
"""The state of a process that SIGSTOP holds."""
LOOK_EVERY = 0.005
"""Seconds. A signal takes effect within a few milliseconds."""


def states(group: int) -> dict[int, str]:
    """{pid: state} of the processes of a group that are not zombies."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            # The name in brackets may hold anything, so the fields are counted from the last bracket.
            state, _parent, of_group = stat.read_text(errors="replace").rpartition(")")[2].split()[:3]
            if int(of_group) == group and state not in "ZX":
                found[int(stat.parent.name)] = state
    return found


def await_dead(group: int, timeout: float) -> bool:
    """Wait until none of a group lives; False when `timeout` seconds went by."""
    return _await(lambda: not states(group), timeout)


def await_frozen(group: int, timeout: float) -> bool:
    """Wait until all of a group stand still; False when `timeout` seconds went by."""
    return _await(lambda: all(state == STOPPED for state in states(group).values()), timeout)


def _await(reached: Callable[[], bool], timeout: float) -> bool:
    deadline, pause = time.monotonic() + timeout, threading.Event()
    while not reached():
        if time.monotonic() > deadline:
            return False
        pause.wait(LOOK_EVERY)
    return True
