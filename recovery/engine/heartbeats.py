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
    while not done.wait(interval):
        try:
            if not attempt.heartbeat():
                return
        except PyMongoError as error:
            log.warning("%s: heartbeat not written (%s); next in %g s", attempt.decision.id, error, interval)
