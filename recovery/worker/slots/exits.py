"""Tells a prefork pool at once that one of its processes has ended: by a descriptor of each, in the worker's loop.

The pool itself waits for a pipe that each process holds open. That is closed a moment before the process can be waited
for, and by a program that the process started perhaps never; then the pool finds out when it looks the next time. To
have it look often instead is a fifth of an idle worker's CPU.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

LOOK_EVERY = 1.0
"""Seconds between two looks of the pool: a new process is watched from the next one on."""
LOOK_OFTEN = 0.25
"""The same where a system has no descriptors of processes."""


class Exits:
    """Watches processes in an event loop of kombu's; only to be used in the loop's own thread.

    `pids` are those to watch now, all of them our children that nobody has waited for; `ended` is called when one of
    them can be waited for, and with each look.
    """

    def __init__(self, hub: Any, pids: Callable[[], Iterable[int]], ended: Callable[[], object]) -> None:
        self._hub, self._pids, self._ended = hub, pids, ended
        self._descriptors: dict[int, int] = {}

    def start(self) -> None:
        """Look now, and again and again from here on."""
        interval = LOOK_EVERY if _can_watch() else LOOK_OFTEN
        self._hub.call_repeatedly(interval, self.look)
        self.look()

    def look(self) -> None:
        """Have the pool look, and watch what is new."""
        self._ended()
        pids = set(self._pids())
        for pid in self._descriptors.keys() - pids:
            self._forget(pid)
        for pid in pids:
            self._watch(pid)

    def _watch(self, pid: int) -> None:
        try:
            descriptor = self._descriptors.get(pid) or os.pidfd_open(pid)
        except (AttributeError, OSError):  # not this system, not in this container, or too many are open
            return
        self._descriptors[pid] = descriptor
        if descriptor not in self._hub.readers:  # a new connection to the broker begins with an empty loop
            self._hub.add_reader(descriptor, self._one_ended, pid)

    def _one_ended(self, pid: int) -> None:
        self._forget(pid)  # it stays readable
        self._ended()

    def _forget(self, pid: int) -> None:
        descriptor = self._descriptors.pop(pid, None)
        if descriptor is not None:
            self._hub.remove(descriptor)  # first: a copy that a later process of the pool has keeps it registered
            os.close(descriptor)


def _can_watch() -> bool:
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):
        return False
    return True
