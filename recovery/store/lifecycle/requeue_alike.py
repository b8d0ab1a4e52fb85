"""Requeues of decisions that were just read and are alike: the same constants for all of them, and nothing computed.

For the server a quarter faster than `requeues`, which works out for each record what is right for it, whatever stands
in it. What changed in between no longer matches here, and is left to that.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from pymongo.collection import Collection

from recovery.records import Decision
from recovery.store.client import Document
from recovery.store.lifecycle.decision_updates import QUEUED
from recovery.store.splitting import update_each

LOSSES_WITHOUT_DELAY = 5
"""So many messages of one task may be lost, one outage after the other, before it is looked at more rarely."""

Known = Mapping[str, Decision]
"""{decision: as it was read}."""


@dataclass(frozen=True, slots=True)
class RequeuedAlike:
    """What came of it: who was requeued, by all that is known here, and when that was."""

    keys: list[str]
    """Not all that were, where some are left."""
    left: list[str]
    """To be looked at one by one: they differ, or not all of those like them were requeued."""
    queued_at: datetime


def requeue_alike(
    collection: Collection[Document],
    ids: Sequence[str],
    known: Known,
    guard: Document,
    pass_key: str,
    *,
    now: Callable[[], datetime],
    message_timeout: float,
    task_timeouts: Mapping[str, float],
    overdue: bool,
    counted: str | None,
) -> RequeuedAlike:
    """Requeue those of these ids that are known to be alike and match the guard; `overdue`: and are so still. `counted`
    is the field that counts why."""
    groups, left = _groups(ids, known, task_timeouts)
    at = now()
    if overdue:
        guard = {**guard, "recoveryTime": {"$lte": at}}
    fields = {"state": QUEUED, "pass": pass_key, "queuedAt": at}
    fields["recoveryTime"] = at + timedelta(seconds=message_timeout)
    changes: Document = {"$unset": {"worker": True}} | ({"$inc": {counted: 1}} if counted else {})
    keys = list[str]()
    for queued_before, group in groups.items():
        enqueued: Document = {} if queued_before else {"enqueuedAt": at}
        like = {"inBatch": {"$ne": True}, "enqueuedAt": {"$type": "date"} if queued_before else None}
        written = update_each(collection, group, {**guard, **like}, {**changes, "$set": fields | enqueued}, _left)
        (keys if written.whole and written.count == len(group) else left).extend(group)
    return RequeuedAlike(keys, left, at)


def _groups(
    ids: Sequence[str], known: Known, task_timeouts: Mapping[str, float]
) -> tuple[dict[bool, list[str]], list[str]]:
    """{whether they were queued before: those that are alike}, and the others."""
    groups, left = defaultdict[bool, list[str]](list), list[str]()
    for key in ids:
        one = known.get(key)
        if one is not None and _is_like_others(one) and one.actor not in task_timeouts:
            groups[one.enqueued_at is not None].append(key)
        else:
            left.append(key)
    return groups, left


def _is_like_others(one: Decision) -> bool:
    return not one.in_batch and one.timeouts >= 0 and 0 <= (one.losses or 0) <= LOSSES_WITHOUT_DELAY


def _left(_key: str) -> None:
    """One that can't be written so may be otherwise."""
