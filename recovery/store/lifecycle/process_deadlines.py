"""Updates of the deadlines of processes.

They mark or break processes that exceed the time limit of their type, and postpone the deadlines of healthy processes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from recovery.records import ErrorInfo, ProcessState, to_document
from recovery.store.client import Document
from recovery.store.driver_errors import translated
from recovery.store.expressions import OVERDUE, after, age, idle_time, later_by, literal, past_of
from recovery.store.lifecycle.process_queries import RUNNING, ProcessQueries
from recovery.store.splitting import stamp_each, update_each

STARTED_BY_NOW: Document = past_of({"$ifNull": ["$restartedAt", "$startedAt"]})
"""When a process was started or restarted, but at most now."""


class MarkerDue(NamedTuple):
    """A process that breaks must leave a marker."""

    key: str
    """Key of the order to write the marker."""
    within: float
    """Seconds to the deadline at which a scanner writes the marker, if it was not written by then."""


@translated
class ProcessDeadlines(ProcessQueries):
    """The deadlines in the collection `processes`."""

    def note_timeouts(self, process_ids: Sequence[str], process_type: str, seconds: float) -> int:
        """Mark those of these running processes that exceed the time limit of their type. Return how many were newly
        marked.

        Compares the type, the state, the start time and that there is no mark (`timedOutAt`). Written to the primary
        alone: after a failover the mark is set again.

        Args:
            process_ids: The processes.
            process_type: Their type.
            seconds: The type's time limit.
        """
        guard = _exceeds_limit(process_type, seconds)
        return update_each(self._current, process_ids, guard, [{"$set": {"timedOutAt": "$$NOW"}}]).count

    def break_late(
        self,
        process_ids: Sequence[str],
        process_type: str,
        seconds: float,
        error: ErrorInfo,
        reopened: int | None = None,
        marker: MarkerDue | None = None,
    ) -> int:
        """Break (running → broken) those of these processes that exceed the time limit of their type. Return how many.

        They are marked as well (`timedOutAt`), so that a process that is restarted does not time out again. Compares
        the same as `note_timeouts`, and `reopened`. Written with a majority.

        Args:
            process_ids: The processes.
            process_type: Their type.
            seconds: The type's time limit.
            error: The error that they break with.
            reopened: How often they had been set running again when they were read. A process that was restarted since
                is not changed.
            marker: The marker that they must leave; see `Processes.break_`.
        """
        broken = ending_stages({"state": ProcessState.BROKEN.value, "error": to_document(error)}, marker)
        stages = [*broken, {"$set": {"timedOutAt": "$$NOW"}}]
        guard = {**_exceeds_limit(process_type, seconds), "reopened": reopened}
        return update_each(self._committed, process_ids, guard, stages).count

    def stamp(self, process_ids: Sequence[str]) -> int:
        """Set the deadline of running processes that have none to now. Return how many were changed."""
        lacking: Document = {"state": RUNNING, "recoveryTime": None}
        return stamp_each(self._current, process_ids, lacking, "$$NOW")

    def advance_deadline(self, process_type: str, seconds: float) -> int:
        """Advance the deadlines of a type's running processes to the moment when they exceed the time limit. Return how
        many were changed.

        For a type whose time limit was changed. Index `deadline`: reads all running processes.
        """
        limit_reached = {"$add": [STARTED_BY_NOW, round(seconds * 1000)]}
        is_later = {"recoveryTime": {"$exists": True}, "$expr": {"$gt": ["$recoveryTime", limit_reached]}}
        guard = {"type": process_type, "state": RUNNING, "startedAt": {"$exists": True}, "timedOutAt": None, **is_later}
        changed = self._current.update_many(guard, [{"$set": {"recoveryTime": limit_reached}}], hint="deadline")
        return changed.modified_count

    def postpone(self, process_id: str, seconds: float) -> int:
        """Move the deadline of a process that is overdue or has none to this many seconds from now. Return how many
        were changed (0 or 1).

        For a process with records that can't be read. Bypasses the validators.
        """
        changed = self._current.update_one(
            {"_id": process_id, "$or": [OVERDUE, {"recoveryTime": None}]},
            [{"$set": {"recoveryTime": after(seconds)}}],
            bypass_document_validation=True,
        )
        return changed.modified_count

    def postpone_idle(self, process_ids: Sequence[str], timeouts: Mapping[str, float] | None = None) -> int:
        """Move the deadlines of healthy overdue processes into the future. Return how many were changed.

        The delay is the age of the process, and at least its idle timeout, so checks become less frequent. Processes in
        every state are postponed: one that ended should have no deadline, and would otherwise always be looked at
        before those that run.

        Args:
            process_ids: The processes.
            timeouts: {process type: its time limit in seconds}. A deadline is not moved past a time limit in the
                future.
        """
        deadline = later_by({"$max": [idle_time("$idleTimeout"), age("$startedAt")]})
        if timeouts:
            limit_reached = _end_by_type(timeouts)
            deadline = {"$cond": [{"$gt": [limit_reached, "$$NOW"]}, {"$min": [deadline, limit_reached]}, deadline]}
        return update_each(self._current, process_ids, OVERDUE, [{"$set": {"recoveryTime": deadline}}]).count


def ending_stages(fields: Document, marker: MarkerDue | None = None) -> list[Document]:
    """Return the stages of the update that ends a process with these fields.

    The deadline is cleared or, if a marker is due, set to `marker.within` seconds from now.
    """
    ended: Document = {**{name: literal(value) for name, value in fields.items()}, "endedAt": "$$NOW"}
    if marker is None:
        return [{"$set": ended}, {"$unset": "recoveryTime"}]
    due = {"markerDue": True, "order": literal(marker.key), "recoveryTime": after(marker.within)}
    return [{"$set": {**ended, **due}}]


def _exceeds_limit(process_type: str, seconds: float) -> Document:
    """Return a filter for running, unmarked processes of a type that have run for at least this many seconds."""
    limit_reached = {"$add": [STARTED_BY_NOW, round(seconds * 1000)]}
    selection = {"type": process_type, "state": RUNNING, "timedOutAt": None}
    return {**selection, "startedAt": {"$exists": True}, "$expr": {"$lte": [limit_reached, "$$NOW"]}}


def _end_by_type(timeouts: Mapping[str, float]) -> Document:
    """Return when a process exceeds the time limit of its type; null for a type that is not in `timeouts` ({type:
    seconds}).
    """
    times = [round(seconds * 1000) for seconds in timeouts.values()]
    # `$indexOfArray` returns -1 for an unknown type, and -1 is the last element: null.
    limit = {"$arrayElemAt": [literal([*times, None]), {"$indexOfArray": [literal(list(timeouts)), "$type"]}]}
    return {"$add": [STARTED_BY_NOW, limit]}
