"""Attempts that end without an outcome: their tasks wait, or are tried again later."""

from __future__ import annotations

from recovery.records import Decision, Refused, RetryState, TaskLimit, Until, forgotten, to_document
from recovery.store.client import Document
from recovery.store.driver_errors import translated
from recovery.store.expressions import after, literal, task_end
from recovery.store.lifecycle.decision_queries import DELAYED, WAITING, WORKING
from recovery.store.lifecycle.task_deadlines import DecisionDeadlines

_CLAIM = ("worker", "recoveryTime", "enqueuedAt", "inBatch")
"""What a claim that is taken back leaves nothing of."""


@translated
class UndecidedAttempts(DecisionDeadlines):
    """What becomes of a task whose attempt decided nothing. `claimed` is the decision as the attempt claimed it."""

    def wait_again(self, claimed: Decision) -> bool:
        """working → waiting, for a claim on what turns out not to be ready: its graph has to be looked at. No timeout
        is counted, and its time as a whole begins when it can be taken again. False: it no longer holds the claim."""
        changed = self._current.update_one(
            {"_id": claimed.id, "state": WORKING, "pass": claimed.pass_key},
            {"$set": {"state": WAITING}, "$unset": dict.fromkeys(_CLAIM, "")},
        )
        return changed.matched_count == 1

    def retry_later(
        self, decision: Decision, retry: RetryState, seconds: float, limit: TaskLimit | None = None
    ) -> bool:
        """working → delayed, to be tried again after so many seconds; `retry` is kept with it. Acknowledged: what is
        counted here is told, and decides whether there is another one.

        `decision` is as the attempt claimed it; as for an error, only the holder of the current pass may. False: it
        no longer is. An attempt that asks again after a lost reply gets True if it was its own.
        """
        guard, stages = _retried_later(decision, retry, seconds, limit)
        # An attempt has ended: losses are no longer in a row.
        stages += [{"$set": {"timeouts": 0}}, {"$unset": "workersLost"}]
        if self._committed.update_one(guard, stages).matched_count == 1:
            return True
        ours = {"_id": decision.id, "retry.pass": retry.pass_key}
        return self._committed.find_one(ours, {"_id": True}) is not None

    def give_back_refused(
        self,
        decision: Decision,
        refused: Refused,
        retry: RetryState | None,
        seconds: float,
        limit: TaskLimit | None = None,
    ) -> bool:
        """working → delayed, for a task whose call the worker's code does not accept. Its attempt is not counted.

        Restorable: a task that a failover takes back to `working` is overdue at its deadline.

        Args:
            decision: As the attempt claimed it.
            refused: Who has refused the task, this time included.
            retry: The retries of the task, if there were any.
            seconds: The delay.
            limit: The task's `task_timeout`.

        Returns:
            False if the attempt no longer holds the claim. True for an attempt that asks again after a lost reply.
        """
        guard, stages = _retried_later(decision, retry, seconds, limit)
        fields = {"refused": literal(to_document(refused)), "attempts": refused.attempts}
        # Its function was not called by this version.
        stages += [{"$set": fields}, {"$unset": "version"}]
        if self._current.update_one(guard, stages).matched_count == 1:
            return True
        ours = {"_id": decision.id, "refused.pass": refused.pass_key}
        return self._current.find_one(ours, {"_id": True}) is not None

    def clear_refusals(self, claimed: Decision) -> None:
        """Forget who has refused a task whose attempt begins, if the attempt still holds its claim.

        Restorable: if a failover takes this back, the task may count as refused for longer than it was.
        """
        held = {"_id": claimed.id, "state": WORKING, "pass": claimed.pass_key}
        self._current.update_one(held, {"$unset": {"refused": ""}})


def _retried_later(
    decision: Decision, retry: RetryState | None, seconds: float, limit: TaskLimit | None
) -> tuple[Document, list[Document]]:
    """Condition and stages of the update that has a task tried again after so many seconds."""
    guard = {"_id": decision.id, "state": WORKING, "pass": decision.pass_key}
    due = after(seconds)
    # By its eta every rule knows when it is due; what it was delayed by at first is over.
    fields: Document = {"state": DELAYED, "eta": due}
    if retry is not None:
        fields["retry"] = literal(to_document(retry))
    # Not past the end of its time: it is looked at then, and ends.
    fields["recoveryTime"] = due if limit is None else {"$min": [due, task_end(limit.seconds)]}
    return guard, [{"$set": fields}, {"$unset": ["delay", *forgotten(Until.NEXT_ATTEMPT)]}]
