"""Updates of the deadlines of decisions: postponed while nothing can be done yet, advanced when something has changed.

The filter of each update repeats the whole condition that it was decided on. A decision that changed in between (a
heartbeat, a result) does not match any more, and stays as it is. All updates are written to the primary alone.
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
"""Message timeouts after which a decision that can't be read, or that lost many messages, is looked at again."""
DELAY: Document = {"$multiply": [{"$min": [number_of("$delay"), LONGEST]}, 1000]}
"""A decision's delay in milliseconds. A delay over ten years, which another program wrote, is cut to ten years, because
adding it to a date would fail.
"""
_NOT_PACED: Expression = {"$ne": ["$pacedTo", "$recoveryTime"]}
"""Condition: the deadline was not set by the actor's `requeue_rate`."""


def in_time(deadline: Expression | str, task_timeouts: Mapping[str, float]) -> Expression | str:
    """Return a deadline for a queued or delayed task: `deadline`, or the end of the task's time as a whole if it is
    sooner.

    Args:
        deadline: The deadline.
        task_timeouts: {actor: task_timeout in seconds}, of those that have one.
    """
    return {"$min": [deadline, task_end_by_actor(task_timeouts)]} if task_timeouts else deadline


@translated
class DecisionDeadlines(DecisionQueries):
    """Deadlines in the collection `decisions` that attempts and applies move."""

    def extend(self, decision_id: str, pass_key: str, timeout: float, limit: TaskLimit | None = None) -> bool:
        """Extend an attempt's claim (heartbeat). Return False if the attempt no longer holds the claim.

        Compares the state working and the pass.

        Args:
            decision_id: The decision.
            pass_key: The pass of the attempt.
            timeout: Seconds to the new deadline.
            limit: The actor's `task_timeout`. If it is forced, the deadline is at most the end of the task's time.
        """
        changed = self._current.update_one(
            {"_id": decision_id, "state": WORKING, "pass": pass_key},
            [{"$set": {"recoveryTime": work_deadline(timeout, limit)}}],
        )
        return changed.matched_count == 1

    def extend_all(self, worker: str, actor: str, timeout: float, limit: TaskLimit | None = None) -> int:
        """Extend the claims of all attempts of an actor that a worker runs. Return how many. Index `worker`.

        If one decision can't be written, the others are extended one by one, and this one past the validators.
        """
        claimed: Document = {"worker": {"$gte": worker, "$lt": worker + HOLDER_END}, "state": WORKING, "actor": actor}
        stages: list[Document] = [{"$set": {"recoveryTime": work_deadline(timeout, limit)}}]
        try:
            return self._current.update_many(claimed, stages).matched_count
        except OperationFailure as error:
            if not is_of_record(error):
                raise

        def past_validators(key: str) -> None:
            # Its attempt is alive, and would lose its claim if the deadline did not move.
            new_deadline = [{"$set": {"recoveryTime": after(timeout)}}]
            self._current.update_one({**claimed, "_id": key}, new_deadline, bypass_document_validation=True)

        ids = [document["_id"] for document in self._current.find(claimed, {"_id": True})]
        update_each(self._current, ids, claimed, stages, past_validators)
        return len(ids)

    def note_lost(self, holder: str, how: str, ran: str | None = None) -> None:
        """Record on its claimed decisions how a process ended, before they are requeued. Index `worker`.

        For information only, so it does not matter if a failover undoes it.

        Args:
            holder: Name of the process.
            how: The signal or the exit code; empty if unknown.
            ran: Id of the decision that it was running, if known. This decision then counts as claimed alone (`inBatch`
                is removed).
        """
        claimed = {"worker": {"$gte": holder, "$lt": holder + HOLDER_END}, "state": WORKING}
        if how:
            self._current.update_many(
                claimed, [{"$set": {"lostAttempt": {"attempt": "$attempts", "how": literal(how)}}}]
            )
        if ran:
            self._current.update_one({**claimed, "_id": ran}, {"$unset": {"inBatch": ""}})

    def clear_deadlines(self, decision_ids: Sequence[str], epoch: int = 0, restarts: int | None = None) -> int:
        """Clear the deadlines of decisions whose effects have reached the graph. Return how many were cleared.

        Compares the state finished, the epoch and the restarts: the graph may not know about a later epoch or restart.
        """
        applied: Document = {"state": FINISHED, "epoch": epoch, "restarts": restarts}
        at_rest: Document = {"$unset": {"recoveryTime": "", "worker": ""}}
        return update_each(self._current, decision_ids, applied, at_rest).count

    def postpone_apply(self, decision_id: str, apply_timeout: float) -> bool:
        """Postpone the deadline of a finished decision that could not be applied.

        The delay grows with the time since the decision finished, by the policy FAILED_APPLY. `worker` is removed,
        because `held_by` would otherwise find the decision before its deadline. Bypasses the validators, because an
        invalid decision may be the reason why nobody could apply it.

        Returns:
            False if the decision is not finished, is at rest, or was postponed already.
        """
        delay = by_policy_since(FAILED_APPLY.beginning_with(apply_timeout), "$outcome.finishedAt")
        stages: list[Document] = [{"$set": {"recoveryTime": {"$add": ["$$NOW", delay]}}}, {"$unset": "worker"}]
        finished: Document = {"_id": decision_id, "state": FINISHED, "recoveryTime": {"$exists": True}}
        not_postponed = {
            "$or": [{"worker": {"$exists": True}}, {"$expr": {"$lt": ["$recoveryTime", after(apply_timeout / 2)]}}]
        }
        # Bypasses the validators: the decision may be invalid, and therefore not applicable.
        changed = self._current.update_one({**finished, **not_postponed}, stages, bypass_document_validation=True)
        return changed.matched_count == 1

    def apply_later(self, decision_id: str, seconds: float) -> None:
        """Set the deadline of a finished decision to this many seconds from now, because its parent must be applied
        first.

        A decision at rest is not changed.
        """
        self._current.update_one(
            {"_id": decision_id, "state": FINISHED, "recoveryTime": {"$exists": True}},
            [{"$set": {"recoveryTime": after(seconds)}}],
        )


