"""A worker that starts while a server is away waits for it: a whole cluster that starts at once has no order, and a
failover is none of the worker's business. What no waiting helps is raised at once."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from recovery.errors import BrokerError, ServerUnavailable

log = logging.getLogger(__name__)

START_TIMEOUT = 60.0
"""Seconds. Long enough for a failover and for a server that reads its journal; by then somebody has to be told, and who
runs workers starts them again."""
PAUSE = 1.0


def wait_for_servers(step: Callable[[], None], seconds: float = START_TIMEOUT) -> None:
    """Do a step that may run twice, again and again for so long while a server is away; then raise what it raised."""
    began, pause, failed = time.monotonic(), threading.Event(), False
    until = began + seconds
    while True:
        try:
            step()
            if failed:
                log.warning("the servers answer now, after %.0f s", time.monotonic() - began)
            return
        except (ServerUnavailable, BrokerError) as error:
            if time.monotonic() >= until:
                raise
            failed = True
            log.warning("not yet: %s; trying again for up to %.0f s", error, until - time.monotonic())
        pause.wait(PAUSE)
