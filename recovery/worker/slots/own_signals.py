"""Which signals end a pool process: those that mean it, and none that mean its worker.

Many supervisors signal all processes of a service at once (systemd by default, supervisor with `stopasgroup`). Then
the main process gives the running tasks their grace, so a pool process must go on. It can't see who sent a signal. So a
pool process that gets SIGTERM looks at the board for CONFIRM_TIMEOUT: if the worker was told to end as well, the signal
is ignored. Otherwise it was for this process alone, which then ends. SIGHUP never ends a pool process.

Handlers are functions, not SIG_IGN: what an actor starts would ignore these signals, too.
"""

from __future__ import annotations

import _thread
import os
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType

from recovery.worker.slots.board import SharedBoard

CONFIRM_TIMEOUT = 1.0
"""Seconds. The main process notes that it was told to end within milliseconds, unless its machine is very busy."""
LOOK_EVERY = 0.02

Handler = Callable[[int, FrameType | None], object]


class OwnSignals:
    """The handlers of one pool process."""

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
        deadline, pause = time.monotonic() + CONFIRM_TIMEOUT, threading.Event()
        while self._board.takes_more and time.monotonic() < deadline:
            pause.wait(LOOK_EVERY)
        self._asking = False
        if self._board.takes_more or self._board.ends_at_once:
            self._is_meant = True
            os.kill(self._pid, signal.SIGTERM)
