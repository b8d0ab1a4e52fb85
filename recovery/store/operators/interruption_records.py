"""Queries and updates of the Interruption records: the failed tasks for which processes are broken.

The collection holds broken processes only, which bounds the cost of every query here. It has one record per task. The
record of a later failure replaces that of an earlier failure, never the other way round. The later failure is the one
with the higher `reopened` of the process, then the higher `restarts` of the task. Comparing `restarts` alone is not
enough: a process that fails as a whole is listed under its start task, and this task may fail for the first time after
the process was reopened.

All reads have read concern majority; all writes are acknowledged by a majority.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from pymongo import DeleteOne
from pymongo.collection import Collection
from pymongo.errors import DuplicateKeyError

from recovery.records import Interruption, from_document, to_document
from recovery.records.ids import SEPARATOR
from recovery.store.client import Document
from recovery.store.concerns import committed
from recovery.store.driver_errors import translated
from recovery.store.expressions import literals, record_range, record_ranges
from recovery.store.record_reading import readable


@dataclass(frozen=True, slots=True)
class Selection:
    """A filter of interruptions by field. An interruption matches if all given fields match."""

    type: str | None = None
    actor: str | None = None
    kind: str | None = None
    fingerprint: str | None = None

    def filter(self) -> Document:
        """Return the MongoDB filter."""
        fields = {"type": self.type, "actor": self.actor, "kind": self.kind, "fingerprint": self.fingerprint}
        return {name: value for name, value in fields.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Group:
    """A group of interruptions with the same type, actor, kind and fingerprint, and the latest as an example."""

    type: str
    actor: str
    kind: str
    fingerprint: str
    count: int
    first: datetime | None
    last: datetime | None
    message: str
    example: str
    """The task, as `P/T`."""


@translated
class Interruptions:
    """The collection `interruptions`, which holds one record per failed task of a broken process."""

    def __init__(self, collection: Collection[Document]) -> None:
        self._collection = committed(collection)

    def add(self, interruption: Interruption) -> bool:
        """Save an interruption. Return False if the same failure, or a later one of the task, is already recorded.

        The write is acknowledged by a majority, because the process is marked as broken next and every broken process
        must be listed.
        """
        fields = literals(to_document(interruption))
        life, restarts = interruption.reopened, interruption.restarts
        older_failure = [_before(life), {"reopened": life, "restarts": {"$lt": restarts}}]
        query = {"_id": interruption.id, "$or": older_failure}
        try:
            self._collection.update_one(query, [{"$replaceWith": {**fields, "at": "$$NOW"}}], upsert=True)
        except DuplicateKeyError:
            return False
        return True

    def remove_before(self, restarted: Iterable[tuple[str, int, int]]) -> None:
        """Remove interruptions of tasks that were restarted since.

        An interruption is removed if it has a lower `restarts` and no higher `reopened`. `reopened` is compared because
        an epoch counts restarts anew.

        Args:
            restarted: For each task its id, its `restarts` and its process's `reopened`.
        """
        deletes = [
            DeleteOne({"_id": task_id, "restarts": {"$lt": restarts}, "reopened": {"$not": {"$gt": reopened}}})
            for task_id, restarts, reopened in restarted
        ]
        self._delete(deletes)

    def remove_lives(self, running: Iterable[tuple[str, int]]) -> None:
        """Remove interruptions that were listed before their process was reopened for the nth time: (id, n)."""
        self._delete([DeleteOne({"_id": task_id, **_before(n)}) for task_id, n in running])

    def remove_kind(self, listed: Iterable[tuple[str, int]], kind: str) -> None:
        """Remove interruptions of this error kind from before their process was reopened n + 1 times: (id, n)."""
        self._delete([DeleteOne({"_id": task_id, "kind": kind, **_before(n + 1)}) for task_id, n in listed])

    def _delete(self, deletes: list[DeleteOne]) -> None:
        if deletes:
            self._collection.bulk_write(deletes, ordered=False)

    def remove_all(self, process_ids: Sequence[str]) -> None:
        """Remove all interruptions of these processes. Uses index `_id`, one range per process."""
        if process_ids:
            self._collection.delete_many(record_ranges(process_ids))

    def remove_past(self, process_id: str, reopened: int) -> None:
        """Remove the interruptions of a process from before it was reopened for the `reopened`th time. Index `_id`."""
        self._collection.delete_many({**record_range(process_id), **_before(reopened)})

    def of_process(self, process_id: str) -> list[Interruption]:
        """Return all interruptions of a process in order of id. Uses index `_id`, one range."""
        documents = self._collection.find(record_range(process_id)).sort("_id", 1)
        return list(readable(Interruption, documents, _as_shown))

    def of_processes(self, process_ids: Sequence[str]) -> list[Interruption]:
        """Return all interruptions of these processes. Uses index `_id`, one range per process."""
        if not process_ids:
            return []
        documents = self._collection.find(record_ranges(process_ids))
        return list(readable(Interruption, documents.hint("_id_"), _as_shown))

    def count(self, selection: Selection) -> int:
        """Return how many interruptions match. Index `group` or `fingerprint`."""
        return self._collection.count_documents(selection.filter())

    def count_processes(self, selection: Selection) -> int:
        """Return how many processes have a matching interruption. Index `group` or `fingerprint`."""
        process = {"$first": {"$split": ["$_id", SEPARATOR]}}
        stages: list[Document] = [
            {"$match": selection.filter()},
            {"$group": {"_id": process}},
            {"$count": "processes"},
        ]
        return next((row["processes"] for row in self._collection.aggregate(stages)), 0)

    def page(self, selection: Selection, after: str, limit: int) -> list[Interruption]:
        """Return the next `limit` matching interruptions after this id.

        They are sorted by id, which is the order of processes' starts.
        """
        documents = self._collection.find({**selection.filter(), "_id": {"$gt": after}}).sort("_id", 1).limit(limit)
        return list(readable(Interruption, documents, _as_shown))

    def values(self, name: str, limit: int) -> list[str]:
        """Return up to `limit` different values of a field as texts, for shell completion.

        Reads index `group` only, if the field is in it.
        """
        stages: list[Document] = [{"$group": {"_id": f"${name}"}}, {"$limit": limit}]
        # The index needs a hint: without one, MongoDB does not look for an index that covers a group stage.
        options: Document = {"hint": "group"} if name in ("type", "actor", "kind", "fingerprint") else {}
        return sorted(str(row["_id"]) for row in self._collection.aggregate(stages, **options))

    def groups(self, selection: Selection) -> list[Group]:
        """Return matching interruptions in groups, the most frequent group first. Index `group` or `fingerprint`."""
        names = ("type", "actor", "kind", "fingerprint")
        last = {"$top": {"sortBy": {"at": -1}, "output": {"id": "$_id", "message": "$message"}}}
        stages: list[Document] = [
            {"$match": selection.filter()},
            {
                "$group": {
                    "_id": {name: f"${name}" for name in names},
                    "count": {"$sum": 1},
                    "first": {"$min": "$at"},
                    "last": {"$max": "$at"},
                    "example": last,
                }
            },
            {"$sort": {"count": -1, "last": -1}},
        ]
        return [
            Group(
                **{name: _text(row["_id"].get(name)) for name in names},
                count=row["count"],
                first=_date(row["first"]),
                last=_date(row["last"]),
                message=_text(row["example"].get("message")),
                example=row["example"]["id"],
            )
            for row in self._collection.aggregate(stages)
        ]


def _before(life: int) -> Document:
    """Return a filter for interruptions of an earlier life of the process, or of an unknown life."""
    return {"reopened": {"$not": {"$gte": life}}}


def _as_shown(document: Document) -> Interruption:
    """Decode a record for display.

    A field of another type, written by another program, is shown as its Python repr. Otherwise one bad field would hide
    the whole record.
    """
    texts = {name: _text(document.get(name)) for name in ("type", "actor", "kind", "message", "fingerprint")}
    return from_document(Interruption, {**document, **texts, "at": _date(document.get("at"))})


def _text(value: object) -> str:
    return value if isinstance(value, str) else repr(value)


def _date(value: object) -> datetime | None:
    return value if isinstance(value, datetime) else None
