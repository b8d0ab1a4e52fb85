"""Updates of many decisions at once: enqueue what is ready, requeue what is overdue.

All of one shape. The caller found and judged a batch; one `update_many` repeats the whole condition for each
of its ids and marks what it changed with the batch's own new pass; one find reads back what carries the mark.
What changed in between (a heartbeat, a result) no longer matches, and wins. So a thousand records cost two
round trips, and the new pass is both the mark of the claim and what makes old messages and results stale. Where the
caller has just read them, most are alike, and are requeued by constants (`requeue_alike`), without being read back.

Restorable, but for the ends: if a failover takes a requeue back, the record is overdue once more, and the message that
was pushed carries a pass that no longer matches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from pymongo.collection import Collection
from pymongo.errors import OperationFailure

from recovery.limits import LONGEST, WAITS_FOR
from recovery.records import ErrorInfo, TaskLimit, to_document
from recovery.records.ids import HOLDER_END
from recovery.store.client import Document
from recovery.store.concerns import committed, current
from recovery.store.driver_errors import translated
from recovery.store.expressions import (
    FIRST_QUEUED,
    OVERDUE,
    Expression,
    after,
    age,
    date_of,
    jittered,
    literal,
    number_of,
    past_of,
    plus_one,
    task_end,
    task_end_by_actor,
)
from recovery.store.lifecycle.decision_updates import DELAYED, FINISHED, QUEUED, WAITING, WORKING
from recovery.store.lifecycle.decisions import Queued
from recovery.store.lifecycle.requeue_alike import LOSSES_WITHOUT_DELAY, AlikeRequeues, Known, Requeue
from recovery.store.splitting import is_of_record, postpone, stamp_each, tell_unwritten, update_each

LONGEST_WAIT = 30
"""So many message timeouts: what can't be read is looked at again after them, and what lost its message many times."""
_LOST_AGAIN: Document = {
    # Doubled with each loss from then on: a queue whose messages something takes is not filled at full rate for ever.
    "$min": [
        LONGEST_WAIT,
        {"$pow": [2, {"$min": [5, {"$max": [0, {"$subtract": [number_of("$losses"), LOSSES_WITHOUT_DELAY]}]}]}]},
    ]
}

_NOT_PACED: Expression = {"$ne": ["$pacedTo", "$recoveryTime"]}
"""The deadline is none that the pace has set."""

