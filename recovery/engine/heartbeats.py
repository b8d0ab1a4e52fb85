"""Automatic heartbeats of long attempts, from a thread beside the function that runs.

Only for actors with `auto_heartbeat`: it tells that the process is alive, not that the function gets on. A
frozen or killed process stops beating, a function that hangs does not.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pymongo.errors import PyMongoError

from recovery.engine.context import Attempt

log = logging.getLogger(__name__)

BEATS_PER_TIMEOUT = 3
"""Two may be late or lost before the deadline is past."""

RETRY = 1.0
"""Seconds until one that could not be written is tried again. What is overdue when the database comes back is judged
soon after: those that live must have said so by then."""


@contextmanager
def beating(attempt: Attempt) -> Iterator[None]:
    """Beat for an attempt while the block runs, if its actor wants it."""
    if not attempt.preferences.auto_heartbeat:
        yield
        return
    done = threading.Event()
    thread = threading.Thread(target=_beat, args=(attempt, done), name="heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()


def _beat(attempt: Attempt, done: threading.Event) -> None:
    interval = attempt.preferences.worker_timeout / BEATS_PER_TIMEOUT
    pause = interval
    while not done.wait(pause):
        try:
            if not attempt.heartbeat():
                return
            pause = interval
        except PyMongoError as error:
            pause = min(interval, RETRY)
            log.warning("%s: heartbeat not written (%s); next in %g s", attempt.decision.id, error, pause)
