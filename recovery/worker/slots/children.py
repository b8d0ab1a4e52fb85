"""Children that a task starts by `multiprocessing` in a process of a prefork pool.

Python refuses children to a daemonic process, which a pool's processes are in its eyes: billiard, by which Celery forks
them, puts its own object in the place of Python's. Python forbids it because such children would be orphaned. Here they
are not: each one that is forked waits for the end of its parent in a thread, and ends with it, however that ends.

Children by `spawn` and `forkserver`, as subprocesses, are ended where the worker itself ends a process of its pool.
Nobody ends them if another program kills that process.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.process
import os
import signal
import sys
import threading
from multiprocessing import util
from typing import Any

from billiard import process as of_billiard

_OF_THE_WORKER = multiprocessing.current_process()
"""Python's object of the worker's own process, before a pool is forked."""


def allow_children(**_: Any) -> None:
    """Let this process of a pool have children. Its name stays, which each line of its log has."""
    _OF_THE_WORKER.name = of_billiard.current_process().name
    multiprocessing.process._current_process = _OF_THE_WORKER  # type: ignore[attr-defined]
    util.register_after_fork(sys.modules[__name__], _end_with_parent)


def _end_with_parent(_module: object) -> None:
    """Runs in each child that multiprocessing forks, and in its children."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the pool's handler would only raise SystemExit
    threading.Thread(target=_wait_for_parent, name="end of parent", daemon=True).start()


def _wait_for_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None, "multiprocessing has forked this process"
    parent.join()
    os.kill(os.getpid(), signal.SIGKILL)
