"""The result of a process, for whoever waits for it."""

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
"""Looked for ever more rarely, after a share of the time that it was waited for, between so many seconds: the end of a
short process is seen at once, that of a long one a little later, for four reads a second."""
SHORTEST_ASK, LONGEST_ASK = 1.0, 5.0
"""Seconds that a majority is given to say that there is no such process. It takes 0.1, so whoever does not want to wait
is told, too."""


def await_result(resources: Resources, process_id: str, timeout: float | str | timedelta | None) -> Any:
    """The value of a process, waiting for its end up to `timeout` seconds (None: for ever).

    Raises ProcessNotFound, ProcessBroken, and ResultTimeout, after which it may be asked again; and InputError if a
    running actor would wait.
    """
    process_id = given.text(process_id, "process_id")
    limit = None if timeout is None else given.seconds(timeout, "timeout")
    check_may_wait(process_id, limit)
    deadline = None if limit is None else time.monotonic() + limit
    began, waiter = time.monotonic(), threading.Event()
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
        pause = pause_after(now - began)
        waiter.wait(pause if deadline is None else min(pause, deadline - now))


def pause_after(waited: float) -> float:
    """Seconds until who has waited for so many looks again."""
    return min(max(SHARE * waited, SHORTEST_PAUSE), LONGEST_PAUSE)


def _may_be_there(resources: Resources, process_id: str, deadline: float | None) -> bool:
    """Whether there is such a process, as far as that can be told in time: while no majority answers it can't."""
    left = LONGEST_ASK if deadline is None else deadline - time.monotonic()
    try:
        return resources.store.processes.is_there(process_id, min(max(left, SHORTEST_ASK), LONGEST_ASK))
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
