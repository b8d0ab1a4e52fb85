"""Stale messages that are next in line, dropped by the thousand.

A message is stale once its decision is not queued under its pass any more. Whoever takes one finds that out by a claim
that matches nothing, some hundred times a second. Where a wide process was aborted, or was queued twice after an
outage, a hundred thousand of them may lie before what others wait for: here one query judges a thousand.

Safe against all that runs beside it: passes are never used again, so what is stale stays so, and each message is
removed by its whole text. One that was dropped wrongly all the same costs what a lost one costs, MESSAGE_LOST.
"""

from __future__ import annotations

from recovery import metrics
from recovery.engine import Resources

PORTION = 1000
"""Messages judged at once: some 1 MB of texts. More would not be faster, and Redis serves nobody else meanwhile."""
WORTH = 0.5
"""The part of a portion that must be stale for another look: below that, taking them costs no more."""


def drop_stale(resources: Resources, queue: str) -> int:
    """Drop what is stale among the next messages of a queue, and of those behind them while most are; how many were.

    Raises PyMongoError and RedisError.
    """
    dropped = 0
    while line := resources.broker.next_in_line(queue, PORTION):
        passes = resources.store.decisions.queued_passes(message.decision_id for _, message in line)
        stale = [text for text, message in line if passes.get(message.decision_id) != message.pass_key]
        removed = resources.broker.drop(queue, stale)
        metrics.STALE.labels("message").inc(removed)
        dropped += removed
        if not removed or len(stale) < WORTH * len(line):
            break
    return dropped
