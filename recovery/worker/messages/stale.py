"""Discards stale messages in bulk, by the thousand, once a worker takes one after the other from a queue.

A message is stale once its decision is not queued under its pass any more. Whoever takes one finds that out by a claim
that matches nothing, some hundred times a second. Where a wide process was aborted, or was queued twice after an
outage, a hundred thousand of them may lie before what others wait for: here one query judges a thousand.

They are taken out of the queue to be judged, because to remove one that a worker took meanwhile Redis would look
through the whole queue for it. What is not stale is put back where it was. Passes are never used again, so what is
stale stays so; and what is lost by a cut in between costs what a lost message costs, MESSAGE_LOST.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Sequence
from queue import Empty, SimpleQueue

from recovery import metrics
from recovery.engine import Recovery, Resources
from recovery.errors import BrokerError, StoreError
from recovery.log_lines import Seldom
from recovery.queue import MessageId
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


SAMPLE, PORTION = 100, 1000
"""Messages that are looked at before any is taken out, and that are judged at once, some 1 MB: more would not be
faster, and Redis serves nobody else meanwhile."""
WORTH = 0.5
"""The part of them that must be stale to go on: below that, it costs no more to take them one by one."""

Line = Sequence[tuple[bytes, MessageId | None]]


def drop_stale(resources: Resources, queue: str) -> int:
    """Drop what is stale among the next messages of a queue, and of those behind them while most are; how many were.

    Raises StoreError and BrokerError.
    """
    broker, dropped = resources.broker, 0
    line: Line = broker.next_in_line(queue, SAMPLE)
    left = _not_stale(resources, line)
    while line and len(line) - len(left) >= WORTH * len(line):
        line = broker.take(queue, PORTION)
        left = [text for text, _ in line]
        try:
            left = _not_stale(resources, line)
        finally:
            broker.put_back(queue, left)
        metrics.STALE.labels("message").inc(len(line) - len(left))
        dropped += len(line) - len(left)
    return dropped


def _not_stale(resources: Resources, line: Line) -> list[bytes]:
    """The texts of those that somebody may wait for, what is no message of ours among them."""
    passes = resources.store.decisions.queued_passes(message.decision_id for _, message in line if message is not None)
    return [text for text, told in line if told is None or passes.get(told.decision_id) == told.pass_key]
