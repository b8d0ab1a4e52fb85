"""Updates of many decisions at once: enqueue ready tasks, requeue overdue tasks.

All updates work in the same way. The caller has found and judged a batch. One `update_many` repeats the whole condition
for each id and sets the batch's own new pass. One find reads back the decisions with this pass. A decision that changed
in between (a heartbeat, a result) does not match the condition any more, and stays as it is. So a thousand decisions
cost two round trips, and the new pass makes earlier messages and results stale. If the caller has just read the
decisions (`known`), most are alike: these are requeued with constant values and not read back.

Updates are written to the primary alone. If a failover undoes a requeue, the decision is overdue again, and the pushed
message has a pass that no longer matches.
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
"""Number of lost messages of one task (one per outage, for example) after which it is checked less often."""
LATE = timedelta(seconds=0.5)
"""Maximum difference between the `queuedAt` that is written and the server's time when it is written. A decision with
an earlier `queuedAt` would count as lost as soon as a younger message is taken. The difference may have either sign,
because the server that writes may be behind the server that reported the time.
"""

Counted = Literal["timeouts", "losses", "workersLost"]
"""The field of a decision that counts a requeue."""
Known = Mapping[str, Decision]
"""{decision id: the decision as it was read}."""
Kind = tuple[bool, bool]
"""How decisions differ that are otherwise requeued alike: whether they were queued before, and whether the counter
exists.
"""
_MESSAGE = {"actor": True, "pass": True, "queuedAt": True, "state": True}
"""Projection: what `Queued` needs, and the state."""


@dataclass(frozen=True, slots=True)
class Requeue:
    """The parameters of one requeue of a batch."""

    guard: Document
    """The condition of the compare-and-set, besides the id."""
    pass_key: str
    """The new pass."""
    counted: Counted | None = None
    """The counter to increment, if any."""
    overdue: bool = False
    """Whether only overdue decisions match."""
    first: bool = True
    """Whether the messages go to the head of the queue, because these tasks had their turn already."""


@translated
class Requeues:
    """Updates of batches in the collection `decisions`.

    `task_timeouts` returns {actor: task_timeout in seconds} of those that have one. It limits the deadlines of queued
    tasks. `at_least` returns the database's time, or a slightly earlier one.
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
        """Enqueue (waiting → queued) ready tasks, or delay them (waiting → delayed) until their eta or delay is over.

        Returns:
            The queued decisions, without the delayed ones.
        """
        starts = {"$max": [date_of("$eta"), {"$add": ["$$NOW", DELAY]}]}
        due = {"$lte": [starts, "$$NOW"]}
        message_due = in_time(after(self._message_timeout), self._task_timeouts())
        fields = {
            "state": {"$cond": [due, QUEUED, DELAYED]},
            "pass": pass_key,
            # A task's time as a whole begins when it can be claimed.
            "enqueuedAt": {"$cond": [due, FIRST_QUEUED, "$$REMOVE"]},
            "queuedAt": "$$NOW",
            "recoveryTime": {"$cond": [due, message_due, starts]},
        }
        return self._change(Requeue({"state": WAITING}, pass_key, first=False), [{"$set": fields}], ids)

    def enqueue_due(self, ids: Sequence[str], pass_key: str, known: Known | None = None) -> list[Queued]:
        """Enqueue (delayed → queued) those of these tasks whose deadline is past. Return the queued decisions."""
        return self._requeue(Requeue({"state": DELAYED}, pass_key, overdue=True, first=False), ids, known)

    def timed_out(self, ids: Sequence[str], pass_key: str, known: Known | None = None) -> list[Queued]:
        """Requeue (working → queued) those of these tasks whose deadline is past, and count a timeout. Return the
        queued decisions.

        The messages go to the end of the queue, because the tasks may hang again, and would otherwise keep all other
        tasks of their actor waiting.
        """
        batch = Requeue({"state": WORKING}, pass_key, "timeouts", overdue=True, first=False)
        return self._requeue(batch, ids, known)

    def requeue_worker_lost(
        self, ids: Sequence[str], workers: Sequence[str], pass_key: str, counted: Counted = "timeouts"
    ) -> list[Queued]:
        """Requeue (working → queued) those of these tasks that dead holders have claimed. Return the queued decisions.

        Args:
            ids: The decisions.
            workers: Names of the dead holders.
            pass_key: The new pass.
            counted: The counter to increment: `timeouts` if a pool process died, because the task may have killed it;
                `workersLost` if a whole worker is gone.
        """
        claimed: Document = {"state": WORKING, "worker": {"$in": list(workers)}}
        return self._requeue(Requeue(claimed, pass_key, counted), ids)

    def delay_lost(
        self, ids: Sequence[str], seconds: float, pass_key: str, workers: Sequence[str] | None = None
    ) -> list[str]:
        """Delay (working → delayed) those of these tasks that are overdue or claimed by `workers`, and count a timeout.

        Args:
            ids: The decisions.
            seconds: The delay.
            pass_key: The new pass.
            workers: Names of dead holders. If absent, overdue decisions match instead.

        Returns:
            The ids of the delayed decisions.
        """
        guard: Document = OVERDUE if workers is None else {"worker": {"$in": list(workers)}}
        fields = {
            "state": DELAYED,
            "pass": pass_key,
            "eta": after(seconds),
            "recoveryTime": in_time(after(seconds), self._task_timeouts()),
            "timeouts": plus_one("timeouts"),
        }
        reset_fields = ["delay", *forgotten(Until.NEXT_ATTEMPT)]
        update_each(self._current, ids, {"state": WORKING, **guard}, [{"$set": fields}, {"$unset": reset_fields}])
        mark = {"_id": {"$in": list(ids)}, "pass": pass_key, "state": DELAYED}
        return [document["_id"] for document in self._current.find(mark, {"_id": True}).hint("_id_")]

    def requeue_given_back(self, ids: Sequence[str], workers: Sequence[str], pass_key: str) -> list[Queued]:
        """Requeue (working → queued) tasks of a worker that shuts down. Return the queued decisions.

        No timeout is counted, because nothing went wrong.
        """
        return self._requeue(Requeue({"state": WORKING, "worker": {"$in": list(workers)}}, pass_key), ids)

    def requeue_unrun(self, passes: Mapping[str, str], worker: str, pass_key: str) -> list[Queued]:
        """Requeue decisions that were not run, or whose results were not written. Return the queued decisions. Counts
        no timeout.

        Matches decisions with one of these passes that are queued (their message is used up), or claimed by this
        holder. Both are compared, because a claim whose reply was lost may or may not have taken place: the holder may
        have claimed the task later under another pass, and the pass may have been claimed by another holder with a copy
        of the message.

        Args:
            passes: {decision: its pass}.
            worker: The holder.
            pass_key: The new pass.
        """
        unrun: Document = {"pass": {"$in": list(passes.values())}}
        unrun["$or"] = [{"state": QUEUED}, {"state": WORKING, "worker": worker}]
        return self._requeue(Requeue(unrun, pass_key), list(passes))

    def requeue_unbegun(self, holder: str, ran: str | None, limit: int, pass_key: str) -> list[Queued]:
        """Requeue (working → queued) the tasks in the batch of a dead process, except the task that it `ran`. Return
        the queued decisions.

        No timeout is counted, because these tasks had not begun, or had ended. Index `worker`.

        Args:
            holder: Name of the process.
            ran: Id of the decision that it was running, if known.
            limit: Maximum number of tasks.
            pass_key: The new pass.
        """
        claimed: Document = {"worker": {"$gte": holder, "$lt": holder + HOLDER_END}, "state": WORKING, "inBatch": True}
        documents = (
            self._current.find({**claimed, "_id": {"$ne": ran or ""}}, {"_id": True}).hint("worker").limit(limit)
        )
        return self._requeue(Requeue(claimed, pass_key), [document["_id"] for document in documents])

    def requeue_message_lost(
        self, ids: Sequence[str], queued_until: datetime | None, pass_key: str, known: Known | None = None
    ) -> list[Queued]:
        """Requeue (queued → queued) those of these tasks that lost their messages, and count a loss. Return the queued
        decisions.

        Args:
            ids: The decisions.
            queued_until: The latest `queuedAt` of the judged decisions. A decision that was requeued since is younger
                and does not match. A decision without `queuedAt`, which another program wrote, always matches. None if
                all of them are without it.
            pass_key: The new pass.
            known: The decisions as they were read.
        """
        judged = [{"queuedAt": None}] + ([{"queuedAt": {"$lte": queued_until}}] if queued_until is not None else [])
        return self._requeue(Requeue({"state": QUEUED, "$or": judged}, pass_key, "losses"), ids, known)

    def _requeue(self, batch: Requeue, ids: Sequence[str], known: Known | None = None) -> list[Queued]:
        """Requeue a batch. Return the queued decisions.

        Known decisions that are alike get constant values. The server works out the values of all others.
        """
        if known is None or len(ids) < 2:  # a single decision costs one round trip
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
        """Requeue decisions of one kind with constant values. Return the ids of those that were changed.

        This takes the server three quarters of the time of `_requeue_any`, which works out the values for each record.
        Decisions of another kind, or that changed since they were read, do not match.
        """
        queued_before, counted_before = kind
        fields = {"state": QUEUED, "pass": batch.pass_key, "queuedAt": at}
        fields["recoveryTime"] = at + timedelta(seconds=self._message_timeout)
        alike: Document = {**batch.guard, "inBatch": {"$ne": True}, "enqueuedAt": {"$type": "date"}}
        if not queued_before:
            alike["enqueuedAt"], fields["enqueuedAt"] = None, at
        if batch.overdue:
            alike["recoveryTime"] = {"$lte": at}
        changes: Document = {"$set": fields, "$unset": {"worker": True}}
        if batch.counted:  # `$inc` fails on a value that is no number
            alike[batch.counted] = {"$gte": 0} if counted_before else {"$exists": False}
            changes["$inc"] = {batch.counted: 1}
        alike["$expr"] = {"$and": [{"$lt": ["$$NOW", at + LATE]}, {"$gt": ["$$NOW", at - LATE]}]}
        try:
            # For the hint see `update_each`. The validators are bypassed to save time: they would accept these updates,
            # which set the same valid fields and a deadline on every record.
            count = self._current.update_many(
                {"_id": {"$in": keys}, **alike}, changes, hint="_id_", bypass_document_validation=True
            ).modified_count
            if count in (0, len(keys)):
                return keys if count else ()
        except OperationFailure as error:
            if not is_of_record(error):
                raise
        mark = {"_id": {"$in": keys}, "pass": batch.pass_key, "state": QUEUED}
        return [document["_id"] for document in self._current.find(mark, {"_id": True}).hint("_id_")]

    def _requeue_any(self, batch: Requeue, ids: Sequence[str]) -> list[Queued]:
        """Requeue decisions with values that the server works out for each record."""
        delay: Any = round(self._message_timeout * 1000)
        if batch.counted == "losses":
            # After many losses in a row check less and less often: if something keeps removing messages from a queue,
            # the queue must not be refilled at the full rate.
            delays_before = {"$subtract": [number_of("$losses"), LOSSES_WITHOUT_DELAY]}
            delay = by_policy(LOST_MESSAGE.policy, delays_before, self._message_timeout)
        fields: Document = {
            "state": QUEUED,
            "pass": batch.pass_key,
            "enqueuedAt": FIRST_QUEUED,
            "queuedAt": "$$NOW",
            "recoveryTime": in_time({"$add": ["$$NOW", delay]}, self._task_timeouts()),
        }
        if batch.counted in ("losses", "workersLost"):
            fields[batch.counted] = plus_one(batch.counted)
        if batch.counted == "timeouts":
            # Nobody knows which task of the batch ran. Claim each of them alone next time, so that it is known then.
            in_batch = {"$eq": ["$inBatch", True]}
            fields["timeouts"] = {"$add": [number_of("$timeouts"), {"$cond": [in_batch, 0, 1]}]}
            fields["alone"] = {"$cond": [in_batch, True, "$alone"]}
        return self._change(batch, [{"$set": fields}, {"$unset": list(forgotten(Until.NEXT_ATTEMPT))}], ids)

    def _change(self, batch: Requeue, stages: list[Document], ids: Sequence[str]) -> list[Queued]:
        """Update these decisions, and read back those that are queued with the new pass."""
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
        """Update a single decision in one round trip. Log and postpone it if it can't be written."""
        try:
            document = self._current.find_one_and_update(
                {"_id": key, **guard}, stages, projection=_MESSAGE, return_document=True
            )
        except OperationFailure as error:
            if not is_of_record(error):
                raise
            tell_unwritten(self._current, key, error)
            postpone(self._current, key)
            return []
        return [_queued(batch, document)] if document and document["state"] == QUEUED else []


def _kind(batch: Requeue, decision: Decision | None, limited: Mapping[str, float]) -> Kind | None:
    """Return the kind of a decision, or None if only `_requeue_any` can requeue it, for instance because its actor is
    in `limited`.
    """
    if decision is None or decision.in_batch or decision.actor in limited:
        return None
    if (decision.losses or 0) > LOSSES_WITHOUT_DELAY:
        return None
    counts = {"losses": decision.losses, "workersLost": decision.workers_lost, "timeouts": decision.timeouts}
    return decision.enqueued_at is not None, counts.get(batch.counted or "") is not None


def _queued(batch: Requeue, document: Document) -> Queued:
    """Return what the message of a queued decision's document needs."""
    return Queued(document["_id"], document["actor"], document["pass"], document["queuedAt"], batch.first)
