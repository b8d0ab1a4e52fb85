"""Deadlines of decisions, moved in batches: postponed while nothing can be done yet, advanced when something changed.

The filter of each update is the whole condition that it was decided on, so what changed in between (a heartbeat, a
result) no longer matches, and wins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from pymongo.collection import Collection
from pymongo.errors import OperationFailure

from recovery.limits import LONGEST, WAITS_FOR
from recovery.records import (
    TaskLimit,
)
from recovery.records.ids import HOLDER_END
from recovery.retry.own_work import FAILED_APPLY, LOST_MESSAGE
from recovery.store.client import Document
from recovery.store.concerns import current
from recovery.store.driver_errors import translated
from recovery.store.expressions import (
    OVERDUE,
    Expression,
    after,
    age,
    by_policy_since,
    date_of,
    jittered,
    literal,
    number_of,
    past_of,
    task_end,
    task_end_by_actor,
    work_deadline,
)
from recovery.store.lifecycle.decision_queries import DELAYED, FINISHED, QUEUED, WORKING, DecisionQueries
from recovery.store.splitting import is_of_record, stamp_each, update_each

LONGEST_WAIT = round(LOST_MESSAGE.policy.maximum)
"""So many message timeouts: what can't be read is looked at again after them, and what lost its message many times."""
DELAY: Document = {"$multiply": [{"$min": [number_of("$delay"), LONGEST]}, 1000]}
"""In milliseconds; ten years for one that is longer, which another program wrote: the sum would be none."""
_NOT_PACED: Expression = {"$ne": ["$pacedTo", "$recoveryTime"]}
"""The deadline is none that the pace has set."""


def in_time(deadline: Expression | str, task_timeouts: Mapping[str, float]) -> Expression | str:
    """A deadline of what is queued, or the end of the task's time if that is sooner. `task_timeouts` has the actors
    that have one, in seconds."""
    return {"$min": [deadline, task_end_by_actor(task_timeouts)]} if task_timeouts else deadline


@translated
class DecisionDeadlines(DecisionQueries):
    """Deadlines in the collection `decisions`: of attempts, by those who are at them, and of ends that are applied."""

    def extend(self, decision_id: str, pass_key: str, timeout: float, limit: TaskLimit | None = None) -> bool:
        """Heartbeat: move the deadline of an attempt; False: it no longer holds the claim."""
        changed = self._current.update_one(
            {"_id": decision_id, "state": WORKING, "pass": pass_key},
            [{"$set": {"recoveryTime": work_deadline(timeout, limit)}}],
        )
        return changed.matched_count == 1

    def extend_all(self, worker: str, actor: str, timeout: float, limit: TaskLimit | None = None) -> int:
        """A heartbeat for all attempts of an actor that a worker runs: how many. Index `worker`."""
        held: Document = {"worker": {"$gte": worker, "$lt": worker + HOLDER_END}, "state": WORKING, "actor": actor}
        stages: list[Document] = [{"$set": {"recoveryTime": work_deadline(timeout, limit)}}]
        try:
            return self._current.update_many(held, stages).matched_count
        except OperationFailure as error:
            if not is_of_record(error):
                raise

        def past_validators(key: str) -> None:
            # Its attempt lives: without a deadline that moves it would be taken from it.
            later = [{"$set": {"recoveryTime": after(timeout)}}]
            self._current.update_one({**held, "_id": key}, later, bypass_document_validation=True)

        ids = [found["_id"] for found in self._current.find(held, {"_id": True})]
        update_each(self._current, ids, held, stages, past_validators)
        return len(ids)

    def note_lost(self, holder: str, how: str, ran: str | None = None) -> None:
        """Keep how the process of a holder ended, with what it works on; before that is requeued. What is known to have
        `ran` there counts as if it had been claimed alone. Restorable: it is only told of, and where it is not known
        the next time tells. Index `worker`."""
        held = {"worker": {"$gte": holder, "$lt": holder + HOLDER_END}, "state": WORKING}
        if how:
            self._current.update_many(held, [{"$set": {"lostAttempt": {"attempt": "$attempts", "how": literal(how)}}}])
        if ran:
            self._current.update_one({**held, "_id": ran}, {"$unset": {"inBatch": ""}})

    def clear_deadlines(self, decision_ids: Sequence[str], epoch: int = 0, restarts: int | None = None) -> int:
        """Take the deadlines off decisions whose effects have reached the graph, unless restarted since, or taken to
        another epoch, whose graph may not know of them."""
        applied: Document = {"state": FINISHED, "epoch": epoch, "restarts": restarts}
        at_rest: Document = {"$unset": {"recoveryTime": "", "worker": ""}}
        return update_each(self._current, decision_ids, applied, at_rest).count

    def postpone_apply(self, decision_id: str, apply_timeout: float) -> bool:
        """Move the deadline of a finished decision that could not be applied, by its policy: the longer ago it
        finished, the further. Whoever finished it is forgotten, or it would be found by his name before.
        False: it is no longer finished, or was postponed before.
        """
        wait = by_policy_since(FAILED_APPLY.beginning_with(apply_timeout), "$outcome.finishedAt")
        stages: list[Document] = [{"$set": {"recoveryTime": {"$add": ["$$NOW", wait]}}}, {"$unset": "worker"}]
        finished: Document = {"_id": decision_id, "state": FINISHED, "recoveryTime": {"$exists": True}}
        anew = {"$or": [{"worker": {"$exists": True}}, {"$expr": {"$lt": ["$recoveryTime", after(apply_timeout / 2)]}}]}
        # It need not be valid: nobody could apply it then.
        changed = self._current.update_one({**finished, **anew}, stages, bypass_document_validation=True)
        return changed.matched_count == 1

    def apply_later(self, decision_id: str, seconds: float) -> None:
        """Move the deadline of a finished decision whose parent has to be applied first."""
        self._current.update_one(
            {"_id": decision_id, "state": FINISHED, "recoveryTime": {"$exists": True}},
            [{"$set": {"recoveryTime": after(seconds)}}],
        )