_DELAY: Document = {"$multiply": [{"$min": [number_of("$delay"), LONGEST]}, 1000]}
"""In milliseconds; ten years for one that is longer, which another program wrote: the sum would be none."""


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
        self._current, self._committed = current(collection), committed(collection)
        self._message_timeout, self._task_timeouts = message_timeout, task_timeouts
        self._requeue_alike = AlikeRequeues(self._current, at_least, message_timeout, task_timeouts)

    def enqueue_ready(self, ids: Sequence[str], pass_key: str) -> list[Queued]:
        """waiting → queued; or → delayed, where an eta or delay is still to pass."""
        starts = {"$max": [date_of("$eta"), {"$add": ["$$NOW", _DELAY]}]}
        due = {"$lte": [starts, "$$NOW"]}
        stages = [
            {
                "$set": {
                    "state": {"$cond": [due, QUEUED, DELAYED]},
                    "pass": pass_key,
                    # A task's time begins when it could be taken.
                    "enqueuedAt": {"$cond": [due, FIRST_QUEUED, "$$REMOVE"]},
                    "queuedAt": "$$NOW",
                    "recoveryTime": {"$cond": [due, self._in_time(after(self._message_timeout)), starts]},
                }
            }
        ]
        return self._change({"state": WAITING}, stages, ids, pass_key, first=False)

    def enqueue_due(self, ids: Sequence[str], pass_key: str, known: Known | None = None) -> list[Queued]:
        """delayed, eta past → queued."""
        return self._requeue(Requeue({"state": DELAYED}, pass_key, overdue=True), ids, first=False, known=known)

    def await_eta(self, ids: Sequence[str]) -> int:
        """delayed, deadline past and its time still to come: look again then, or when its time as a whole is over. The
        deadline was for a task_timeout that holds no more."""
        # Of one that is further off than any is scheduled nothing is believed.
        early = {"$and": [{"$gt": ["$eta", "$$NOW"]}, {"$lt": ["$eta", after(LONGEST)]}]}
        guard = {"state": DELAYED, "recoveryTime": {"$exists": True}}
        overdue = {"$expr": {"$and": [OVERDUE["$expr"], early]}}
        stages = [{"$set": {"recoveryTime": self._in_time("$eta")}}]
        return update_each(self._current, ids, {**guard, **overdue}, stages).count

    def timed_out(self, ids: Sequence[str], pass_key: str, known: Known | None = None) -> list[Queued]:
        """working, deadline past → queued; counts a timeout. Behind what waits: it may hang again, and so many as hang
        would else keep all others of their actor waiting."""
        batch = Requeue({"state": WORKING}, pass_key, "timeouts", overdue=True)
        return self._requeue(batch, ids, first=False, known=known)

    def requeue_worker_lost(self, ids: Sequence[str], workers: Sequence[str], pass_key: str) -> list[Queued]:
        """working for holders that are gone → queued; counts a timeout: the task may have killed them."""
        held = {"state": WORKING, "worker": {"$in": list(workers)}}
        return self._requeue(Requeue(held, pass_key, "timeouts"), ids)

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
        return self._requeue(Requeue({"state": QUEUED, "$or": judged}, pass_key, "losses"), ids, known=known)

    def postpone_waiting(self, ids: Sequence[str], *, paced: bool = False) -> int:
        """queued, deadline past, message still to come: look again in a day. `paced`, of an actor with a
        `requeue_rate`, when it is twice as old: what is lost of its messages is known by deadlines alone."""
        wait: Any = round(WAITS_FOR * 1000)
        if paced:
            least, most = (round(self._message_timeout * 1000 * times) for times in (1, LONGEST_WAIT))
            wait = {"$min": [{"$max": [least, age("$queuedAt")]}, most]}
        stages = [{"$set": {"recoveryTime": self._in_time({"$add": ["$$NOW", jittered(wait)]})}}]
        return update_each(self._current, ids, {"state": QUEUED, **OVERDUE}, stages).count

    def postpone(self, ids: Sequence[str], least: float, most: float) -> int:
        """Whatever its state, deadline past, and too many at once: look again after `least` to `most` seconds. The
        deadline is marked as the pace's, so that nothing else sets an earlier one."""
        spread = {"$multiply": [{"$rand": {}}, round((most - least) * 1000)]}
        later = {"$add": ["$$NOW", round(least * 1000), spread]}
        stages: list[Document] = [
            {"$set": {"recoveryTime": self._in_time(later)}},
            {"$set": {"pacedTo": "$recoveryTime"}},
        ]
        return update_each(self._current, ids, OVERDUE, stages).count

    def postpone_damaged(self, decision_id: str) -> int:
        """One that can't be read: look again later. It need not be valid: the validators would refuse any update."""
        changed = self._current.update_one(
            {"_id": decision_id, "$or": [OVERDUE, {"recoveryTime": None}]},
            [{"$set": {"recoveryTime": after(LONGEST_WAIT * self._message_timeout)}}],
            bypass_document_validation=True,
        )
        return changed.modified_count

    def postpone_idle(self, ids: Sequence[str]) -> int:
        """Whatever its state, deadline past, and nothing could be done about it now: look again later."""
        stages = [{"$set": {"recoveryTime": after(self._message_timeout)}}]
        return update_each(self._current, ids, OVERDUE, stages).count

    def stamp(self, ids: Sequence[str]) -> int:
        """Give a deadline to live decisions that lack one: now, and to what is delayed its time."""
        due = {"$max": [date_of("$eta"), {"$add": [past_of("$queuedAt"), _DELAY]}, "$$NOW"]}
        lacking = {"state": {"$in": [DELAYED, QUEUED, WORKING]}, "recoveryTime": None}
        return stamp_each(self._current, ids, lacking, {"$cond": [{"$eq": ["$state", DELAYED]}, due, "$$NOW"]})

    def fail(
        self, ids: Sequence[str], error: ErrorInfo, pass_key: str, workers: Sequence[str] | None = None
    ) -> list[str]:
        """working and overdue (or held by `workers`) → finished with an error, due to be applied at once.

        The outcome's pass is new: no attempt's result is taken for it.
        """
        guard = OVERDUE if workers is None else {"worker": {"$in": list(workers)}}
        return self._end({"state": WORKING, **guard}, ids, error, pass_key, {"timeouts": plus_one("timeouts")})

    def out_of_time(
        self, ids: Sequence[str], actor: str, limit: TaskLimit, error: ErrorInfo, pass_key: str
    ) -> list[str]:
        """queued or to be tried again, or working and overdue (`limit.forced`: or not), its time as a whole over →
        finished with an error, due to be applied at once. No timeout is counted: no attempt was lost."""
        working: Document = {"state": WORKING} if limit.forced else {"state": WORKING, **OVERDUE}
        over = {"$expr": {"$lte": [task_end(limit.seconds), "$$NOW"]}}
        guard = {
            "actor": actor,
            "enqueuedAt": {"$exists": True},
            **over,
            "$or": [{"state": {"$in": [QUEUED, DELAYED]}}, working],
        }
        return self._end(guard, ids, error, pass_key, {})

    def advance_deadline(self, actor: str, limit: TaskLimit) -> int:
        """queued, to be tried again or, if forced, working tasks of an actor whose settings changed: look when their
        time is over.

        Index `deadline`: reads all live decisions, for an operator.
        """
        states = [QUEUED, DELAYED, *([WORKING] if limit.forced else [])]
        guard = {"actor": actor, "state": {"$in": states}, "enqueuedAt": {"$exists": True}}
        return self._sooner(guard, task_end(limit.seconds))

    def taken_up(self, actor: str, soon: float = 1.0) -> int:
        """queued tasks of an actor that is taken up again, by an operator or since its queue is polled again: look for
        their messages soon, after a message timeout or a part of it. They may have been lost long ago, and nobody was
        in a hurry to tell. Index `pending`."""
        soon_from_now = after(soon * self._message_timeout)
        return self._sooner({"actor": actor, "state": QUEUED}, soon_from_now, "pending", paced=False)

    def hurry_refused(self, actors: Sequence[str], version: str | None) -> int:
        """delayed because workers refuse them → due now, of these actors: a worker that serves them has registered, and
        may accept them, unless one of its version has refused them. Index `refused`."""
        guard: Document = {"actor": {"$in": list(actors)}, "refused": {"$exists": True}, "state": DELAYED}
        guard["refused.by.version"] = {"$ne": version}
        stages = [{"$set": {"eta": "$$NOW", "recoveryTime": "$$NOW"}}]
        return self._current.update_many({**guard, "$expr": _NOT_PACED}, stages).modified_count

    def advance_lost(self, actor: str, until: datetime, patience: float) -> int:
        """queued tasks of an actor that were queued up to then, whose messages are lost: overdue now, if they are not
        looked at within so many seconds, nor have their turn by the pace. Index `pending`."""
        not_soon = {"$expr": {"$and": [{"$gt": ["$recoveryTime", after(patience)]}, _NOT_PACED]}}
        guard: Document = {"actor": actor, "state": QUEUED, "queuedAt": {"$lte": until}, **not_soon}
        return self._current.update_many(guard, [{"$set": {"recoveryTime": "$$NOW"}}], hint="pending").modified_count

    def _sooner(self, guard: Document, deadline: Expression, index: str = "deadline", *, paced: bool = True) -> int:
        is_later: Expression = {"$gt": ["$recoveryTime", deadline]}
        if not paced:
            is_later = {"$and": [is_later, _NOT_PACED]}
        later = {"recoveryTime": {"$exists": True}, "$expr": is_later}
        stages = [{"$set": {"recoveryTime": deadline}}]
        return self._current.update_many({**guard, **later}, stages, hint=index).modified_count

    def _in_time(self, deadline: Expression | str) -> Expression | str:
        """A deadline of what is queued, or the end of the task's time if that is sooner."""
        timeouts = self._task_timeouts()
        return {"$min": [deadline, task_end_by_actor(timeouts)]} if timeouts else deadline

    def _end(
        self, guard: Document, ids: Sequence[str], error: ErrorInfo, pass_key: str, counted: Document
    ) -> list[str]:
        outcome = {
            "$mergeObjects": [
                literal({"pass": pass_key, "error": to_document(error)}),
                {"finishedAt": "$$NOW"},
            ]
        }
        fields = {"state": FINISHED, "outcome": outcome, "recoveryTime": "$$NOW", **counted}
        selection = {"_id": {"$in": list(ids)}}
        # Its process is broken for it, and somebody told: a majority has to have it first.
        update_each(self._committed, ids, guard, [{"$set": fields}, {"$unset": "inBatch"}])
        marked = self._current.find({**selection, "outcome.pass": pass_key}, {"_id": True}).hint("_id_")
        return [document["_id"] for document in marked]

    def _requeue(
        self, batch: Requeue, ids: Sequence[str], *, first: bool = True, known: Known | None = None
    ) -> list[Queued]:
        if known is None or len(ids) < 2:  # one costs one round trip
            return self._requeue_any(batch, ids, first)
        alike = self._requeue_alike(ids, known, batch)
        queued = [Queued(key, known[key].actor, batch.pass_key, at, first) for key, at in alike.queued_at.items()]
        return queued + self._requeue_any(batch, alike.left, first)

    def _requeue_any(self, batch: Requeue, ids: Sequence[str], first: bool) -> list[Queued]:
        wait: Any = round(self._message_timeout * 1000)
        if batch.counted == "losses":  # after many in a row it is looked at ever more rarely
            wait = {"$multiply": [wait, _LOST_AGAIN]}
        fields: Document = {
            "state": QUEUED,
            "pass": batch.pass_key,
            "enqueuedAt": FIRST_QUEUED,
            "queuedAt": "$$NOW",
            "recoveryTime": self._in_time({"$add": ["$$NOW", wait]}),
        }
        if batch.counted == "losses":
            fields["losses"] = plus_one("losses")
        if batch.counted == "timeouts":
            # Of a batch nobody knows which of them ran. By the next time it is known.
            in_batch = {"$eq": ["$inBatch", True]}
            fields["timeouts"] = {"$add": [number_of("$timeouts"), {"$cond": [in_batch, 0, 1]}]}
            fields["alone"] = {"$cond": [in_batch, True, "$alone"]}
        guard = {**batch.guard, **OVERDUE} if batch.overdue else batch.guard
        return self._change(guard, [{"$set": fields}, {"$unset": ["worker", "inBatch"]}], ids, batch.pass_key, first)

    def _change(
        self, guard: Document, stages: list[Document], ids: Sequence[str], pass_key: str, first: bool
    ) -> list[Queued]:
        if not ids:
            return []
        if len(ids) == 1:  # one round trip instead of two
            return self._change_one(guard, stages, ids[0], first)
        written = update_each(self._current, ids, guard, stages)
        if written.whole and not written.count:
            return []
        selection = {"_id": {"$in": list(ids)}}
        marked = self._current.find({**selection, "pass": pass_key, "state": QUEUED}, _MESSAGE).hint("_id_")
        return [_queued(document, first) for document in marked]

    def _change_one(self, guard: Document, stages: list[Document], key: str, first: bool) -> list[Queued]:
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
        return [_queued(one, first)] if one and one["state"] == QUEUED else []


_MESSAGE = {"actor": True, "pass": True, "queuedAt": True, "state": True}


def _queued(document: dict[str, Any], first: bool) -> Queued:
    return Queued(document["_id"], document["actor"], document["pass"], document["queuedAt"], first)
