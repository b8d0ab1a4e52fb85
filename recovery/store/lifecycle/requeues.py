"""Updates of many decisions at once: enqueue what is ready, requeue what is overdue.

All of one shape. The caller found and judged a batch; one `update_many` repeats the whole condition for each
of its ids and marks what it changed with the batch's own new pass; one find reads back what carries the mark.
What changed in between (a heartbeat, a result) no longer matches, and wins. So a thousand records cost two
round trips, and the new pass is both the mark of the claim and what makes old messages and results stale. If the caller
has just read them (`known`), most are alike, and are requeued by constants, without being read back.

Restorable: if a failover takes a requeue back, the record is overdue once more, and the message that
was pushed carries a pass that no longer matches.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from pymongo.collection import Collection
from pymongo.errors import OperationFailure

from recovery.records import Decision, Until, forgotten
from recovery.records.ids import HOLDER_END
from recovery.retry.own_work import LOST_MESSAGE
from recovery.store.client import Document
from recovery.store.concerns import current
from recovery.store.driver_errors import translated
from recovery.store.expressions import FIRST_QUEUED, OVERDUE, after, by_policy, date_of, number_of, plus_one
from recovery.store.lifecycle.decision_queries import DELAYED, QUEUED, WAITING, WORKING
from recovery.store.lifecycle.decisions import Queued
from recovery.store.lifecycle.task_deadlines import DELAY, in_time
from recovery.store.splitting import is_of_record, postpone, tell_unwritten, update_each

LOSSES_WITHOUT_DELAY = LOST_MESSAGE.free - 1
"""So many messages of one task may be lost, one outage after the other, before it is looked at more rarely."""
LATE = timedelta(seconds=0.5)
"""Maximum difference between the time that alike decisions are queued by and the server's when they are written. A
record that is queued in the past counts as lost as soon as a younger message is taken; and the clock of the server may
be behind that of the one that told the time."""

Counted = Literal["timeouts", "losses", "workersLost"]
"""The field of a decision that counts a requeue."""
Known = Mapping[str, Decision]
"""{decision: as it was read}."""
Kind = tuple[bool, bool]
"""How decisions differ that are requeued alike otherwise: whether they were queued before, and counted before."""
_MESSAGE = {"actor": True, "pass": True, "queuedAt": True, "state": True}
"""What `Queued` needs, and whether it is queued."""


@dataclass(frozen=True, slots=True)
class Requeue:
    """A batch that is to be requeued: which of it, the pass that it gets, and what is counted."""

    guard: Document
    pass_key: str
    counted: Counted | None = None
    overdue: bool = False
    """Whether only what is overdue when it is written."""
    first: bool = True
    """Whether the messages go before those that wait: these tasks had their turn already."""


@translated
class Requeues:
    """Updates of batches in the collection `decisions`.

    `task_timeouts` gives {actor: task_timeout in seconds} of those that have one: what is queued is looked at then
    at the latest. `at_least` tells the database's time, or one shortly before.
    """

    def __init__(
        self,
        collection: Collection[Document],
        at_least: Callable[[], datetime],
        message_timeout: float,
        task_timeouts: Callable[[], Mapping[str, float]],
    ) -> None:
        self._current = current(collection)
        self._message_timeout, self._task_timeouts = message_timeout, task_timeouts
        self._at_least = at_least

    def enqueue_ready(self, ids: Sequence[str], pass_key: str) -> list[Queued]:
        """waiting → queued; or → delayed, where an eta or delay is still to pass."""
        starts = {"$max": [date_of("$eta"), {"$add": ["$$NOW", DELAY]}]}
        due = {"$lte": [starts, "$$NOW"]}
        message_due = in_time(after(self._message_timeout), self._task_timeouts())
        fields = {
            "state": {"$cond": [due, QUEUED, DELAYED]},
            "pass": pass_key,
            # A task's time begins when it could be taken.
            "enqueuedAt": {"$cond": [due, FIRST_QUEUED, "$$REMOVE"]},
            "queuedAt": "$$NOW",
            "recoveryTime": {"$cond": [due, message_due, starts]},
        }
        return self._change(Requeue({"state": WAITING}, pass_key, first=False), [{"$set": fields}], ids)

    def enqueue_due(self, ids: Sequence[str], pass_key: str, known: Known | None = None) -> list[Queued]:
        """delayed, eta past → queued."""
        return self._requeue(Requeue({"state": DELAYED}, pass_key, overdue=True, first=False), ids, known)

    def timed_out(self, ids: Sequence[str], pass_key: str, known: Known | None = None) -> list[Queued]:
        """working, deadline past → queued; counts a timeout. Behind what waits: it may hang again, and so many as hang
        would else keep all others of their actor waiting."""
        batch = Requeue({"state": WORKING}, pass_key, "timeouts", overdue=True, first=False)
        return self._requeue(batch, ids, known)

    def requeue_worker_lost(
        self, ids: Sequence[str], workers: Sequence[str], pass_key: str, counted: Counted = "timeouts"
    ) -> list[Queued]:
        """working for holders that are gone → queued.

        Counts a timeout, because the task may have killed its process; or, of a worker that is gone as a whole, that.
        """
        held: Document = {"state": WORKING, "worker": {"$in": list(workers)}}
        return self._requeue(Requeue(held, pass_key, counted), ids)

    def delay_lost(
        self, ids: Sequence[str], seconds: float, pass_key: str, workers: Sequence[str] | None = None
    ) -> list[str]:
        """working, and overdue or held by `workers` → delayed for so many seconds; counts a timeout.

        Returns:
            The ids of those that are delayed.
        """
        guard: Document = OVERDUE if workers is None else {"worker": {"$in": list(workers)}}
        fields = {
            "state": DELAYED,
            "pass": pass_key,
            "eta": after(seconds),
            "recoveryTime": in_time(after(seconds), self._task_timeouts()),
            "timeouts": plus_one("timeouts"),
        }
        gone = ["delay", *forgotten(Until.NEXT_ATTEMPT)]
        update_each(self._current, ids, {"state": WORKING, **guard}, [{"$set": fields}, {"$unset": gone}])
        mark = {"_id": {"$in": list(ids)}, "pass": pass_key, "state": DELAYED}
        return [document["_id"] for document in self._current.find(mark, {"_id": True}).hint("_id_")]

    def requeue_given_back(self, ids: Sequence[str], workers: Sequence[str], pass_key: str) -> list[Queued]:
        """working for a worker that shuts down → queued; no timeout, nothing went wrong."""
        return self._requeue(Requeue({"state": WORKING, "worker": {"$in": list(workers)}}, pass_key), ids)

    def requeue_unrun(self, passes: Mapping[str, str], worker: str, pass_key: str) -> list[Queued]:
        """{decision: pass} claimed under these by this holder, or in messages that are used up, and not run or their
        ends not written → queued; no timeout.

        By both: the holder may have a task under a later pass, and the pass may be another's, whose message was the
        same. Whose claim was not answered can't know which of them has it.
        """
        held: Document = {"pass": {"$in": list(passes.values())}}
        held["$or"] = [{"state": QUEUED}, {"state": WORKING, "worker": worker}]
        return self._requeue(Requeue(held, pass_key), list(passes))

    def requeue_unbegun(self, holder: str, ran: str | None, limit: int, pass_key: str) -> list[Queued]:
        """working in a batch of a process that is gone, but for the one that it `ran` → queued; no timeout: they had
        not begun, or had ended. Up to so many of them. Index `worker`."""
        held: Document = {"worker": {"$gte": holder, "$lt": holder + HOLDER_END}, "state": WORKING, "inBatch": True}
        found = self._current.find({**held, "_id": {"$ne": ran or ""}}, {"_id": True}).hint("worker").limit(limit)
        return self._requeue(Requeue(held, pass_key), [one["_id"] for one in found])

    def requeue_message_lost(
        self, ids: Sequence[str], queued_until: datetime | None, pass_key: str, known: Known | None = None
    ) -> list[Queued]:
        """queued, message lost → queued again. `queued_until` is the youngest `queuedAt` that was judged:
        whatever was queued again since then is younger, and is left alone. One without `queuedAt`, which another
        program wrote, has no message either; if none has one, `queued_until` is None."""
        judged = [{"queuedAt": None}] + ([{"queuedAt": {"$lte": queued_until}}] if queued_until is not None else [])
        return self._requeue(Requeue({"state": QUEUED, "$or": judged}, pass_key, "losses"), ids, known)

    def _requeue(self, batch: Requeue, ids: Sequence[str], known: Known | None = None) -> list[Queued]:
        if known is None or len(ids) < 2:  # one costs one round trip
            return self._requeue_any(batch, ids)
        kinds, limited = defaultdict[Kind | None, list[str]](list), self._task_timeouts()
        for key in ids:
            kinds[_kind(batch, known.get(key), limited)].append(key)
        queued, others = list[Queued](), list[str]()
        for kind, keys in kinds.items():
            if kind is None:
                others += keys
                continue
            at = self._at_least()
            changed = set(self._requeue_alike(batch, keys, kind, at))
            queued += [Queued(key, known[key].actor, batch.pass_key, at, batch.first) for key in keys if key in changed]
            others += [key for key in keys if key not in changed]
        return queued + self._requeue_any(batch, others)

    def _requeue_alike(self, batch: Requeue, keys: list[str], kind: Kind, at: datetime) -> Sequence[str]:
        """Requeue decisions of a kind by constants; return which were. It takes the server three quarters of the time
        of `_requeue_any`, which works out for each record what is right for it. What differs, or was changed since it
        was read, does not match here."""
        queued_before, counted_before = kind
        fields = {"state": QUEUED, "pass": batch.pass_key, "queuedAt": at}
        fields["recoveryTime"] = at + timedelta(seconds=self._message_timeout)
        like: Document = {**batch.guard, "inBatch": {"$ne": True}, "enqueuedAt": {"$type": "date"}}
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
            count = self._current.update_many(
                {"_id": {"$in": keys}, **like}, changes, hint="_id_", bypass_document_validation=True
            ).modified_count
            if count in (0, len(keys)):
                return keys if count else ()
        except OperationFailure as error:
            if not is_of_record(error):
                raise
        mark = {"_id": {"$in": keys}, "pass": batch.pass_key, "state": QUEUED}
        return [one["_id"] for one in self._current.find(mark, {"_id": True}).hint("_id_")]

    def _requeue_any(self, batch: Requeue, ids: Sequence[str]) -> list[Queued]:
        wait: Any = round(self._message_timeout * 1000)
        if batch.counted == "losses":
            # After many in a row ever more rarely: a queue whose messages something takes is not filled for ever.
            again = {"$subtract": [number_of("$losses"), LOSSES_WITHOUT_DELAY]}
            wait = by_policy(LOST_MESSAGE.policy, again, self._message_timeout)
        fields: Document = {
            "state": QUEUED,
            "pass": batch.pass_key,
            "enqueuedAt": FIRST_QUEUED,
            "queuedAt": "$$NOW",
            "recoveryTime": in_time({"$add": ["$$NOW", wait]}, self._task_timeouts()),
        }
        if batch.counted in ("losses", "workersLost"):
            fields[batch.counted] = plus_one(batch.counted)
        if batch.counted == "timeouts":
            # Of a batch nobody knows which of them ran. By the next time it is known.
            in_batch = {"$eq": ["$inBatch", True]}
            fields["timeouts"] = {"$add": [number_of("$timeouts"), {"$cond": [in_batch, 0, 1]}]}
            fields["alone"] = {"$cond": [in_batch, True, "$alone"]}
        return self._change(batch, [{"$set": fields}, {"$unset": list(forgotten(Until.NEXT_ATTEMPT))}], ids)

    def _change(self, batch: Requeue, stages: list[Document], ids: Sequence[str]) -> list[Queued]:
        guard = {**batch.guard, **OVERDUE} if batch.overdue else batch.guard
        if len(ids) == 1:  # one round trip instead of two
            return self._change_one(batch, guard, stages, ids[0])
        if not ids:
            return []
        written = update_each(self._current, ids, guard, stages)
        if written.whole and not written.count:
            return []
        mark = {"_id": {"$in": list(ids)}, "pass": batch.pass_key, "state": QUEUED}
        return [_queued(batch, document) for document in self._current.find(mark, _MESSAGE).hint("_id_")]

    def _change_one(self, batch: Requeue, guard: Document, stages: list[Document], key: str) -> list[Queued]:
        try:
            one = self._current.find_one_and_update(
                {"_id": key, **guard}, stages, projection=_MESSAGE, return_document=True
            )
        except OperationFailure as error:
            if not is_of_record(error):
                raise
            tell_unwritten(self._current, key, error)
            postpone(self._current, key)
            return []
        return [_queued(batch, one)] if one and one["state"] == QUEUED else []


def _kind(batch: Requeue, decision: Decision | None, limited: Mapping[str, float]) -> Kind | None:
    """Return by which constants a decision is requeued; None if it needs what `_requeue_any` works out, as those do
    whose actor is `limited` by a task_timeout."""
    if decision is None or decision.in_batch or decision.actor in limited:
        return None
    if (decision.losses or 0) > LOSSES_WITHOUT_DELAY:
        return None
    counts = {"losses": decision.losses, "workersLost": decision.workers_lost, "timeouts": decision.timeouts}
    return decision.enqueued_at is not None, counts.get(batch.counted or "") is not None


def _queued(batch: Requeue, document: Document) -> Queued:
    return Queued(document["_id"], document["actor"], document["pass"], document["queuedAt"], batch.first)
