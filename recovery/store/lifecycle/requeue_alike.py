"""Requeues of decisions that were just read and are alike: the same constants for all of them, and nothing computed.

For the server a quarter faster than `requeues`, which works out for each record what is right for it, whatever stands
in it. What differs, or was changed since, does not match here, and is left to that.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from pymongo.collection import Collection
from pymongo.errors import OperationFailure

from recovery.records import Decision
from recovery.store.client import Document
from recovery.store.lifecycle.decision_updates import QUEUED
from recovery.store.splitting import is_of_record

LOSSES_WITHOUT_DELAY = 5
"""So many messages of one task may be lost, one outage after the other, before it is looked at more rarely."""
LATE = timedelta(seconds=0.5)
"""An update that reaches the server so long after the time that it queues by is not made: a record would be queued in
the past, and its message count as lost as soon as a younger one is taken. Nor one so long before it, at a server whose
clock is behind that of the one that told the time."""

Known = Mapping[str, Decision]
"""{decision: as it was read}."""


@dataclass(frozen=True, slots=True)
class Requeue:
    """A batch that is to be requeued: which of it, the pass that it gets, and what is counted."""

    guard: Document
    pass_key: str
    counted: Literal["timeouts", "losses"] | None = None
    overdue: bool = False
    """Whether only what is overdue when it is written."""


@dataclass(frozen=True, slots=True)
class Requeued:
    """What was requeued, {decision: when}, and what is left to be looked at one by one."""

    queued_at: Mapping[str, datetime]
    left: Sequence[str]


_Kind = tuple[bool, bool]
"""In what those differ that are alike otherwise: whether they were queued before, and counted before."""


@dataclass(frozen=True, slots=True)
class AlikeRequeues:
    """See `Requeues`, whose collection and settings these are."""

    current: Collection[Document]
    at_least: Callable[[], datetime]
    message_timeout: float
    task_timeouts: Callable[[], Mapping[str, float]]

    def __call__(self, ids: Sequence[str], known: Known, batch: Requeue) -> Requeued:
        """Requeue those of these ids that are known to be alike, and are as the batch asks for."""
        kinds, left = self._kinds(ids, known, batch)
        queued_at = dict[str, datetime]()
        for kind, keys in kinds.items():
            at = self.at_least()
            queued_at |= dict.fromkeys(self._requeue(keys, kind, batch, at), at)
            left += [key for key in keys if key not in queued_at]
        return Requeued(queued_at, left)

    def _kinds(self, ids: Sequence[str], known: Known, batch: Requeue) -> tuple[dict[_Kind, list[str]], list[str]]:
        limited, of_losses = self.task_timeouts(), batch.counted == "losses"
        kinds, left = defaultdict[_Kind, list[str]](list), list[str]()
        for key in ids:
            one = known.get(key)
            if one is None or one.in_batch or one.actor in limited or (one.losses or 0) > LOSSES_WITHOUT_DELAY:
                left.append(key)
            else:
                kinds[one.enqueued_at is not None, not of_losses or one.losses is not None].append(key)
        return kinds, left

    def _requeue(self, keys: list[str], kind: _Kind, batch: Requeue, at: datetime) -> Sequence[str]:
        """Those that were requeued then."""
        fields = {"state": QUEUED, "pass": batch.pass_key, "queuedAt": at}
        fields["recoveryTime"] = at + timedelta(seconds=self.message_timeout)
        like: Document = {**batch.guard, "inBatch": {"$ne": True}, "enqueuedAt": {"$type": "date"}}
        queued_before, counted_before = kind
        if not queued_before:
            like["enqueuedAt"], fields["enqueuedAt"] = None, at
        if batch.overdue:
            like["recoveryTime"] = {"$lte": at}
        changes: Document = {"$set": fields, "$unset": {"worker": True}}
        if batch.counted:  # to what is no number nothing can be added
            like[batch.counted] = {"$gte": 0} if counted_before else {"$exists": False}
            changes["$inc"] = {batch.counted: 1}
        like["$expr"] = {"$and": [{"$lt": ["$$NOW", at + LATE]}, {"$gt": ["$$NOW", at - LATE]}]}
        try:
            # By their ids: see `update_each`. Past the validators, which took a tenth of it: of what is written here,
            # the same for all and with a deadline, ours refuse nothing.
            count = self.current.update_many(
                {"_id": {"$in": keys}, **like}, changes, hint="_id_", bypass_document_validation=True
            ).modified_count
            if count in (0, len(keys)):
                return keys if count else ()
        except OperationFailure as error:
            if not is_of_record(error):
                raise
        mark = {"_id": {"$in": keys}, "pass": batch.pass_key, "state": QUEUED}
        return [one["_id"] for one in self.current.find(mark, {"_id": True}).hint("_id_")]
