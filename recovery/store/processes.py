"""Queries and updates of the Process records."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pymongo.collection import Collection
from pymongo.errors import DuplicateKeyError

from recovery.records import ErrorInfo, Process, ProcessState, from_document, to_document
from recovery.store.client import Document
from recovery.store.expressions import ACKNOWLEDGED, OVERDUE, RESTORABLE, after, literal

RUNNING = ProcessState.RUNNING.value


class Processes:
    """The collection `processes`."""

    def __init__(self, collection: Collection[Document]) -> None:
        self._acknowledged = collection.with_options(write_concern=ACKNOWLEDGED)
        self._restorable = collection.with_options(write_concern=RESTORABLE)

    def insert(self, process: Process, first_look: float) -> Process:
        """Save a process, its first deadline `first_look` seconds away; this alone acknowledges its start.

        Returns it as saved, or the process of the same type and custom id that is there already. An upsert
        and not an insert, since only an update knows the database's clock; running it twice is harmless.
        """
        document = to_document(process)
        key = {"_id": document.pop("_id")}
        if process.custom_id is not None:
            key = {"type": document.pop("type"), "customId": document.pop("customId")}
            document["_id"] = process.id
        stages = [
            {
                "$replaceWith": {
                    "$ifNull": [
                        _existing(),
                        {
                            "$mergeObjects": [
                                "$$ROOT",
                                literal(document),
                                {"startedAt": "$$NOW", "recoveryTime": after(first_look)},
                            ]
                        },
                    ]
                }
            }
        ]
        try:
            found = self._acknowledged.find_one_and_update(key, stages, upsert=True, return_document=True)
        except DuplicateKeyError:  # two upserts of one custom id at once; ours lost
            found = self._acknowledged.find_one(key)
        assert found is not None
        return from_document(Process, found)

    def get(self, process_id: str) -> Process | None:
        """The process of this id."""
        found = self._acknowledged.find_one({"_id": process_id})
        return from_document(Process, found) if found else None

    def get_many(self, process_ids: Iterable[str]) -> dict[str, Process]:
        """The processes that are there, by id."""
        found = self._acknowledged.find({"_id": {"$in": list(process_ids)}})
        return {document["_id"]: from_document(Process, document) for document in found}

    def finish(self, process_id: str, epoch: int, result: str) -> bool:
        """running → finished with this result; False if it no longer runs in this epoch."""
        return self._end(process_id, epoch, {"state": ProcessState.FINISHED.value, "result": result})

    def break_(self, process_id: str, epoch: int, error: ErrorInfo) -> bool:
        """running → broken with this error; False if it no longer runs in this epoch."""
        return self._end(process_id, epoch, {"state": ProcessState.BROKEN.value, "error": to_document(error)})

    def _end(self, process_id: str, epoch: int, fields: Document) -> bool:
        changed = self._acknowledged.update_one(
            {"_id": process_id, "state": RUNNING, "epoch": epoch},
            [
                {"$set": {**{k: literal(v) for k, v in fields.items()}, "endedAt": "$$NOW"}},
                {"$unset": "recoveryTime"},
            ],
        )
        return changed.modified_count == 1

    def overdue(self, limit: int) -> list[str]:
        """Ids of running processes whose deadline is past, the longest first. Index `deadline`."""
        found = self._restorable.find(OVERDUE, {"_id": True}).sort("recoveryTime", 1).limit(limit)
        return [document["_id"] for document in found]

    def without_deadline(self, limit: int) -> list[str]:
        """Ids of running processes that lack a deadline. Index `deadlineMissing`, empty while all is well."""
        found = self._restorable.find({"state": RUNNING, "recoveryTime": None}, {"_id": True})
        return [document["_id"] for document in found.hint("deadlineMissing").limit(limit)]

    def stamp(self, process_ids: Sequence[str]) -> int:
        """Give a deadline, now, to running processes that lack one."""
        changed = self._restorable.update_many(
            {"_id": {"$in": list(process_ids)}, "state": RUNNING, "recoveryTime": None},
            [{"$set": {"recoveryTime": "$$NOW"}}],
        )
        return changed.modified_count

    def look_later(self, process_ids: Sequence[str]) -> int:
        """Move the deadlines of processes found healthy: as far off as they are old, so looks grow rare.

        Whatever their state: one that ended has no deadline, or it would stand before those that run for ever.
        """
        age = {"$subtract": ["$$NOW", {"$ifNull": ["$startedAt", "$$NOW"]}]}
        idle = {"$multiply": [{"$ifNull": ["$idleTimeout", 60]}, 1000]}
        changed = self._restorable.update_many(
            {"_id": {"$in": list(process_ids)}, **OVERDUE},
            [{"$set": {"recoveryTime": {"$add": ["$$NOW", {"$max": [idle, age]}]}}}],
        )
        return changed.modified_count


def _existing() -> Document:
    """The document itself if it was there before the upsert, else null."""
    return {"$cond": [{"$gt": ["$startedAt", None]}, "$$ROOT", None]}
