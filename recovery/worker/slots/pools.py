"""What is to be known of Celery's pools: their processes, the board that their slots write on, and their memory."""

from __future__ import annotations

import mmap
import os
from typing import Any

from billiard import heap
from celery.concurrency.prefork import TaskPool as PreforkPool

from recovery.worker.slots.board import Board, SharedBoard, ThreadBoard
from recovery.worker.slots.pool_process import own_pool


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
