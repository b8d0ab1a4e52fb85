"""A process of Celery's prefork pool: how long it serves, which signals end it, and why its tasks may have children.

- A process serves until it has run `--max-tasks-per-child` tasks, or uses `--max-memory-per-child`. Celery counts
  messages, but a slot runs many tasks for one message, so a process would run hundreds of tasks over its limit. So
  tasks are counted here.
- Signals that are meant for its worker do not end it. Many supervisors signal all processes of a service at once
  (systemd by default, supervisor with `stopasgroup`). Then the main process gives the running tasks their grace, so a
  pool process must go on. It can't see who sent a signal. So a pool process that gets SIGTERM watches the board for
  CONFIRM_TIMEOUT: if the worker was told to end as well, the process ignores the signal; otherwise the signal was for
  this process alone, which ends. SIGHUP never ends a pool process. The handlers are functions and not SIG_IGN, because
  programs that an actor starts would inherit SIG_IGN.
- Tasks may start children with `multiprocessing`. Python refuses children to daemonic processes, because these would be
  orphaned, and takes pool processes for daemonic: billiard, with which Celery forks them, replaces Python's process
  object. Here no child is orphaned: each forked child waits in a thread for the end of its parent, and ends with it.
  When the worker ends a pool process, it also ends children by `spawn` and `forkserver`, and subprocesses. Nobody ends
  these if another program kills the pool process.
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
"""Seconds that a pool process waits for the main process to note that it was told to end. This takes milliseconds,
unless the machine is very busy."""
LOOK_EVERY = 0.02
Handler = Callable[[int, FrameType | None], object]
_PARENT_PROCESS = multiprocessing.current_process()
"""Python's object of the worker's own process, from before the pool is forked."""
_SIGNAL_MASK = threading.local()
"""The signal mask of a forking thread, from before the fork, as attribute `mask`."""


def own_pool(board: SharedBoard) -> type[asynpool.AsynPool]:
    """Return the class of a pool whose slots write on this board."""

    class PoolProcess(asynpool.Worker):  # type: ignore[misc]
        """The code that runs in each process."""

        wait_for_job: Callable[..., Any]

        def after_fork(self) -> None:
            super().after_fork()
            OwnLifetime.lifetime = Lifetime(self.maxtasks, self.max_memory_per_child)
            OwnSignals(board).install()

        def _make_child_methods(self, *args: Any, **options: Any) -> None:
            super()._make_child_methods(*args, **options)
            self.wait_for_job = _until_over(self.wait_for_job)

    class Pool(asynpool.AsynPool):  # type: ignore[misc]
        """The main process's view of these processes."""

        Worker = PoolProcess

        def terminate_job(self, *args: Any, **options: Any) -> None:
            board.end_at_once()
            super().terminate_job(*args, **options)

        def terminate(self) -> None:
            board.end_at_once()
            super().terminate()

    return Pool


def _until_over(wait_for_job: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that waits for a message, or ends a process that has reached a limit."""

    def wait(*args: Any, **options: Any) -> Any:
        if OwnLifetime.lifetime.is_over:
            # as billiard ends a process at its own limits; messages go to the next process
            raise SystemExit(EX_RECYCLE)
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
        """Whether this process has reached a limit. It then takes no more tasks, and ends after its claimed tasks."""
        if self._max_tasks and self._tasks >= self._max_tasks:
            return True
        # If an idle process already exceeds the memory limit, each process runs one batch; otherwise none would ever
        # run any.
        return bool(self._max_kilobytes and self._tasks) and mem_rss() > self._max_kilobytes


class OwnLifetime:
    """The holder of this pool process's lifetime. Any other process has no limits."""

    lifetime = Lifetime()


class OwnSignals:
    """The signal handlers of one pool process."""

    def __init__(self, board: SharedBoard) -> None:
        self._board, self._pid = board, os.getpid()
        self._end: Handler | None = None
        self._asking = self._is_for_this_process = False

    def install(self) -> None:
        """Handle SIGTERM and SIGHUP from now on. Call it in the main thread, after the pool has set its handlers."""
        previous = signal.getsignal(signal.SIGTERM)
        assert callable(previous), "billiard handles SIGTERM in each process of a pool"
        self._end = previous
        signal.signal(signal.SIGTERM, self._on_term)
        signal.signal(signal.SIGHUP, self._on_hangup)

    def _on_term(self, number: int, frame: FrameType | None) -> None:
        assert self._end is not None
        # another pid: an actor forked
        if self._is_for_this_process or self._board.ends_at_once or os.getpid() != self._pid:
            self._end(number, frame)
        elif self._board.takes_more and not self._asking:
            self._asking = True
            try:
                # Not with `threading`: this handler may have interrupted `threading` while it holds its lock.
                _thread.start_new_thread(self._ask, ())
            except RuntimeError:  # the system has no more threads, so nobody can watch the board
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
            self._is_for_this_process = True
            os.kill(self._pid, signal.SIGTERM)


def allow_children(**_: Any) -> None:
    """Let this process of a pool have children. Its name, which each line of its log shows, stays."""
    _PARENT_PROCESS.name = of_billiard.current_process().name
    multiprocessing.process._current_process = _PARENT_PROCESS  # type: ignore[attr-defined]
    util.register_after_fork(sys.modules[__name__], _end_with_parent)
    os.register_at_fork(before=_block_sigterm, after_in_parent=_unblock_sigterm, after_in_child=_default_sigterm)


def _block_sigterm() -> None:
    """Block SIGTERM while this thread forks. The pool's handler raises SystemExit, which Python ignores in a child that
    is just starting. A parent that ends such a child at once would then wait for it for ever."""
    _SIGNAL_MASK.mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


def _unblock_sigterm() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _SIGNAL_MASK.mask)


def _default_sigterm() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _unblock_sigterm()


def _end_with_parent(_module: object) -> None:
    """Start the thread that ends this process with its parent. Runs in each child that multiprocessing forks, and in
    its children."""
    threading.Thread(target=_wait_for_parent, name="end of parent", daemon=True).start()


def _wait_for_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None, "multiprocessing has forked this process"
    parent.join()
    os.kill(os.getpid(), signal.SIGKILL)
