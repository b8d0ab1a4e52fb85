"""Updates of the Process records: starts, ends and deadlines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import NamedTuple

from pymongo.errors import BulkWriteError, DuplicateKeyError

from recovery.records import (
    ErrorInfo,
    Mark,
    OrderKind,
    Process,
    ProcessState,
    to_document,
)
from recovery.store.client import Document
from recovery.store.driver_errors import DUPLICATE_KEY, translated
from recovery.store.expressions import (
    after,
    by_id,
    date_of,
    literal,
    size_of,
)
from recovery.store.lifecycle.process_deadlines import MarkerDue, ProcessDeadlines, ending_stages
from recovery.store.lifecycle.process_queries import RUNNING
from recovery.store.record_reading import PROCESS_FIELDS, process_of, readable
from recovery.store.splitting import find_keys, update_each

FINISHED, ABORTED = ProcessState.FINISHED.value, ProcessState.ABORTED.value


_ENDING: Document = {
    **dict.fromkeys(("type", "key", "startTask", "state", "epoch", "reopened", "markerDue", "order"), True),
    # For its duration alone, for which no end is to fail: what is no date is left out.
    **{name: date_of(f"${name}", None) for name in ("startedAt", "restartedAt")},
    "bytes": size_of("args"),
}


class Standing(NamedTuple):
    """A process that is there."""

    epoch: int
    scheduled_by: str | None
    custom_id: str | None
    mark: Mark | None
    """How it is marked to be removed."""


@dataclass(frozen=True, slots=True)
class Ends:
    """Which processes were finished by an update, and which are finished: by this one, or before. The first may lack
    some, where two were at it in the same millisecond."""

    by_this: set[str]
    there: set[str]


@translated
class Processes(ProcessDeadlines):
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
        saved = process_of(found)
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

    def standing(self, process_ids: Iterable[str]) -> dict[str, Standing]:
        """Those of these that are there, as they are now."""
        fields = dict.fromkeys(("epoch", "removing", "order", "scheduledBy", "customId"), True)
        return {
            one["_id"]: Standing(one.get("epoch", 0), one.get("scheduledBy"), one.get("customId"), _removing(one))
            for one in find_keys(self._current, process_ids, fields)
            if isinstance(one.get("epoch", 0), int)
        }

    def ending(self, process_ids: Iterable[str]) -> dict[str, tuple[Process, int]]:
        """{process: it, briefly, and the bytes that its arguments take}, of those that are there and can be read."""
        found = list(find_keys(self._current, process_ids, _ENDING))
        sizes = {document["_id"]: document["bytes"] for document in found}
        return {process.id: (process, sizes[process.id]) for process in readable(Process, found, process_of)}

    def finish(self, results: Mapping[str, str], epoch: int, reopened: int | None) -> Ends:
        """running → finished, {process: its result}, of those that still run in this epoch and were reopened so many
        times."""
        guard: Document = {"state": RUNNING, "epoch": epoch, "reopened": reopened}
        stages: list[Document] = [
            {"$set": {"state": FINISHED, "result": by_id(results), "endedAt": "$$NOW"}},
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
            ending_stages(fields, marker),
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


def existing() -> Document:
    """The document itself if it was there before the upsert, else null."""
    return {"$cond": [{"$gt": ["$startedAt", None]}, "$$ROOT", None]}


def _removing(document: Document) -> Mark | None:
    key = document.get("order")
    if key is None or not document.get("removing"):
        return None
    return Mark(document["_id"], OrderKind.REMOVE, key, document.get("epoch", 0))
