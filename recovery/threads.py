"""Background threads of a program, and services that run in them.

The system may refuse a new thread now and allow one later. `ServiceThread.begin` starts a thread when there is first
work for it; a refused thread is no error, because the next work tries again. Until then the caller does the work
itself, or leaves it to its deadline. `ServiceThread.start` is for services that a program can't do without; it raises.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from recovery.log_lines import Seldom

T = TypeVar("T")

log = logging.getLogger(__name__)
_limited_log = Seldom(log, every=60.0)

RETRY = 1.0
"""Seconds until a failed step runs again, unless its service decides otherwise."""


def try_start(thread: threading.Thread) -> bool:
    """Start a thread. Return whether the system allowed it. Does not raise."""
    try:
        thread.start()
    except RuntimeError as error:  # this user or container may start no more threads now
        _limited_log.warning("no thread for %s (%s)", thread.name, error)
        return False
    return True


def poll(look: Callable[[], T], timeout: float, every: float) -> T:
    """Call `look` every `every` seconds until its result is true or `timeout` seconds have passed. Return the last
    result."""
    deadline, pause = time.monotonic() + timeout, threading.Event()
    while not (result := look()) and time.monotonic() < deadline:
        pause.wait(every)
    return result


class ServiceThread:
    """A daemon thread that runs a step repeatedly until it is stopped.

    `step` returns the seconds until it runs again, or None to run only when it is woken. If it raises an error,
    `failed` is called with the error, and returns the same. By default the error is logged, at most once a minute, and
    the step runs again after RETRY seconds. Therefore no error ends the thread.

    A wake-up is never lost: if one comes while the step runs, the step runs once more. `apart` is the minimum number of
    seconds between two steps, however often the service is woken. The first step runs `first` seconds after the start;
    if `first` is None, it runs when the service is woken.

    A thread does not survive a fork. In the child the service does not run until `start` or `begin` is called there.
    """

    def __init__(
        self,
        name: str,
        step: Callable[[], float | None],
        failed: Callable[[Exception], float | None] | None = None,
        *,
        first: float | None = None,
        apart: float = 0.0,
    ) -> None:
        self._name, self._step, self._failed = name, step, failed or self._log_failure
        self._first, self._apart = first, apart
        self._woken, self._ending = threading.Event(), threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start a service that the program can't do without. Raise RuntimeError if the system allows no thread."""
        if not self.begin():
            raise RuntimeError(f"no thread can be started for {self._name}")

    def begin(self) -> bool:
        """Start the service unless it runs already. Return whether it runs. Does not raise."""
        if self._thread is not None and self._thread.is_alive():
            return True
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread = thread if try_start(thread) else None
            return self._thread is not None

    def wake(self) -> None:
        """Make the step run soon. Does not wait. Safe for threads."""
        self._woken.set()

    @property
    def is_ending(self) -> bool:
        """Whether the service was asked to stop. A long step checks this from time to time."""
        return self._ending.is_set()

    def pause(self, seconds: float) -> bool:
        """Wait within a step. Return True as soon as the service is asked to stop."""
        return self._ending.wait(seconds)

    def stop(self, timeout: float | None = 0.0) -> None:
        """Run no further step, and wait up to `timeout` seconds for the running step; None waits until it ends."""
        self._ending.set()
        self._woken.set()
        thread = self._thread
        if thread is not None and thread.is_alive() and thread is not threading.current_thread():
            thread.join(timeout)

    def _run(self) -> None:
        pause = self._first
        while True:
            self._woken.wait(pause)
            self._woken.clear()
            if self._ending.is_set():
                return
            pause = self._run_step()
            if self._apart:
                ended = time.monotonic()
                self._ending.wait(self._apart)
                pause = None if pause is None else max(0.0, pause - (time.monotonic() - ended))

    def _run_step(self) -> float | None:
        try:
            try:
                return self._step()
            except Exception as error:
                return self._failed(error)
        except Exception as error:
            return self._log_failure(error)

    def _log_failure(self, error: Exception) -> float:
        text = "%s failed (%s: %s); it runs again in %g s"
        _limited_log.warning(text, self._name, type(error).__name__, error, RETRY, about=self._name)
        return RETRY
