"""Waits for the end of a process and returns its result."""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from typing import Any

from recovery.engine.actors.context import check_may_wait
from recovery.engine.lookup import not_found
from recovery.engine.resources import Resources
from recovery.errors import ProcessBroken, ResultTimeout, StoreTimeout
from recovery.records import Process, ProcessState, given
from recovery.records.values import decode

SHARE, SHORTEST_PAUSE, LONGEST_PAUSE = 0.1, 0.01, 0.25
"""Pause between two looks: SHARE of the time waited so far, within SHORTEST_PAUSE..LONGEST_PAUSE seconds. The end of a
short process is seen at once. A long wait costs four reads a second."""
SHORTEST_ASK, LONGEST_ASK = 1.0, 5.0
"""Limits, in seconds, of the wait for a majority to confirm that a process does not exist. It usually takes 0.1 s, so a
caller with a shorter timeout gets the answer too."""


def await_result(resources: Resources, process_id: str, timeout: float | str | timedelta | None) -> Any:
    """Wait for the end of a process, and return its value.

    Args:
        resources: Connections.
        process_id: The process.
        timeout: Maximum seconds to wait; None waits without limit.

    Raises:
        ProcessNotFound: There is no such process.
        ProcessBroken: The process broke or was aborted.
        ResultTimeout: The process has not ended in time. The call may be repeated.
        InputError: An argument is invalid, or a running actor would wait.
    """
    process_id = given.text(process_id, "process_id")
    limit = None if timeout is None else given.seconds(timeout, "timeout")
    check_may_wait(process_id, limit)
    deadline = None if limit is None else time.monotonic() + limit
    started, waiter = time.monotonic(), threading.Event()
    while True:
        process = resources.store.processes.ended([process_id]).get(process_id)
        if process is None and not _may_be_there(resources, process_id, deadline):
            raise not_found(resources, process_id)
        if process is not None and process.state is ProcessState.FINISHED:
            return decode(process.result or "null")
        if process is not None and process.state is not ProcessState.RUNNING:
            raise _broken(process)
        now = time.monotonic()
        if deadline is not None and now >= deadline:
            raise ResultTimeout(f"process {process_id} has not ended within {limit:g} s; it goes on")
        pause = pause_after(now - started)
        waiter.wait(pause if deadline is None else min(pause, deadline - now))


def pause_after(waited: float) -> float:
    """Return the seconds to pause before the next look, after waiting this many seconds."""
    return min(max(SHARE * waited, SHORTEST_PAUSE), LONGEST_PAUSE)


def _may_be_there(resources: Resources, process_id: str, deadline: float | None) -> bool:
    """Return whether the process exists. Return True if no majority answers in time, because then nobody knows."""
    remaining = LONGEST_ASK if deadline is None else deadline - time.monotonic()
    try:
        return resources.store.processes.is_there(process_id, min(max(remaining, SHORTEST_ASK), LONGEST_ASK))
    except StoreTimeout:
        return True


def _broken(process: Process) -> ProcessBroken:
    error = process.error
    return ProcessBroken(
        process.id,
        error.task if error else None,
        error.kind if error else process.state.value,
        error.message if error else "ended without a result",
        process.state.value,
    )