@translated
class TaskDeadlines:
    """Deadlines in the collection `decisions` that scanners and operators move. `task_timeouts` is as in `in_time`."""

    def __init__(
        self,
        collection: Collection[Document],
        message_timeout: float,
        task_timeouts: Callable[[], Mapping[str, float]],
    ) -> None:
        self._current, self._message_timeout, self._task_timeouts = current(collection), message_timeout, task_timeouts

    def await_eta(self, ids: Sequence[str]) -> int:
        """Move the deadlines of overdue delayed decisions to their eta, or to the end of their time. Return how many
        were moved.

        Their deadlines were set for a task_timeout that no longer applies. Only an eta in the future counts, and none
        more than ten years ahead, because no task is scheduled that far.
        """
        # An eta that is further ahead than any task is scheduled is not trusted.
        early = {"$and": [{"$gt": ["$eta", "$$NOW"]}, {"$lt": ["$eta", after(LONGEST)]}]}
        guard = {"state": DELAYED, "recoveryTime": {"$exists": True}}
        overdue = {"$expr": {"$and": [OVERDUE["$expr"], early]}}
        stages = [{"$set": {"recoveryTime": in_time("$eta", self._task_timeouts())}}]
        return update_each(self._current, ids, {**guard, **overdue}, stages).count

    def postpone_waiting(self, ids: Sequence[str], *, paced: bool = False) -> int:
        """Postpone the deadlines of overdue queued decisions whose messages are not lost. Return how many were
        postponed.

        The delay is a day.

        Args:
            ids: The decisions.
            paced: Whether their actor has a `requeue_rate`. Lost messages of such an actor are found by deadlines
                alone. So the delay is then as long as the decision has been queued, but at least one message timeout
                and at most LONGEST_WAIT message timeouts.
        """
        delay: Any = round(WAITS_FOR * 1000)
        if paced:
            minimum, maximum = (round(self._message_timeout * 1000 * times) for times in (1, LONGEST_WAIT))
            delay = {"$min": [{"$max": [minimum, age("$queuedAt")]}, maximum]}
        stages = [{"$set": {"recoveryTime": in_time({"$add": ["$$NOW", jittered(delay)]}, self._task_timeouts())}}]
        return update_each(self._current, ids, {"state": QUEUED, **OVERDUE}, stages).count

    def postpone(self, ids: Sequence[str], least: float, most: float) -> int:
        """Postpone the deadlines of overdue decisions by a random time, because too many are overdue at once. Return
        how many.

        The deadlines are marked as set by the `requeue_rate` (`pacedTo`), so that no other update makes them earlier.

        Args:
            ids: The decisions, in any state.
            least: Minimum delay in seconds.
            most: Maximum delay in seconds.
        """
        spread = {"$multiply": [{"$rand": {}}, round((most - least) * 1000)]}
        deadline = {"$add": ["$$NOW", round(least * 1000), spread]}
        stages: list[Document] = [
            {"$set": {"recoveryTime": in_time(deadline, self._task_timeouts())}},
            {"$set": {"pacedTo": "$recoveryTime"}},
        ]
        return update_each(self._current, ids, OVERDUE, stages).count

    def postpone_damaged(self, decision_id: str) -> int:
        """Postpone the deadline of a decision that can't be read and is overdue or has none. Return how many were
        changed (0 or 1).

        Bypasses the validators, which would refuse every update of this decision.
        """
        changed = self._current.update_one(
            {"_id": decision_id, "$or": [OVERDUE, {"recoveryTime": None}]},
            [{"$set": {"recoveryTime": after(LONGEST_WAIT * self._message_timeout)}}],
            bypass_document_validation=True,
        )
        return changed.modified_count

    def postpone_idle(self, ids: Sequence[str]) -> int:
        """Postpone the deadlines of overdue decisions, in any state, by one message timeout. Return how many were
        postponed.

        For decisions about which nothing can be done now.
        """
        stages = [{"$set": {"recoveryTime": after(self._message_timeout)}}]
        return update_each(self._current, ids, OVERDUE, stages).count

    def stamp(self, ids: Sequence[str]) -> int:
        """Set the deadline of live decisions that have none. Return how many were changed.

        A delayed decision gets the time when it is due, every other decision now.
        """
        due = {"$max": [date_of("$eta"), {"$add": [past_of("$queuedAt"), DELAY]}, "$$NOW"]}
        lacking = {"state": {"$in": [DELAYED, QUEUED, WORKING]}, "recoveryTime": None}
        return stamp_each(self._current, ids, lacking, {"$cond": [{"$eq": ["$state", DELAYED]}, due, "$$NOW"]})

    def advance_deadline(self, actor: str, limit: TaskLimit) -> int:
        """Advance the deadlines of an actor's tasks to the end of their time as a whole. Return how many were advanced.

        For an actor whose task_timeout was changed. Covers queued and delayed tasks and, if the limit is forced,
        working ones. Index `deadline`: reads all live decisions.
        """
        states = [QUEUED, DELAYED, *([WORKING] if limit.forced else [])]
        guard = {"actor": actor, "state": {"$in": states}, "enqueuedAt": {"$exists": True}}
        return self._advance(guard, task_end(limit.seconds))

    def taken_up(self, actor: str, soon: float = 1.0) -> int:
        """Advance the deadlines of an actor's queued tasks. Return how many were advanced.

        For an actor that an operator has unblocked, or whose queue is polled again: its messages may have been lost
        long ago. Deadlines that the `requeue_rate` has set stay. Index `pending`.

        Args:
            actor: The actor.
            soon: Message timeouts from now to the new deadline.
        """
        soon_from_now = after(soon * self._message_timeout)
        return self._advance({"actor": actor, "state": QUEUED}, soon_from_now, "pending", paced=False)

    def hurry_refused(self, actors: Sequence[str], version: str | None) -> int:
        """Make delayed tasks of these actors due now that were refused by other versions only. Return how many.

        For a worker of this version that has just registered and may accept them. Deadlines that the `requeue_rate` has
        set stay. Index `refused`.

        Args:
            actors: Actors that the worker serves.
            version: Version of the worker's application.
        """
        guard: Document = {"actor": {"$in": list(actors)}, "refused": {"$exists": True}, "state": DELAYED}
        guard["refused.by.version"] = {"$ne": version}
        stages = [{"$set": {"eta": "$$NOW", "recoveryTime": "$$NOW"}}]
        return self._current.update_many({**guard, "$expr": _NOT_PACED}, stages).modified_count

    def advance_lost(self, actor: str, until: datetime, patience: float) -> int:
        """Make queued tasks of an actor overdue now, because their messages are lost. Return how many.

        Deadlines that the `requeue_rate` has set stay. Index `pending`.

        Args:
            actor: The actor.
            until: Only tasks that were queued up to this moment.
            patience: Only deadlines more than this many seconds ahead.
        """
        not_soon = {"$expr": {"$and": [{"$gt": ["$recoveryTime", after(patience)]}, _NOT_PACED]}}
        guard: Document = {"actor": actor, "state": QUEUED, "queuedAt": {"$lte": until}, **not_soon}
        return self._current.update_many(guard, [{"$set": {"recoveryTime": "$$NOW"}}], hint="pending").modified_count

    def _advance(self, guard: Document, deadline: Expression, index: str = "deadline", *, paced: bool = True) -> int:
        """Advance the deadlines of the matching decisions that are later than `deadline`. Return how many were
        advanced.

        Args:
            guard: Filter of the decisions.
            deadline: The new deadline.
            index: Name of the index to use.
            paced: Whether to advance deadlines that the `requeue_rate` has set.
        """
        is_later: Expression = {"$gt": ["$recoveryTime", deadline]}
        if not paced:
            is_later = {"$and": [is_later, _NOT_PACED]}
        has_later_deadline = {"recoveryTime": {"$exists": True}, "$expr": is_later}
        stages = [{"$set": {"recoveryTime": deadline}}]
        return self._current.update_many({**guard, **has_later_deadline}, stages, hint=index).modified_count