@translated
class TaskDeadlines:
    """Updates of `recoveryTime` in the collection `decisions`. `task_timeouts` is as for `in_time`."""

    def __init__(
        self,
        collection: Collection[Document],
        message_timeout: float,
        task_timeouts: Callable[[], Mapping[str, float]],
    ) -> None:
        self._current, self._message_timeout, self._task_timeouts = current(collection), message_timeout, task_timeouts

    def await_eta(self, ids: Sequence[str]) -> int:
        """delayed, deadline past and its time still to come: look again then, or when its time as a whole is over. The
        deadline was for a task_timeout that holds no more."""
        # Of one that is further off than any is scheduled nothing is believed.
        early = {"$and": [{"$gt": ["$eta", "$$NOW"]}, {"$lt": ["$eta", after(LONGEST)]}]}
        guard = {"state": DELAYED, "recoveryTime": {"$exists": True}}
        overdue = {"$expr": {"$and": [OVERDUE["$expr"], early]}}
        stages = [{"$set": {"recoveryTime": in_time("$eta", self._task_timeouts())}}]
        return update_each(self._current, ids, {**guard, **overdue}, stages).count

    def postpone_waiting(self, ids: Sequence[str], *, paced: bool = False) -> int:
        """queued, deadline past, message still to come: look again in a day. `paced`, of an actor with a
        `requeue_rate`, when it is twice as old: what is lost of its messages is known by deadlines alone."""
        wait: Any = round(WAITS_FOR * 1000)
        if paced:
            least, most = (round(self._message_timeout * 1000 * times) for times in (1, LONGEST_WAIT))
            wait = {"$min": [{"$max": [least, age("$queuedAt")]}, most]}
        stages = [{"$set": {"recoveryTime": in_time({"$add": ["$$NOW", jittered(wait)]}, self._task_timeouts())}}]
        return update_each(self._current, ids, {"state": QUEUED, **OVERDUE}, stages).count

    def postpone(self, ids: Sequence[str], least: float, most: float) -> int:
        """Whatever its state, deadline past, and too many at once: look again after `least` to `most` seconds. The
        deadline is marked as the pace's, so that nothing else sets an earlier one."""
        spread = {"$multiply": [{"$rand": {}}, round((most - least) * 1000)]}
        later = {"$add": ["$$NOW", round(least * 1000), spread]}
        stages: list[Document] = [
            {"$set": {"recoveryTime": in_time(later, self._task_timeouts())}},
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
        due = {"$max": [date_of("$eta"), {"$add": [past_of("$queuedAt"), DELAY]}, "$$NOW"]}
        lacking = {"state": {"$in": [DELAYED, QUEUED, WORKING]}, "recoveryTime": None}
        return stamp_each(self._current, ids, lacking, {"$cond": [{"$eq": ["$state", DELAYED]}, due, "$$NOW"]})

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
