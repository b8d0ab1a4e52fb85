"""Queries of the Process records."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pymongo
from pymongo.collection import Collection

from recovery.errors import DamagedRecord
from recovery.records import (
    Process,
    ProcessState,
    as_far_as_readable,
    field_name,
    from_document,
)
from recovery.records.ids import record_id
from recovery.store.client import Document
from recovery.store.concerns import certain, committed, current
from recovery.store.driver_errors import translated
from recovery.store.expressions import (
    OVERDUE,
)
from recovery.store.record_reading import LEFT_OUT, PROCESS_FIELDS, process_of, readable
from recovery.store.splitting import batches, find_keys

RUNNING = ProcessState.RUNNING.value
CERTAIN_TIMEOUT = 5.0
"""Seconds that an answer may take which is certain; it takes 0.1. Without a majority there is none."""


@translated
class ProcessQueries:
    """What is asked of the collection `processes`."""

    def __init__(self, collection: Collection[Document]) -> None:
        self._current, self._committed = current(collection), committed(collection)
        self._certain = certain(collection)

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
        return process_of(found) if found else None

    def get_committed_brief(self, process_id: str) -> Process | None:
        """The same, if a majority has it, as it has it."""
        found = self._committed.find_one({"_id": process_id}, PROCESS_FIELDS)
        return process_of(found) if found else None

    def find_committed(self, process_id: str) -> Process | None:
        """The same as a majority has it, for whoever is told of it; None only if there is none for certain."""
        found = self._committed.find_one({"_id": process_id}, PROCESS_FIELDS)
        found = found or self._ask_certainly(process_id, PROCESS_FIELDS)
        return process_of(found) if found else None

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
        return {process.id: process for process in readable(Process, found, process_of)}

    def committed_briefs(self, process_ids: Iterable[str]) -> dict[str, Process]:
        """The same of those that a majority has, as it has them."""
        found = find_keys(self._committed, process_ids, PROCESS_FIELDS)
        return {process.id: process for process in readable(Process, found, process_of)}

    def ended(self, process_ids: Sequence[str]) -> dict[str, Process]:
        """The processes that a majority has, by id, as it has them, with the results of those that have finished, and
        without arguments."""
        found = find_keys(self._committed, process_ids, {"args": False})
        return {document["_id"]: process_of(document) for document in found}

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

    def overdue(self, limit: int) -> list[str]:
        """Ids of running processes whose deadline is past, the longest first. Index `deadline`."""
        found = self._current.find(OVERDUE, {"_id": True}).sort("recoveryTime", 1).limit(limit)
        return [document["_id"] for document in found]

    def without_deadline(self, limit: int) -> list[str]:
        """Ids of running processes that lack a deadline. Index `deadlineMissing`, empty while all is well."""
        found = self._current.find({"state": RUNNING, "recoveryTime": None}, {"_id": True})
        return [document["_id"] for document in found.hint("deadlineMissing").limit(limit)]


def shown(length: int) -> Document:
    """The document without its arguments, and the start of its result."""
    names = (field_name(name) for name in Process.__dataclass_fields__ if name not in ("args", "result"))
    # A record of which somebody made something else than a text is shown without.
    text: Document = {"$cond": [{"$eq": [{"$type": "$result"}, "string"]}, "$result", ""]}
    start: Document = {"$cond": [{"$eq": [text, ""]}, "$$REMOVE", {"$substrCP": [text, 0, length]}]}
    return {**dict.fromkeys(names, True), "result": start, "characters": {"$strLenCP": text}}
