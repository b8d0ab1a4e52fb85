"""Updates that fail many decisions at once, because their attempts are lost or their time is over.

As with requeues, each update repeats the whole condition that it was decided on, and sets a new pass, with which the
changed decisions are read back. Written with a majority, because the process breaks as a consequence.
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
        """Fail (working → finished) those of these decisions that are overdue or claimed by `workers`. Return the ids
        of those that failed.

        Counts a timeout. The deadline becomes now, so the failure is applied at once. The outcome's pass is new, so no
        attempt's result can be taken for it.

        Args:
            ids: The decisions.
            error: The error of the outcome.
            pass_key: The new pass.
            workers: Names of dead holders. If absent, overdue decisions match instead.
        """
        guard = OVERDUE if workers is None else {"worker": {"$in": list(workers)}}
        return self._end({"state": WORKING, **guard}, ids, error, pass_key, {"timeouts": plus_one("timeouts")})

    def out_of_time(
        self, ids: Sequence[str], actor: str, limit: TaskLimit, error: ErrorInfo, pass_key: str
    ) -> list[str]:
        """Fail those of these decisions whose time as a whole is over. Return the ids of those that failed.

        Matches queued and delayed decisions, and working ones if they are overdue or if the limit is forced. The
        deadline becomes now, so the failure is applied at once. No timeout is counted, because no attempt was lost.

        Args:
            ids: The decisions.
            actor: The actor of all of them.
            limit: The actor's `task_timeout`.
            error: The error of the outcome.
            pass_key: The new pass.
        """
        working: Document = {"state": WORKING} if limit.forced else {"state": WORKING, **OVERDUE}
        is_over = {"$expr": {"$lte": [task_end(limit.seconds), "$$NOW"]}}
        guard = {
            "actor": actor,
            "enqueuedAt": {"$exists": True},
            **is_over,
            "$or": [{"state": {"$in": [QUEUED, DELAYED]}}, working],
        }
        return self._end(guard, ids, error, pass_key, {})

    def _end(
        self, guard: Document, ids: Sequence[str], error: ErrorInfo, pass_key: str, counted: Document
    ) -> list[str]:
        """Finish the matching decisions with this error. Return the ids of those that have it now."""
        outcome = {
            "$mergeObjects": [
                literal({"pass": pass_key, "error": to_document(error)}),
                {"finishedAt": "$$NOW"},
            ]
        }
        fields = {"state": FINISHED, "outcome": outcome, "recoveryTime": "$$NOW", **counted}
        selection = {"_id": {"$in": list(ids)}}
        # The process breaks because of this, and somebody is told, so a majority must have it first.
        update_each(self._committed, ids, guard, [{"$set": fields}, {"$unset": "inBatch"}])
        marked = self._current.find({**selection, "outcome.pass": pass_key}, {"_id": True}).hint("_id_")
        return [document["_id"] for document in marked]
