"""Celery's pools as the worker's main process sees them: their processes, the board that their slots write on, their
shared memory, and the exits of their processes.

A prefork pool by itself notices the exit of a process by a pipe that the process holds open. That is closed a moment
before the process can be waited for, and perhaps never if the process has forked; then the pool finds out when it
looks the next time. To have it look often is a fifth of an idle worker's CPU. So `Exits` watches a descriptor of each
process.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Callable, Iterable
from typing import Any

from billiard import heap
from celery.concurrency.prefork import TaskPool as PreforkPool

from recovery.worker.slots.board import Board, SharedBoard, ThreadBoard
from recovery.worker.slots.pool_process import own_pool

LOOK_EVERY = 5.0
"""Seconds between two looks of the pool, which finds by them what could not be watched, or was added to the pool since
the last one and took nobody's place."""
LOOK_OFTEN = 0.25
"""The same where a system has no descriptors of processes."""


class Arena:
    """Memory that a pool's processes share with their parent, which has forked them. billiard's own is a file in a
    temporary folder, which may be full or not writable; to start or to replace a process would fail then."""

    def __init__(self, size: int) -> None:
        self.size, self.buffer = size, mmap.mmap(-1, size)


def share_no_files() -> None:
    """Have the pools of this process share memory without files. Before a pool is made."""
    heap.Arena = Arena


def board_of(worker: Any) -> Board:
    """Return a board for the pool that a worker is about to start, and have its processes look at it."""
    if has_processes(worker):
        board = SharedBoard(lambda: processes(worker), lambda: int(worker.pool.num_processes))
        worker.pool_cls = type("TaskPool", (worker.pool_cls,), {"Pool": own_pool(board)})
        return board
    return ThreadBoard(lambda: int(worker.pool.limit))


def has_processes(worker: Any) -> bool:
    """Whether a worker's pool is one of processes."""
    return issubclass(worker.pool_cls, PreforkPool)


def processes(worker: Any) -> dict[int, int]:
    """{place: pid} of a prefork pool's processes, while there is one."""
    pool = getattr(getattr(worker.pool, "_pool", None), "_pool", None) or []
    return {one.index: one.pid for one in pool if isinstance(one.pid, int) and one.pid != os.getpid()}


class Exits:
    """Watches processes in an event loop of kombu's. Call it where that loop runs, or while it does not.

    `pids` returns those to watch now, all of them our children; `ended` is called when one of them can be waited for,
    and with each look.
    """

    def __init__(self, hub: Any, pids: Callable[[], Iterable[int]], ended: Callable[[], object]) -> None:
        self._hub, self._pids, self._ended = hub, pids, ended
        self._descriptors: dict[int, int] = {}

    def start(self) -> None:
        """Watch from now on, and have the pool look again and again once the loop runs: before that it can't."""
        self._hub.call_repeatedly(LOOK_EVERY if _can_watch() else LOOK_OFTEN, self.look)
        self._watch_all()

    def loop_begins(self) -> None:
        """Watch in a loop that begins. A loop begins with each new connection to the broker, and watches nothing
        yet."""
        self._watch_all()  # a descriptor of one that has ended in between is readable

    def look(self) -> None:
        """Have the pool look at its processes, and watch new ones."""
        self._ended()
        self._watch_all()

    def _watch_all(self, but: int | None = None) -> None:
        pids = set(self._pids()) - {but}
        for pid in self._descriptors.keys() - pids:
            self._forget(pid)
        for pid in pids:
            with contextlib.suppress(AttributeError, OSError):  # not this system or container, or too many are open
                self._watch(pid)

    def _watch(self, pid: int) -> None:
        if pid not in self._descriptors:
            self._descriptors[pid] = os.pidfd_open(pid)
        if self._descriptors[pid] not in self._hub.readers:  # a loop that begins has none
            self._hub.add_reader(self._descriptors[pid], self._one_ended, pid)

    def _one_ended(self, pid: int) -> None:
        self._forget(pid)  # it stays readable
        self._ended()
        # What came in its place. Not itself: a pool that closes leaves it, and it would be readable for ever.
        self._watch_all(but=pid)

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
