"""Sees that a worker takes one stale message after the other, and has those that come next dropped by the thousand."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from queue import SimpleQueue

from recovery.engine import Recovery
from recovery.errors import BrokerError, StoreError
from recovery.log_lines import Seldom
from recovery.repair.stale_messages import drop_stale

log = logging.getLogger(__name__)

MANY, WINDOW = 20, 1.0
"""So many of one queue within so many seconds: one now and then is a duplicate, and costs a claim. A look costs as much
as some ten of them."""


class StaleMessages:
    """Counts a worker's stale messages. In its parent process, where they are known to be so."""

    def __init__(self, app: Recovery) -> None:
        self._app = app
        self._met: Counter[str] = Counter()
        self._since = 0.0
        self._said = Seldom(log)
        self._wanted: SimpleQueue[str | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._drop_always, name="stale messages", daemon=True)

    def start(self) -> None:
        """Begin to look. After the pool has forked."""
        self._thread.start()

    def stop(self) -> None:
        """What is stale then, others drop."""
        self._wanted.put(None)

    def met(self, queue: str) -> None:
        """A stale message of a queue was taken. On the event loop: cheap."""
        now = time.monotonic()
        if now - self._since > WINDOW:
            self._since = now
            self._met.clear()
        self._met[queue] += 1
        if self._met[queue] == MANY:
            self._wanted.put(queue)

    def _drop_always(self) -> None:
        while (queue := self._wanted.get()) is not None:
            try:
                dropped = drop_stale(self._app.resources, queue)
            except (StoreError, BrokerError) as error:
                self._said.warning("stale messages of %s not discarded (%s): they are, one by one", queue, error)
            except Exception as error:  # what can't be judged here is taken, one by one
                told = f"{type(error).__name__}: {error}"
                self._said.warning(
                    "stale messages of %s could not be discarded (%s): they are, one by one", queue, told
                )
            else:
                if dropped:
                    log.info("%d stale messages of %s discarded", dropped, queue)
