"""Updates of the Process records: starts, ends and deadlines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import NamedTuple

from pymongo.errors import BulkWriteError, DuplicateKeyError

from recovery.records import (
    ErrorInfo,
    Process,
    ProcessState,
    to_document,
)
from recovery.store.client import Document
from recovery.store.driver_errors import translated
from recovery.store.expressions import (
    OVERDUE,
    after,
    age,
    by_id,
    idle_time,
    later_by,
    literal,
    past_of,
)
from recovery.store.lifecycle.process_queries import RUNNING, ProcessQueries, brief_of
from recovery.store.record_reading import PROCESS_FIELDS
from recovery.store.splitting import find_keys, stamp_each, update_each

FINISHED, ABORTED = ProcessState.FINISHED.value, ProcessState.ABORTED.value
DUPLICATE_KEY = 11000
STARTED_BY_NOW: Document = past_of({"$ifNull": ["$restartedAt", "$startedAt"]})


class MarkerDue(NamedTuple):
    """A process that breaks leaves a marker, by the order of this key; looked at in so many seconds, if it was not
    written by then."""

    key: str
    within: float


@dataclass(frozen=True, slots=True)
class Ends:
    """Which processes were finished by an update, and which are finished: by this one, or before. The first may lack
    some, where two were at it in the same millisecond."""

    by_this: set[str]
    there: set[str]


@translated
class Processes(ProcessQueries):
    """The collection `processes`."""

    def insert(self, process: Process, first_look: float) -> Process:
        """Save a process, its first deadline `first_look` seconds away; this alone acknowledges its start.

        Returns it as saved, or the process of the same type and custom id that is there already, briefly. An upsert
        and not an insert, since only an update knows the database's clock; running it twice is harmless.
        """
        document = to_document(process)
        key = {"_id": document.pop("_id")}
        if process.custom_id is not None:
            key = {"type": document.pop("type"), "customId": document.pop("customId")}
            document["_id"] = process.id
        started = {"startedAt": "$$NOW", "recoveryTime": after(first_look)}
        new: Document = {"$mergeObjects": ["$$ROOT", literal(document), started]}
        stages = [{"$replaceWith": {"$ifNull": [existing(), new]}}]
        save = partial(
            # Not merely read where it is there: that is told as well, so a majority has to have it.
            self._committed.find_one_and_update,
            key,
            stages,
            upsert=True,
            return_document=True,
            projection=PROCESS_FIELDS,
        )
        try:
            found = save()
        except DuplicateKeyError:  # two upserts of one custom id at once; ours lost
            found = save()
        assert found is not None
        saved = brief_of(found)
        return saved.evolve(args=process.args) if saved.id == process.id else saved

    def insert_many(
        self, processes: Sequence[Process], first_look: float, now: datetime, *, ordered: bool
    ) -> list[Process]:
        """`insert` of many at once: as they were saved, without those whose custom ids other processes have; `ordered`:
        without all that come behind the first of those. May be run again after a lost reply.

        An insert does not know the database's clock: `now` was read from it.
        """
        left = [one.evolve(started_at=now, recovery_time=now + timedelta(seconds=first_look)) for one in processes]
        saved: list[Process] = []
        while left:
            failures = self._insert_many(left, ordered=ordered)
            # By its own id it is there already: this was done before, and the reply was lost.
            theirs = {one["index"] for one in failures if one.get("keyPattern") != {"_id": 1}}
            if not (ordered and failures):
                return saved + [one for number, one in enumerate(left) if number not in theirs]
            first = int(failures[0]["index"])
            if theirs:
                return saved + left[:first]
            saved, left = saved + left[: first + 1], left[first + 1 :]
        return saved

    def _insert_many(self, processes: Sequence[Process], *, ordered: bool) -> list[Document]:
        """Those that were not inserted, since there is one of their key."""
        try:
            self._committed.insert_many([to_document(one) for one in processes], ordered=ordered)
        except BulkWriteError as error:
            failures: list[Document] = error.details["writeErrors"]
            if any(one["code"] != DUPLICATE_KEY for one in failures):
                raise
            return failures
        return []

    def give_up_custom_id(self, process_id: str, custom_id: str, to: str) -> bool:
        """A process that is over no longer has its custom id, which is for process `to`. Whether it was so changed."""
        guard = {"_id": process_id, "customId": custom_id, "state": {"$in": [FINISHED, ABORTED]}}
        fields = {"formerCustomId": "$customId", "replacedBy": literal(to)}
        stages: list[Document] = [{"$set": fields}, {"$unset": "customId"}]
        return self._committed.update_one(guard, stages).modified_count == 1

    def finish(self, results: Mapping[str, str], epoch: int, reopened: int | None) -> Ends:
        """running → finished, {process: its result}, of those that still run in this epoch and were reopened so many
        times."""
        guard: Document = {"state": RUNNING, "epoch": epoch, "reopened": reopened}
        told = by_id(results) if len(results) > 1 else literal(next(iter(results.values())))
        stages: list[Document] = [
            {"$set": {"state": FINISHED, "result": told, "endedAt": "$$NOW"}},
            {"$unset": "recoveryTime"},
        ]
        written = update_each(self._committed, list(results), guard, stages)
        if written.whole and written.count == len(results):
            return Ends(set(results), set(results))
        found = list(find_keys(self._committed, results, {"endedAt": True}, {"state": FINISHED}))
        # The server's time is the same for the whole of an update.
        moments = Counter(one.get("endedAt") for one in found)
        ours = [at for at, count in moments.items() if count == written.count and at is not None]
        by_this = {one["_id"] for one in found if len(ours) == 1 and one.get("endedAt") == ours[0]}
        return Ends(by_this, {one["_id"] for one in found})

    def break_(
        self,
        process_id: str,
        epoch: int,
        error: ErrorInfo,
        reopened: int | None = None,
        marker: MarkerDue | None = None,
    ) -> bool:
        """running → broken with this error; False if it no longer runs in this epoch, or was reopened since it was
        seen. With `marker` its marker is due."""
        fields = {"state": ProcessState.BROKEN.value, "error": to_document(error)}
        return self._end(process_id, epoch, fields, {"reopened": reopened}, marker)

    def _end(
        self,
        process_id: str,
        epoch: int,
        fields: Document,
        guard: Document | None = None,
        marker: MarkerDue | None = None,
    ) -> bool:
        changed = self._committed.update_one(
            {"_id": process_id, "state": RUNNING, "epoch": epoch, **(guard or {})},
            _ending(fields, marker),
        )
        return changed.modified_count == 1

    def settle_marker(self, process: Process) -> bool:
        """Clear the deadline of a broken process whose marker is written; False if that was done, or it was set running
        again. Restorable: what a failover takes back is looked at once more."""
        guard = {"_id": process.id, "state": ProcessState.BROKEN.value, "reopened": process.reopened}
        changed = self._current.update_one(
            {**guard, "markerDue": True}, {"$unset": {"markerDue": "", "order": "", "recoveryTime": ""}}
        )
        return changed.modified_count == 1

    def note_timeouts(self, process_ids: Sequence[str], process_type: str, seconds: float) -> int:
        """Mark running processes of a type that have run for so long, each once; how many were not marked.

        Restorable: a mark that a failover takes back is made again.
        """
        guard = late(process_type, seconds)
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
        broken = _ending({"state": ProcessState.BROKEN.value, "error": to_document(error)}, marker)
        stages = [*broken, {"$set": {"timedOutAt": "$$NOW"}}]
        guard = {**late(process_type, seconds), "reopened": reopened}
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
            over = end_by_type(timeouts)
            later = {"$cond": [{"$gt": [over, "$$NOW"]}, {"$min": [later, over]}, later]}
        return update_each(self._current, process_ids, OVERDUE, [{"$set": {"recoveryTime": later}}]).count


def _ending(fields: Document, marker: MarkerDue | None = None) -> list[Document]:
    ended: Document = {**{k: literal(v) for k, v in fields.items()}, "endedAt": "$$NOW"}
    if marker is None:
        return [{"$set": ended}, {"$unset": "recoveryTime"}]
    due = {"markerDue": True, "order": literal(marker.key), "recoveryTime": after(marker.within)}
    return [{"$set": {**ended, **due}}]


def late(process_type: str, seconds: float) -> Document:
    """Running processes of a type that have run for so long and are not marked."""
    over = {"$add": [STARTED_BY_NOW, round(seconds * 1000)]}
    among = {"type": process_type, "state": RUNNING, "timedOutAt": None}
    return {**among, "startedAt": {"$exists": True}, "$expr": {"$lte": [over, "$$NOW"]}}


def end_by_type(timeouts: Mapping[str, float]) -> Document:
    """When a process's time is over; null for a type that is not among {type: seconds}."""
    times = [round(one * 1000) for one in timeouts.values()]
    # A type that is not found has the place -1, which is the last.
    found = {"$arrayElemAt": [literal([*times, None]), {"$indexOfArray": [literal(list(timeouts)), "$type"]}]}
    return {"$add": [STARTED_BY_NOW, found]}


def existing() -> Document:
    """The document itself if it was there before the upsert, else null."""
    return {"$cond": [{"$gt": ["$startedAt", None]}, "$$ROOT", None]}
