"""Deadlines of processes: when the time of its type is over a process is marked or broken, and what is found healthy is
looked at later."""

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


class MarkerDue(NamedTuple):
    """A process that breaks leaves a marker, by the order of this key; looked at in so many seconds, if it was not
    written by then."""

    key: str
    within: float


@translated
class ProcessDeadlines(ProcessQueries):
    """Deadlines in the collection `processes`."""

    def note_timeouts(self, process_ids: Sequence[str], process_type: str, seconds: float) -> int:
        """Mark running processes of a type that have run for so long, each once; how many were not marked.

        Restorable: a mark that a failover takes back is made again.
        """
        guard = _late(process_type, seconds)
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
        """running for so long → broken with this error, marked as well: one that is set running again is not late
        once more. None that was reopened since they were seen. How many. `marker`: see `break_`."""
        broken = ending_stages({"state": ProcessState.BROKEN.value, "error": to_document(error)}, marker)
        stages = [*broken, {"$set": {"timedOutAt": "$$NOW"}}]
        guard = {**_late(process_type, seconds), "reopened": reopened}
        return update_each(self._committed, process_ids, guard, stages).count

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
            over = _end_by_type(timeouts)
            later = {"$cond": [{"$gt": [over, "$$NOW"]}, {"$min": [later, over]}, later]}
        return update_each(self._current, process_ids, OVERDUE, [{"$set": {"recoveryTime": later}}]).count


def ending_stages(fields: Document, marker: MarkerDue | None = None) -> list[Document]:
    ended: Document = {**{k: literal(v) for k, v in fields.items()}, "endedAt": "$$NOW"}
    if marker is None:
        return [{"$set": ended}, {"$unset": "recoveryTime"}]
    due = {"markerDue": True, "order": literal(marker.key), "recoveryTime": after(marker.within)}
    return [{"$set": {**ended, **due}}]


def _late(process_type: str, seconds: float) -> Document:
    """Running processes of a type that have run for so long and are not marked."""
    over = {"$add": [STARTED_BY_NOW, round(seconds * 1000)]}
    among = {"type": process_type, "state": RUNNING, "timedOutAt": None}
    return {**among, "startedAt": {"$exists": True}, "$expr": {"$lte": [over, "$$NOW"]}}


def _end_by_type(timeouts: Mapping[str, float]) -> Document:
    """When a process's time is over; null for a type that is not among {type: seconds}."""
    times = [round(one * 1000) for one in timeouts.values()]
    # A type that is not found has the place -1, which is the last.
    found = {"$arrayElemAt": [literal([*times, None]), {"$indexOfArray": [literal(list(timeouts)), "$type"]}]}
    return {"$add": [STARTED_BY_NOW, found]}
