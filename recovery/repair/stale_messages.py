"""Stale messages that are next in line, dropped by the thousand.

A message is stale once its decision is not queued under its pass any more. Whoever takes one finds that out by a claim
that matches nothing, some hundred times a second. Where a wide process was aborted, or was queued twice after an
outage, a hundred thousand of them may lie before what others wait for: here one query judges a thousand.

They are taken out of the queue to be judged, since to remove one that a worker took meanwhile Redis would look through
the whole queue for it. What is not stale is put back where it was. Passes are never used again, so what is stale stays
so; and what is lost by a cut in between costs what a lost message costs, MESSAGE_LOST.
"""

from __future__ import annotations

from collections.abc import Sequence

from recovery import metrics
from recovery.engine import Resources
from recovery.queue import MessageId

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
