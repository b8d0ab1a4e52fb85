"""Waiting for a database that is away, where giving up would throw work away.

Only for steps that may run twice. A call of the store itself waits for a primary for up to 20 s, and no write is tried
again by it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from recovery.errors import StoreUnavailable

T = TypeVar("T")

log = logging.getLogger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 2.0


def through_outage(step: Callable[[], T], seconds: float, what: str) -> T:
    """What `step` gives, tried again for up to `seconds` while the database can't be reached, or takes no writes.

    The last try begins once they are over: one that hung until then tells how the database was, not how it is.
    """
    began, pause, failed = time.monotonic(), FIRST_PAUSE, False
    while True:
        is_last = time.monotonic() >= began + seconds
        try:
            done = step()
            if failed:
                log.warning("%s: the database is back, after %.1f s", what, time.monotonic() - began)
            return done
        except StoreUnavailable as error:
            if is_last:
                raise
            log.warning("%s: the database is away (%s); trying again", what, error)
            failed = True
        threading.Event().wait(pause)
        pause = min(2 * pause, LONGEST_PAUSE)
