"""Celery's pools as the worker's main process sees them: their processes, their board, their shared memory, and the
exits of their processes.

A prefork pool itself notices the exit of a process by a pipe that the process holds open. The pipe closes a moment
before the process can be waited for, and never if a child of the process keeps it open. The pool then notices at its
next look, and frequent looks would cost much CPU time in an idle worker. So `Exits` watches a descriptor of each
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
"""Seconds between two looks of the pool. A look finds the exits of processes that could not be watched, or that were
added without replacing another since the last look."""
LOOK_OFTEN = 0.25
"""Seconds between two looks on a system without process descriptors."""


class Arena:
    """Memory that a pool's processes share with their parent, which forked them. billiard's own memory is a file in a
    temporary folder. If that folder were full or not writable, no process could be started or replaced."""

    def __init__(self, size: int) -> None:
        self.size, self.buffer = size, mmap.mmap(-1, size)


def share_no_files() -> None:
    """Make the pools of this process share memory without files. Call it before a pool is made."""
    heap.Arena = Arena


def board_of(worker: Any) -> Board:
    """Return a board for the pool that a worker is about to start, and make the pool's processes use the board."""
    if has_processes(worker):
        board = SharedBoard(lambda: processes(worker), lambda: int(worker.pool.num_processes))
        worker.pool_cls = type("TaskPool", (worker.pool_cls,), {"Pool": own_pool(board)})
        return board
    return ThreadBoard(lambda: int(worker.pool.limit))


def has_processes(worker: Any) -> bool:
    """Return whether a worker's pool consists of processes."""
    return issubclass(worker.pool_cls, PreforkPool)


def processes(worker: Any) -> dict[int, int]:
    """Return {place: process id} of a prefork pool's processes; empty while there is no pool."""
    pool = getattr(getattr(worker.pool, "_pool", None), "_pool", None) or []
    return {
        process.index: process.pid for process in pool if isinstance(process.pid, int) and process.pid != os.getpid()
    }


class Exits:
    """A watch over processes in an event loop of kombu's. Call its methods in that loop, or while it does not run.

    Args:
        hub: The event loop.
        pids: Returns the ids of the processes to watch now, all of them children of this process.
        ended: Called when one of them can be waited for, and with each look.
    """

    def __init__(self, hub: Any, pids: Callable[[], Iterable[int]], ended: Callable[[], object]) -> None:
        self._hub, self._pids, self._ended = hub, pids, ended
        self._descriptors: dict[int, int] = {}

    def start(self) -> None:
        """Watch from now on, and make the pool look repeatedly once the loop runs. It can't look before."""
        self._hub.call_repeatedly(LOOK_EVERY if _can_watch() else LOOK_OFTEN, self.look)
        self._watch_all()

    def loop_begins(self) -> None:
        """Watch in a new loop. Each new connection to the broker begins a loop, which watches nothing yet."""
        self._watch_all()  # the descriptor of a process that has ended in between is readable

    def look(self) -> None:
        """Make the pool look at its processes, and watch new processes."""
        self._ended()
        self._watch_all()

    def _watch_all(self, except_pid: int | None = None) -> None:
        pids = set(self._pids()) - {except_pid}
        for pid in self._descriptors.keys() - pids:
            self._forget(pid)
        for pid in pids:
            # the system or container has no such descriptors, or too many files are open
            with contextlib.suppress(AttributeError, OSError):
                self._watch(pid)

    def _watch(self, pid: int) -> None:
        if pid not in self._descriptors:
            self._descriptors[pid] = os.pidfd_open(pid)
        if self._descriptors[pid] not in self._hub.readers:  # a new loop watches none
            self._hub.add_reader(self._descriptors[pid], self._process_ended, pid)

    def _process_ended(self, pid: int) -> None:
        self._forget(pid)  # its descriptor stays readable
        self._ended()
        # Watch the process that replaced it. Not the ended process itself: a closing pool keeps it in its list, and its
        # descriptor would be readable for ever.
        self._watch_all(except_pid=pid)

    def _forget(self, pid: int) -> None:
        descriptor = self._descriptors.pop(pid, None)
        if descriptor is not None:
            # before `close`, because a copy of the descriptor in a later process of the pool keeps it registered
            self._hub.remove(descriptor)
            os.close(descriptor)


def _can_watch() -> bool:
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):
        return False
    return True
