"""Discard stale messages in bulk, a thousand at a time, once a worker takes many of them from a queue.

A message is stale once its decision is no longer queued under its pass. A worker notices this when its claim matches
nothing, a few hundred times a second. After a wide process was aborted, or was queued twice after an outage, a hundred
thousand stale messages may lie before other messages. Here one query judges a thousand.

The messages are taken out of the queue to be judged. Otherwise Redis would search the whole queue for each message to
remove that a worker has taken meanwhile. Messages that are not stale are put back where they were. Passes are never
used again, so a stale message stays stale. If messages are lost because this is interrupted, they are found as
MESSAGE_LOST.
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
"""Number of stale messages from one queue, and the seconds within which they arrive, after which the others are
discarded in bulk. A single stale message is a duplicate, and costs one claim. A look at the queue costs as much as
about ten claims."""


class StaleMessages:
    """The count of a worker's stale messages, in its parent process, and the thread that discards them in bulk."""

    def __init__(self, app: Recovery) -> None:
        self._app = app
        self._counts: Counter[str] = Counter()
        self._since = 0.0
        self._limited_log = Seldom(log)
        self._requested: SimpleQueue[str] = SimpleQueue()
        self._thread = ServiceThread("stale messages", self._discard_next)

    def start(self) -> None:
        """Begin to discard. Call it after the pool has forked."""
        self._thread.start()

    def stop(self) -> None:
        """Discard no more in bulk. Other workers go on."""
        self._thread.stop()

    def met(self, queue: str) -> None:
        """Note that a stale message of a queue was taken. Called on the event loop, so it must be cheap."""
        now = time.monotonic()
        if now - self._since > WINDOW:
            self._since = now
            self._counts.clear()
        self._counts[queue] += 1
        if self._counts[queue] == MANY:
            self._requested.put(queue)
            self._thread.wake()

    def _discard_next(self) -> float | None:
        """Discard stale messages of the next queue that has many. Return 0 if another queue may follow."""
        try:
            queue = self._requested.get_nowait()
        except Empty:
            return None
        try:
            discarded = drop_stale(self._app.resources, queue)
        except Exception as error:  # workers discard the messages one by one
            reason = error if isinstance(error, StoreError | BrokerError) else f"{type(error).__name__}: {error}"
            text = "could not discard stale messages of %s in bulk (%s); workers discard them one by one"
            self._limited_log.warning(text, queue, reason)
        else:
            if discarded:
                log.info("%d stale messages of %s discarded", discarded, queue)
        return 0.0


SAMPLE, PORTION = 100, 1000
"""Messages that are looked at before any is taken out, and messages that are taken and judged at once. A portion has
about 1 MB; a larger one would not be faster, and Redis serves nobody else meanwhile."""
WORTH = 0.5
"""The part of these messages that must be stale to continue. Below it workers can discard them one by one at no more
cost."""

Line = Sequence[tuple[bytes, MessageId | None]]


def drop_stale(resources: Resources, queue: str) -> int:
    """Drop the stale messages among the next messages of a queue, and continue while most are stale.

    Returns:
        How many messages were dropped.

    Raises:
        StoreError: MongoDB could not be asked.
        BrokerError: Redis could not be asked.
    """
    broker, dropped = resources.broker, 0
    messages: Line = broker.next_in_line(queue, SAMPLE)
    to_keep = _not_stale(resources, messages)
    while messages and len(messages) - len(to_keep) >= WORTH * len(messages):
        messages = broker.take(queue, PORTION)
        to_keep = [text for text, _ in messages]
        try:
            to_keep = _not_stale(resources, messages)
        finally:
            broker.put_back(queue, to_keep)
        metrics.STALE.labels("message").inc(len(messages) - len(to_keep))
        dropped += len(messages) - len(to_keep)
    return dropped


def _not_stale(resources: Resources, messages: Line) -> list[bytes]:
    """Return the texts of messages that a task may still wait for, including texts that are not messages of ours."""
    passes = resources.store.decisions.queued_passes(
        message_id.decision_id for _, message_id in messages if message_id is not None
    )
    return [
        text
        for text, message_id in messages
        if message_id is None or passes.get(message_id.decision_id) == message_id.pass_key
    ]
