"""Queries and updates of the deadlines of processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pymongo.collection import Collection

from recovery.store.client import Document
from recovery.store.concerns import current
from recovery.store.driver_errors import translated
from recovery.store.expressions import (
    OVERDUE,
    after,
    age,
    idle_time,
    later_by,
)
from recovery.store.lifecycle.process_updates import (
    RUNNING,
    STARTED_BY_NOW,
    end_by_type,
)
from recovery.store.splitting import stamp_each, update_each


@translated
class ProcessDeadlines:
    """Deadlines in the collection `processes`."""

    def __init__(self, collection: Collection[Document]) -> None:
        self._current = current(collection)

    def overdue(self, limit: int) -> list[str]:
        """Ids of running processes whose deadline is past, the longest first. Index `deadline`."""
        found = self._current.find(OVERDUE, {"_id": True}).sort("recoveryTime", 1).limit(limit)
        return [document["_id"] for document in found]

    def without_deadline(self, limit: int) -> list[str]:
        """Ids of running processes that lack a deadline. Index `deadlineMissing`, empty while all is well."""
        found = self._current.find({"state": RUNNING, "recoveryTime": None}, {"_id": True})
        return [document["_id"] for document in found.hint("deadlineMissing").limit(limit)]

    def stamp(self, process_ids: Sequence[str]) -> int:
        """Give a deadline, now, to running processes that lack one."""
        lacking: Document = {"state": RUNNING, "recoveryTime": None}
        return stamp_each(self._current, process_ids, lacking, "$$NOW")

    def advance_deadline(self, process_type: str, seconds: float) -> int:
        """Running processes of a type whose settings changed: look when their time is over.

        Index `deadline`: reads all running processes, for an operator.
        """
        over = {"$add": [STARTED_BY_NOW, round(seconds * 1000)]}
        later = {"recoveryTime": {"$exists": True}, "$expr": {"$gt": ["$recoveryTime", over]}}
        guard = {"type": process_type, "state": RUNNING, "startedAt": {"$exists": True}, "timedOutAt": None, **later}
        changed = self._current.update_many(guard, [{"$set": {"recoveryTime": over}}], hint="deadline")
        return changed.modified_count

    def postpone(self, process_id: str, seconds: float) -> int:
        """Look at a process some of whose records can't be read after so many seconds."""
        changed = self._current.update_one(
            {"_id": process_id, "$or": [OVERDUE, {"recoveryTime": None}]},
            [{"$set": {"recoveryTime": after(seconds)}}],
            bypass_document_validation=True,
        )
        return changed.modified_count

    def postpone_idle(self, process_ids: Sequence[str], timeouts: Mapping[str, float] | None = None) -> int:
        """Move the deadlines of processes found healthy: as far off as they are old, so looks grow rare; but not
        past the `timeouts` of their types, {type: seconds}, that are still to come.

        Whatever their state: one that ended has no deadline, or it would stand before those that run for ever.
        """
        later = later_by({"$max": [idle_time("$idleTimeout"), age("$startedAt")]})
        if timeouts:
            over = end_by_type(timeouts)
            later = {"$cond": [{"$gt": [over, "$$NOW"]}, {"$min": [later, over]}, later]}
        return update_each(self._current, process_ids, OVERDUE, [{"$set": {"recoveryTime": later}}]).count
