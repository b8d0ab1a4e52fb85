"""Updates for attempts that end without a result: their tasks wait again, or are retried later."""

from __future__ import annotations

from recovery.records import Decision, Refused, RetryState, TaskLimit, Until, forgotten, to_document
from recovery.store.client import Document
from recovery.store.driver_errors import translated
from recovery.store.expressions import after, literal, task_end
from recovery.store.lifecycle.decision_queries import DELAYED, WAITING, WORKING
from recovery.store.lifecycle.task_deadlines import DecisionDeadlines

_CLAIM = ("worker", "recoveryTime", "enqueuedAt", "inBatch")
"""Fields of a claim, which are removed if the claim is taken back."""


@translated
class UndecidedAttempts(DecisionDeadlines):
    """Updates for tasks whose attempts end without a result."""

    def wait_again(self, claimed: Decision) -> bool:
        """Take back a claim (working → waiting) on a task that turned out not to be ready.

        Clears the deadline, so the caller must make sure that the graph is looked at. No timeout is counted, and the
        task's time as a whole begins anew with its next enqueue. Compares the state and the pass. Written to the
        primary alone.

        Args:
            claimed: The decision as the attempt claimed it.

        Returns:
            False if the attempt no longer holds the claim.
        """
        changed = self._current.update_one(
            {"_id": claimed.id, "state": WORKING, "pass": claimed.pass_key},
            {"$set": {"state": WAITING}, "$unset": dict.fromkeys(_CLAIM, "")},
        )
        return changed.matched_count == 1

    def retry_later(
        self, decision: Decision, retry: RetryState, seconds: float, limit: TaskLimit | None = None
    ) -> bool:
        """Delay a task (working → delayed), to be retried after this many seconds. Resets the counters of lost
        attempts.

        Written with a majority, because the count of retries is shown, and decides whether there is another retry. Only
        the holder of the current pass may do this, as for an error.

        Args:
            decision: The decision as the attempt claimed it.
            retry: The state of its retries, which is stored.
            seconds: The delay.
            limit: The actor's `task_timeout`. The deadline is at most the end of the task's time.

        Returns:
            False if the attempt no longer holds the claim. True as well if an earlier call of the same attempt
            succeeded and its reply was lost.
        """
        guard, stages = _retried_later(decision, retry, seconds, limit)
        # An attempt has ended, so lost attempts are counted anew from here.
        stages += [{"$set": {"timeouts": 0}}, {"$unset": "workersLost"}]
        if self._committed.update_one(guard, stages).matched_count == 1:
            return True
        own_write = {"_id": decision.id, "retry.pass": retry.pass_key}
        return self._committed.find_one(own_write, {"_id": True}) is not None

    def give_back_refused(
        self,
        decision: Decision,
        refused: Refused,
        retry: RetryState | None,
        seconds: float,
        limit: TaskLimit | None = None,
    ) -> bool:
        """Delay a task (working → delayed) whose call the worker's code does not accept. The attempt is not counted.

        Compares the state and the pass. Written to the primary alone: a task that a failover returns to `working`
        becomes overdue.

        Args:
            decision: The decision as the attempt claimed it.
            refused: Which versions have refused the task, including this refusal.
            retry: The state of its retries, if there were any.
            seconds: The delay.
            limit: The actor's `task_timeout`.

        Returns:
            False if the attempt no longer holds the claim. True as well if an earlier call of the same attempt
            succeeded and its reply was lost.
        """
        guard, stages = _retried_later(decision, retry, seconds, limit)
        fields = {"refused": literal(to_document(refused)), "attempts": refused.attempts}
        # This version has not called the task's function.
        stages += [{"$set": fields}, {"$unset": "version"}]
        if self._current.update_one(guard, stages).matched_count == 1:
            return True
        own_write = {"_id": decision.id, "refused.pass": refused.pass_key}
        return self._current.find_one(own_write, {"_id": True}) is not None

    def clear_refusals(self, claimed: Decision) -> None:
        """Remove the record of refusals from a task whose attempt begins, if the attempt still holds its claim.

        Written to the primary alone. If a failover undoes this, the task may count as refused for too long.
        """
        claim = {"_id": claimed.id, "state": WORKING, "pass": claimed.pass_key}
        self._current.update_one(claim, {"$unset": {"refused": ""}})


def _retried_later(
    decision: Decision, retry: RetryState | None, seconds: float, limit: TaskLimit | None
) -> tuple[Document, list[Document]]:
    """Return the filter and the stages of the update that delays a task by this many seconds."""
    guard = {"_id": decision.id, "state": WORKING, "pass": decision.pass_key}
    due = after(seconds)
    # All rules take the due time from `eta`. The initial `delay` has passed, so it is removed.
    fields: Document = {"state": DELAYED, "eta": due}
    if retry is not None:
        fields["retry"] = literal(to_document(retry))
    # Not later than the end of the task's time, because a scanner then ends the task.
    fields["recoveryTime"] = due if limit is None else {"$min": [due, task_end(limit.seconds)]}
    return guard, [{"$set": fields}, {"$unset": ["delay", *forgotten(Until.NEXT_ATTEMPT)]}]
