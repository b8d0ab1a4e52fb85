"""Enqueue: waiting → queued with a new pass, then the message (design §3, 'enqueue').

Cut off before the push, the decision is queued with a deadline and MESSAGE_LOST finds it.
"""

from __future__ import annotations

from collections.abc import Sequence

from recovery import metrics
from recovery.engine.resources import Resources
from recovery.records.ids import new_pass
from recovery.store import Queued

BATCH = 1000


def enqueue(resources: Resources, decision_ids: Sequence[str]) -> int:
    """Enqueue those of these decisions that still wait; those with an eta become delayed. How many were
    queued. Run twice, or by two at once, each is queued once."""
    done = 0
    for first in range(0, len(decision_ids), BATCH):
        batch = decision_ids[first : first + BATCH]
        queued = resources.store.requeues.ready(batch, new_pass())
        push(resources, queued)
        done += len(queued)
    return done


def push(resources: Resources, queued: Sequence[Queued]) -> None:
    """Push the messages of decisions that were just queued. Does not raise: their deadlines stand."""
    if queued and not resources.broker.push(queued):
        metrics.PUSH_FAILURES.inc(len(queued))
