"""Queries and updates of the Process records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import NamedTuple

import pymongo
from pymongo.collection import Collection
from pymongo.errors import BulkWriteError, DuplicateKeyError

from recovery.errors import DamagedRecord
from recovery.records import (
    ErrorInfo,
    Mark,
    OrderKind,
    Process,
    ProcessState,
    as_far_as_readable,
    from_document,
    to_document,
)
from recovery.records.ids import record_id
from recovery.store.client import Document
from recovery.store.concerns import certain, committed
from recovery.store.driver_errors import translated
from recovery.store.expressions import (
    after,
    by_id,
    literal,
)
from recovery.store.lifecycle.process_deadlines import ProcessDeadlines
from recovery.store.lifecycle.process_updates import (
    ENDING,
    RUNNING,
    MarkerDue,
    existing,
    late,
    shown,
)
from recovery.store.record_reading import LEFT_OUT, PROCESS_FIELDS, readable
from recovery.store.splitting import batches, find_keys, update_each

FINISHED, ABORTED = ProcessState.FINISHED.value, ProcessState.ABORTED.value
DUPLICATE_KEY = 11000
CERTAIN_TIMEOUT = 5.0
"""Seconds that an answer may take which is certain; it takes 0.1. Without a majority there is none."""


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

    def __init__(self, collection: Collection[Document]) -> None:
        super().__init__(collection)
        self._committed = committed(collection)
        self._certain = certain(collection)

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

    def get(self, process_id: str) -> Process | None:
        """The process of this id, as a whole: up to 16 MB."""
        found = self._current.find_one({"_id": process_id})
        return from_document(Process, found) if found else None

    def get_committed(self, process_id: str) -> Process | None:
        """The same, if a majority has it, as it has it: its start was acknowledged, or will be."""
        found = self._committed.find_one({"_id": process_id})
        return from_document(Process, found) if found else None

    def is_there(self, process_id: str, within: float = CERTAIN_TIMEOUT) -> bool:
        """Whether there is such a process, for certain: a new primary may not know yet, as what a majority has, all
        that the one before it had acknowledged. Raises StoreTimeout where no majority says so in so many seconds."""
        return self._ask_certainly(process_id, {"_id": True}, within) is not None

    def _ask_certainly(self, process_id: str, fields: Document, within: float = CERTAIN_TIMEOUT) -> Document | None:
        with pymongo.timeout(within):
            return self._certain.find_one({"_id": process_id}, fields)

    def is_committed(self, process_id: str) -> bool:
        """Return whether a majority has a process of this id, readable or not."""
        return self._committed.find_one({"_id": process_id}, {"_id": True}) is not None

    def brief(self, process_id: str) -> Process | None:
        """The process of this id, without arguments and result."""
        found = self._current.find_one({"_id": process_id}, PROCESS_FIELDS)
        return brief_of(found) if found else None

    def get_committed_brief(self, process_id: str) -> Process | None:
        """The same, if a majority has it, as it has it."""
        found = self._committed.find_one({"_id": process_id}, PROCESS_FIELDS)
        return brief_of(found) if found else None

    def find_committed(self, process_id: str) -> Process | None:
        """The same as a majority has it, for whoever is told of it; None only if there is none for certain."""
        found = self._committed.find_one({"_id": process_id}, PROCESS_FIELDS)
        found = found or self._ask_certainly(process_id, PROCESS_FIELDS)
        return brief_of(found) if found else None

    def arguments(self, process_id: str) -> str | None:
        """The JSON text of a process's arguments, as a majority has it. None only if there is no process of this id for
        certain. Raises DamagedRecord where it is no text."""
        fields = {"args": True}
        found = self._committed.find_one({"_id": process_id}, fields) or self._ask_certainly(process_id, fields)
        if found is None:
            return None
        args = found.get("args")
        if not isinstance(args, str):
            told = f"Process {process_id}: its args is a {type(args).__name__}, not a text"
            raise DamagedRecord(process_id, told, ("args",), Process.__name__)
        return args

    def briefs(self, process_ids: Iterable[str]) -> dict[str, Process]:
        """The processes that are there, by id, without arguments and results."""
        found = find_keys(self._current, process_ids, PROCESS_FIELDS)
        return {process.id: process for process in readable(Process, found, brief_of)}

    def committed_briefs(self, process_ids: Iterable[str]) -> dict[str, Process]:
        """The same of those that a majority has, as it has them."""
        found = find_keys(self._committed, process_ids, PROCESS_FIELDS)
        return {process.id: process for process in readable(Process, found, brief_of)}

    def ended(self, process_ids: Sequence[str]) -> dict[str, Process]:
        """The processes that a majority has, by id, as it has them, with the results of those that have finished, and
        without arguments."""
        found = find_keys(self._committed, process_ids, {"args": False})
        return {document["_id"]: brief_of(document) for document in found}

    def ending(self, process_ids: Iterable[str]) -> dict[str, tuple[Process, int]]:
        """{process: it, briefly, and the bytes that its arguments take}, of those that are there and can be read."""
        found = list(find_keys(self._current, process_ids, ENDING))
        sizes = {document["_id"]: document["bytes"] for document in found}
        return {process.id: (process, sizes[process.id]) for process in readable(Process, found, brief_of)}

    def shown(self, process_id: str, length: int) -> tuple[Process, int, DamagedRecord | None] | None:
        """Return a process for people to look at, as a majority has it; None only if there is none for certain.

        Its result is cut to `length` characters; the second value is how many it has. Damaged fields are left out; the
        third value says what is wrong with them. Raises DamagedRecord if the process can't be read without them.
        """
        fields = shown(length)
        found = self._committed.find_one({"_id": process_id}, fields) or self._ask_certainly(process_id, fields)
        if found is None:
            return None
        process, damage = as_far_as_readable(Process, found | {"args": LEFT_OUT})
        return process, found["characters"], damage

    def epochs(self, process_ids: Iterable[str]) -> dict[str, int]:
        """{process: its epoch as it is now}, of those of these that have one."""
        found = {one["_id"]: one.get("epoch", 0) for one in find_keys(self._current, process_ids, {"epoch": True})}
        return {key: epoch for key, epoch in found.items() if isinstance(epoch, int)}

    def count_as_started(self, process_ids: Iterable[str]) -> int:
        """How many of these are there, in their first epoch, by no schedule, and not marked to be removed."""
        untouched = {"epoch": 0, "scheduledBy": None, "removing": None}
        return sum(
            self._current.count_documents({"_id": {"$in": batch}, **untouched}, hint="_id_")
            for batch in batches(process_ids)
        )

    def standing(self, process_ids: Iterable[str]) -> dict[str, Standing]:
        """Those of these that are there, as they are now."""
        fields = dict.fromkeys(("epoch", "removing", "order", "scheduledBy", "customId"), True)
        return {
            one["_id"]: Standing(one.get("epoch", 0), one.get("scheduledBy"), one.get("customId"), _removing(one))
            for one in find_keys(self._current, process_ids, fields)
            if isinstance(one.get("epoch", 0), int)
        }

    def committed_epochs(self, process_ids: Iterable[str]) -> dict[str, int]:
        """{process: its epoch} of those of these that a majority has as running or broken: of which tasks go on."""
        goes_on = {"state": {"$in": [RUNNING, ProcessState.BROKEN.value]}}
        found = {
            one["_id"]: one.get("epoch", 0) for one in find_keys(self._committed, process_ids, {"epoch": True}, goes_on)
        }
        return {key: epoch for key, epoch in found.items() if isinstance(epoch, int)}

    def committed_lives(self, process_ids: Iterable[str]) -> dict[str, int]:
        """{start task, `P/T`: how often its process was set running again}, of those of these that were, as a majority
        has it."""
        again = {"reopened": {"$gt": 0}, "startTask": {"$type": "string"}}
        found = find_keys(self._committed, process_ids, {"startTask": True, "reopened": True}, again)
        return {record_id(document["_id"], document["startTask"]): document["reopened"] for document in found}

    def aborted(self, process_ids: Iterable[str]) -> set[str]:
        """Those of these that were aborted. Index `unsuccessful`, and nothing but it."""
        query = {"_id": {"$in": list(process_ids)}, "state": ProcessState.ABORTED.value}
        return {found["_id"] for found in self._current.find(query, {"_id": True}).hint("unsuccessful")}

    def committed_over(self, process_ids: Iterable[str]) -> list[str]:
        """Those of these that a majority has as ended, however."""
        over = find_keys(self._committed, process_ids, {"_id": True}, {"state": {"$ne": RUNNING}})
        return [document["_id"] for document in over]

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


def _removing(document: Document) -> Mark | None:
    key = document.get("order")
    if key is None or not document.get("removing"):
        return None
    return Mark(document["_id"], OrderKind.REMOVE, key, document.get("epoch", 0))


def brief_of(document: Document) -> Process:
    return from_document(Process, document | {"args": LEFT_OUT})


def _ending(fields: Document, marker: MarkerDue | None = None) -> list[Document]:
    ended: Document = {**{k: literal(v) for k, v in fields.items()}, "endedAt": "$$NOW"}
    if marker is None:
        return [{"$set": ended}, {"$unset": "recoveryTime"}]
    due = {"markerDue": True, "order": literal(marker.key), "recoveryTime": after(marker.within)}
    return [{"$set": {**ended, **due}}]
