"""Decisions ended by an error, in batches: because their attempts are lost, or their time is over.

As with requeues, each update repeats the whole condition that it was decided on, and marks what it changed with a new
pass, by which that is read back. A majority has to have it, because the process is broken for it.
"""

from __future__ import annotations

from collections.abc import Sequence

from pymongo.collection import Collection

from recovery.records import ErrorInfo, TaskLimit, to_document
from recovery.store.client import Document
from recovery.store.concerns import committed, current
from recovery.store.driver_errors import translated
from recovery.store.expressions import OVERDUE, literal, plus_one, task_end
from recovery.store.lifecycle.decision_queries import DELAYED, FINISHED, QUEUED, WORKING
from recovery.store.splitting import update_each


@translated
class TaskEnds:
    """Updates of batches in the collection `decisions`."""

    def __init__(self, collection: Collection[Document]) -> None:
        self._current, self._committed = current(collection), committed(collection)

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
