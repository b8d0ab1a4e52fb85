"""A process of Celery's prefork pool: how long it serves, which signals end it, and that its tasks may have children.

- A process serves until it has run `--max-tasks-per-child` tasks, or has `--max-memory-per-child`. Celery counts
  messages. A slot runs many tasks for one message, so Celery's count alone would let a process run hundreds of tasks
  over its limit.
- Signals that are meant for its worker do not end it. Many supervisors signal all processes of a service at once
  (systemd by default, supervisor with `stopasgroup`). Then the main process gives the running tasks their grace, so a
  pool process must go on. It can't see who sent a signal. So a pool process that gets SIGTERM looks at the board for
  CONFIRM_TIMEOUT: if the worker was told to end as well, the signal is ignored. Otherwise it was for this process
  alone, which then ends. SIGHUP never ends a pool process. Handlers are functions, not SIG_IGN: what an actor starts
  would ignore these signals, too.
- Tasks may start children by `multiprocessing`. Python refuses children to a daemonic process, which a pool's
  processes are in its eyes: billiard, by which Celery forks them, puts its own object in the place of Python's. Python
  forbids it because such children would be orphaned. Here they are not: each child that is forked waits for the end of
  its parent in a thread, and ends with it. Children by `spawn` and `forkserver`, as subprocesses, are ended where the
  worker itself ends a process of its pool. Nobody ends them if another program kills that process.
"""

from __future__ import annotations

import _thread
import multiprocessing
import multiprocessing.process
import os
import signal
import sys
import threading
from collections.abc import Callable
from multiprocessing import util
from types import FrameType
from typing import Any

from billiard import process as of_billiard
from billiard.compat import mem_rss
from billiard.pool import EX_RECYCLE
from celery.concurrency import asynpool

from recovery.threads import poll
from recovery.worker.slots.board import SharedBoard

CONFIRM_TIMEOUT = 1.0
"""Seconds. The main process notes that it was told to end within milliseconds, unless its machine is very busy."""
LOOK_EVERY = 0.02
Handler = Callable[[int, FrameType | None], object]
_OF_THE_WORKER = multiprocessing.current_process()
"""Python's object of the worker's own process, before a pool is forked."""
_HELD = threading.local()
"""The signals that a thread which forks held before."""


def own_pool(board: SharedBoard) -> type[asynpool.AsynPool]:
    """Return the class of a pool whose slots write on this board."""

    class PoolProcess(asynpool.Worker):  # type: ignore[misc]
        """What runs in each process."""

        wait_for_job: Callable[..., Any]

        def after_fork(self) -> None:
            super().after_fork()
            OwnLifetime.lifetime = Lifetime(self.maxtasks, self.max_memory_per_child)
            OwnSignals(board).install()

        def _make_child_methods(self, *args: Any, **options: Any) -> None:
            super()._make_child_methods(*args, **options)
            self.wait_for_job = _until_over(self.wait_for_job)

    class Pool(asynpool.AsynPool):  # type: ignore[misc]
        """What the main process has of them."""

        Worker = PoolProcess

        def terminate_job(self, *args: Any, **options: Any) -> None:
            board.end_at_once()
            super().terminate_job(*args, **options)

        def terminate(self) -> None:
            board.end_at_once()
            super().terminate()

    return Pool


def _until_over(wait_for_job: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that waits for a message, and ends a process that has reached a limit."""

    def wait(*args: Any, **options: Any) -> Any:
        if OwnLifetime.lifetime.is_over:
            raise SystemExit(EX_RECYCLE)  # as billiard ends a process at its own limits; messages go to the next one
        return wait_for_job(*args, **options)

    return wait


class Lifetime:
    """The limits of one pool process, and how many tasks it has run."""

    def __init__(self, max_tasks: int | None = None, max_kilobytes: int | None = None) -> None:
        self._max_tasks, self._max_kilobytes = max_tasks, max_kilobytes
        self._tasks = 0

    def note_task(self) -> None:
        """Count a task that is about to run."""
        self._tasks += 1

    @property
    def is_over(self) -> bool:
        """Whether this process has reached a limit: it takes no more tasks, and ends after what it has claimed."""
        if self._max_tasks and self._tasks >= self._max_tasks:
            return True
        # A limit below what an idle process has: each runs one batch, rather than none for ever.
        return bool(self._max_kilobytes and self._tasks) and mem_rss() > self._max_kilobytes


class OwnLifetime:
    """Holds the lifetime of this pool process. Any other process has no limits."""

    lifetime = Lifetime()


class OwnSignals:
    """The signal handlers of one pool process."""

    def __init__(self, board: SharedBoard) -> None:
        self._board, self._pid = board, os.getpid()
        self._end: Handler | None = None
        self._asking = self._is_meant = False

    def install(self) -> None:
        """Handle SIGTERM and SIGHUP from here on. Call it in the main thread, after the pool has set its handlers."""
        before = signal.getsignal(signal.SIGTERM)
        assert callable(before), "billiard handles SIGTERM in each process of a pool"
        self._end = before
        signal.signal(signal.SIGTERM, self._on_term)
        signal.signal(signal.SIGHUP, self._on_hangup)

    def _on_term(self, number: int, frame: FrameType | None) -> None:
        assert self._end is not None
        if self._is_meant or self._board.ends_at_once or os.getpid() != self._pid:  # another pid: an actor forked
            self._end(number, frame)
        elif self._board.takes_more and not self._asking:
            self._asking = True
            try:
                # Not by `threading`: this handler may have interrupted it while it holds its lock.
                _thread.start_new_thread(self._ask, ())
            except RuntimeError:  # no more threads just now: nobody can ask
                self._end(number, frame)

    def _on_hangup(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._pid:
            assert self._end is not None
            self._end(number, frame)

    def _ask(self) -> None:
        """Send the signal again unless the worker turns out to end as well."""
        poll(lambda: not self._board.takes_more, CONFIRM_TIMEOUT, LOOK_EVERY)
        self._asking = False
        if self._board.takes_more or self._board.ends_at_once:
            self._is_meant = True
            os.kill(self._pid, signal.SIGTERM)


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
    """Start the thread that ends this process with its parent. Runs in each child that multiprocessing forks, and in
    its children."""
    threading.Thread(target=_wait_for_parent, name="end of parent", daemon=True).start()


def _wait_for_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None, "multiprocessing has forked this process"
    parent.join()
    os.kill(os.getpid(), signal.SIGKILL)
