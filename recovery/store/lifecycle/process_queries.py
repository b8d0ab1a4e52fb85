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
"""Maximum seconds to wait for a linearizable answer. It normally takes 0.1 s; without a majority there is none."""


@translated
class ProcessQueries:
    """Queries of the collection `processes`."""

    def __init__(self, collection: Collection[Document]) -> None:
        self._current, self._committed = current(collection), committed(collection)
        self._certain = certain(collection)

    def get(self, process_id: str) -> Process | None:
        """Return the whole process of this id (up to 16 MB) as the primary has it, or None. Raises DamagedRecord."""
        document = self._current.find_one({"_id": process_id})
        return from_document(Process, document) if document else None

    def get_committed(self, process_id: str) -> Process | None:
        """Return the whole process of this id as a majority has it, or None. Its start was or will be acknowledged.
        Raises DamagedRecord.
        """
        document = self._committed.find_one({"_id": process_id})
        return from_document(Process, document) if document else None

    def is_there(self, process_id: str, within: float = CERTAIN_TIMEOUT) -> bool:
        """Return whether this process exists, linearizably.

        Reading what a majority has is not enough, because a new primary may not serve yet what its predecessor had
        acknowledged.

        Args:
            process_id: The process.
            within: Maximum seconds to wait.

        Raises:
            StoreTimeout: No majority answers in this time.
        """
        return self._ask_certainly(process_id, {"_id": True}, within) is not None

    def _ask_certainly(self, process_id: str, fields: Document, within: float = CERTAIN_TIMEOUT) -> Document | None:
        """Read these fields of a process linearizably. Return None only if it certainly does not exist."""
        with pymongo.timeout(within):
            return self._certain.find_one({"_id": process_id}, fields)

    def is_committed(self, process_id: str) -> bool:
        """Return whether a majority has a process of this id, readable or not."""
        return self._committed.find_one({"_id": process_id}, {"_id": True}) is not None

    def brief(self, process_id: str) -> Process | None:
        """Return the process without arguments and result, as the primary has it, or None. Raises DamagedRecord."""
        document = self._current.find_one({"_id": process_id}, PROCESS_FIELDS)
        return process_of(document) if document else None

    def get_committed_brief(self, process_id: str) -> Process | None:
        """Return the process without arguments and result, as a majority has it, or None. Raises DamagedRecord."""
        document = self._committed.find_one({"_id": process_id}, PROCESS_FIELDS)
        return process_of(document) if document else None

    def find_committed(self, process_id: str) -> Process | None:
        """Return the process without arguments and result, as a majority has it. None only if it certainly does not
        exist.

        For callers that show the process to somebody. Raises DamagedRecord, and StoreTimeout if no majority answers.
        """
        document = self._committed.find_one({"_id": process_id}, PROCESS_FIELDS)
        document = document or self._ask_certainly(process_id, PROCESS_FIELDS)
        return process_of(document) if document else None

    def arguments(self, process_id: str) -> str | None:
        """Return the JSON text of a process's arguments, as a majority has it. None only if the process certainly does
        not exist.

        Raises:
            DamagedRecord: The arguments are not a text.
            StoreTimeout: No majority answers.
        """
        fields = {"args": True}
        document = self._committed.find_one({"_id": process_id}, fields) or self._ask_certainly(process_id, fields)
        if document is None:
            return None
        args = document.get("args")
        if not isinstance(args, str):
            message = f"Process {process_id}: its args is a {type(args).__name__}, not a text"
            raise DamagedRecord(process_id, message, ("args",), Process.__name__)
        return args

    def briefs(self, process_ids: Iterable[str]) -> dict[str, Process]:
        """Return {id: process} without arguments and results, as the primary has them. Damaged ones are logged and left
        out.
        """
        documents = find_keys(self._current, process_ids, PROCESS_FIELDS)
        return {process.id: process for process in readable(Process, documents, process_of)}

    def committed_briefs(self, process_ids: Iterable[str]) -> dict[str, Process]:
        """Return {id: process} without arguments and results, as a majority has them. Damaged ones are logged and left
        out.
        """
        documents = find_keys(self._committed, process_ids, PROCESS_FIELDS)
        return {process.id: process for process in readable(Process, documents, process_of)}

    def ended(self, process_ids: Sequence[str]) -> dict[str, Process]:
        """Return {id: process} as a majority has them, with the results of finished processes and without arguments.

        Processes of every state are returned. Raises DamagedRecord.
        """
        documents = find_keys(self._committed, process_ids, {"args": False})
        return {document["_id"]: process_of(document) for document in documents}

    def shown(self, process_id: str, length: int) -> tuple[Process, int, DamagedRecord | None] | None:
        """Return a process for display, as a majority has it; None only if it certainly does not exist.

        Args:
            process_id: The process.
            length: Maximum number of characters of the result.

        Returns:
            The process without arguments and damaged fields, the number of characters of its whole result, and the
            damage of its fields (None if there is none).

        Raises:
            DamagedRecord: The process can't be read even without the damaged fields.
        """
        fields = shown(length)
        document = self._committed.find_one({"_id": process_id}, fields) or self._ask_certainly(process_id, fields)
        if document is None:
            return None
        process, damage = as_far_as_readable(Process, document | {"args": LEFT_OUT})
        return process, document["characters"], damage

    def epochs(self, process_ids: Iterable[str]) -> dict[str, int]:
        """Return {process: its current epoch}, as the primary has it. Processes with an unreadable epoch are left
        out.
        """
        epochs = {
            document["_id"]: document.get("epoch", 0)
            for document in find_keys(self._current, process_ids, {"epoch": True})
        }
        return {key: epoch for key, epoch in epochs.items() if isinstance(epoch, int)}

    def count_as_started(self, process_ids: Iterable[str]) -> int:
        """Return how many of these processes are in their first epoch, were not started by a schedule, and are not
        being removed.
        """
        untouched = {"epoch": 0, "scheduledBy": None, "removing": None}
        return sum(
            self._current.count_documents({"_id": {"$in": batch}, **untouched}, hint="_id_")
            for batch in batches(process_ids)
        )

    def committed_epochs(self, process_ids: Iterable[str]) -> dict[str, int]:
        """Return {process: its epoch} of those that a majority has as running or broken. Their tasks go on."""
        goes_on = {"state": {"$in": [RUNNING, ProcessState.BROKEN.value]}}
        epochs = {
            document["_id"]: document.get("epoch", 0)
            for document in find_keys(self._committed, process_ids, {"epoch": True}, goes_on)
        }
        return {key: epoch for key, epoch in epochs.items() if isinstance(epoch, int)}

    def committed_lives(self, process_ids: Iterable[str]) -> dict[str, int]:
        """Return {start task (`P/T`): how often its process was set running again}, as a majority has it.

        Processes that never were set running again are left out.
        """
        restarted = {"reopened": {"$gt": 0}, "startTask": {"$type": "string"}}
        documents = find_keys(self._committed, process_ids, {"startTask": True, "reopened": True}, restarted)
        return {record_id(document["_id"], document["startTask"]): document["reopened"] for document in documents}

    def aborted(self, process_ids: Iterable[str]) -> set[str]:
        """Return the ids of those of these processes that were aborted. Index `unsuccessful` alone, without
        documents.
        """
        query = {"_id": {"$in": list(process_ids)}, "state": ProcessState.ABORTED.value}
        return {document["_id"] for document in self._current.find(query, {"_id": True}).hint("unsuccessful")}

    def committed_over(self, process_ids: Iterable[str]) -> list[str]:
        """Return the ids of those of these processes that a majority has in another state than running."""
        documents = find_keys(self._committed, process_ids, {"_id": True}, {"state": {"$ne": RUNNING}})
        return [document["_id"] for document in documents]

    def overdue(self, limit: int) -> list[str]:
        """Return ids of processes whose deadline is past, the longest overdue first. Index `deadline`."""
        documents = self._current.find(OVERDUE, {"_id": True}).sort("recoveryTime", 1).limit(limit)
        return [document["_id"] for document in documents]

    def without_deadline(self, limit: int) -> list[str]:
        """Return ids of running processes that lack a deadline. Index `deadlineMissing`, empty while all is well."""
        documents = self._current.find({"state": RUNNING, "recoveryTime": None}, {"_id": True})
        return [document["_id"] for document in documents.hint("deadlineMissing").limit(limit)]


def shown(length: int) -> Document:
    """Return a projection of all fields but the arguments, with the first `length` characters of the result."""
    names = (field_name(name) for name in Process.__dataclass_fields__ if name not in ("args", "result"))
    # If another program replaced the result by something that is no text, the process is shown without it.
    text: Document = {"$cond": [{"$eq": [{"$type": "$result"}, "string"]}, "$result", ""]}
    start: Document = {"$cond": [{"$eq": [text, ""]}, "$$REMOVE", {"$substrCP": [text, 0, length]}]}
    return {**dict.fromkeys(names, True), "result": start, "characters": {"$strLenCP": text}}
