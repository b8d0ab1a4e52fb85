"""Discards stale messages in bulk, by the thousand, once a worker takes one after the other from a queue.

Otherwise whatever waits behind the messages of an aborted wide process would wait until each was taken and judged.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from queue import Empty, SimpleQueue

from recovery.engine import Recovery
from recovery.errors import BrokerError, StoreError
from recovery.log_lines import Seldom
from recovery.repair.stale_messages import drop_stale
from recovery.threads import ServiceThread

log = logging.getLogger(__name__)

MANY, WINDOW = 20, 1.0
"""Stale messages of one queue, and seconds, after which the rest is discarded in bulk. A stale message now and then is
a duplicate, and costs a claim. A look at the queue costs as much as some ten of them."""


class StaleMessages:
    """Counts a worker's stale messages. In its parent process, where they are known to be so."""

    def __init__(self, app: Recovery) -> None:
        self._app = app
        self._met: Counter[str] = Counter()
        self._since = 0.0
        self._said = Seldom(log)
        self._wanted: SimpleQueue[str] = SimpleQueue()
        self._thread = ServiceThread("stale messages", self._discard_next)

    def start(self) -> None:
        """Begin to look. After the pool has forked."""
        self._thread.start()

    def stop(self) -> None:
        """Discard no more in bulk. Other workers go on."""
        self._thread.stop()

    def met(self, queue: str) -> None:
        """A stale message of a queue was taken. On the event loop: cheap."""
        now = time.monotonic()
        if now - self._since > WINDOW:
            self._since = now
            self._met.clear()
        self._met[queue] += 1
        if self._met[queue] == MANY:
            self._wanted.put(queue)
            self._thread.wake()

    def _discard_next(self) -> float | None:
        """Discard stale messages of the next queue that has many. Return 0 if there may be another queue."""
        try:
            queue = self._wanted.get_nowait()
        except Empty:
            return None
        try:
            discarded = drop_stale(self._app.resources, queue)
        except Exception as error:  # what can't be judged here is taken, one by one
            reason = error if isinstance(error, StoreError | BrokerError) else f"{type(error).__name__}: {error}"
            text = "could not discard stale messages of %s in bulk (%s); workers discard them one by one"
            self._said.warning(text, queue, reason)
        else:
            if discarded:
                log.info("%d stale messages of %s discarded", discarded, queue)
        return 0.0
