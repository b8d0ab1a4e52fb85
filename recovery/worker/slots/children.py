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

_HELD = threading.local()
"""The signals that a thread which forks held before."""


def allow_children(**_: Any) -> None:
    """Let this process of a pool have children. Its name stays, which each line of its log has."""
    _OF_THE_WORKER.name = of_billiard.current_process().name
    multiprocessing.process._current_process = _OF_THE_WORKER  # type: ignore[attr-defined]
    util.register_after_fork(sys.modules[__name__], _end_with_parent)
    os.register_at_fork(before=_hold_sigterm, after_in_parent=_let_sigterm, after_in_child=_end_by_sigterm)


def _hold_sigterm() -> None:
    """Hold SIGTERM while this thread forks. The pool's handler raises SystemExit, which Python ignores in a child that
    begins: who ends it at once would wait for it for ever."""
    _HELD.mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


def _let_sigterm() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _HELD.mask)


def _end_by_sigterm() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _let_sigterm()


def _end_with_parent(_module: object) -> None:
    """Runs in each child that multiprocessing forks, and in its children."""
    threading.Thread(target=_wait_for_parent, name="end of parent", daemon=True).start()


def _wait_for_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None, "multiprocessing has forked this process"
    parent.join()
    os.kill(os.getpid(), signal.SIGKILL)
