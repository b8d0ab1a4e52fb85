"""Queries and updates of the Interruption records: the tasks for which processes are broken.

The collection holds what is broken, not what exists; every query here costs that much at the most. One record per task:
that of a later failure takes the place of an earlier one, never the other way round. Which one is later is told by the
life of the process, `reopened`, then by that of the task, `restarts`: under the name of its start task a process is
listed as a whole as well, and that task may fail for the first time in the process's second life.
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
    """Which interruptions: those with all of what is given."""

    type: str | None = None
    actor: str | None = None
    kind: str | None = None
    fingerprint: str | None = None

    def filter(self) -> Document:
        """As a query."""
        fields = {"type": self.type, "actor": self.actor, "kind": self.kind, "fingerprint": self.fingerprint}
        return {name: value for name, value in fields.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Group:
    """Interruptions that are alike, and the last of them as an example."""

    type: str
    actor: str
    kind: str
    fingerprint: str
    count: int
    first: datetime | None
    last: datetime | None
    message: str
    example: str
    """`P/T`."""


@translated
class Interruptions:
    """The collection `interruptions`."""

    def __init__(self, collection: Collection[Document]) -> None:
        self._collection = committed(collection)

    def add(self, interruption: Interruption) -> bool:
        """Save an interruption; False if that of the same failure or of a later one is there.

        Acknowledged: its process is broken next, and what is broken has to be listed.
        """
        fields = literals(to_document(interruption))
        life, restarts = interruption.reopened, interruption.restarts
        earlier = [_before(life), {"reopened": life, "restarts": {"$lt": restarts}}]
        query = {"_id": interruption.id, "$or": earlier}
        try:
            self._collection.update_one(query, [{"$replaceWith": {**fields, "at": "$$NOW"}}], upsert=True)
        except DuplicateKeyError:
            return False
        return True

    def remove_before(self, restarted: Iterable[tuple[str, int, int]]) -> None:
        """Forget what was interrupted before it was restarted for the nth time, and listed no later than in this life
        of its process: (id, n, life). In one that begins with a new epoch tasks are counted anew."""
        deletes = [
            DeleteOne({"_id": key, "restarts": {"$lt": restarts}, "reopened": {"$not": {"$gt": life}}})
            for key, restarts, life in restarted
        ]
        self._delete(deletes)

    def remove_lives(self, running: Iterable[tuple[str, int]]) -> None:
        """Forget what was listed before its process was set running for the nth time: (id, n)."""
        self._delete([DeleteOne({"_id": key, **_before(n)}) for key, n in running])

    def remove_kind(self, listed: Iterable[tuple[str, int]], kind: str) -> None:
        """Forget those of these that are of this kind of error, and were listed before their process was set running
        once more than n times: (id, n)."""
        self._delete([DeleteOne({"_id": key, "kind": kind, **_before(n + 1)}) for key, n in listed])

    def _delete(self, deletes: list[DeleteOne]) -> None:
        if deletes:
            self._collection.bulk_write(deletes, ordered=False)

    def remove_all(self, process_ids: Sequence[str]) -> None:
        """Forget all of these processes. Index `_id`, their ranges."""
        if process_ids:
            self._collection.delete_many(record_ranges(process_ids))

    def remove_past(self, process_id: str, reopened: int) -> None:
        """Forget what of a process was listed before it was set running so often. Index `_id`, one range."""
        self._collection.delete_many({**record_range(process_id), **_before(reopened)})

    def of_process(self, process_id: str) -> list[Interruption]:
        """All of a process, in the order of their ids. Index `_id`, one range."""
        found = self._collection.find(record_range(process_id)).sort("_id", 1)
        return list(readable(Interruption, found, _as_shown))

    def of_processes(self, process_ids: Sequence[str]) -> list[Interruption]:
        """All of these processes. Index `_id`, one range each."""
        if not process_ids:
            return []
        found = self._collection.find(record_ranges(process_ids))
        return list(readable(Interruption, found.hint("_id_"), _as_shown))

    def count(self, selection: Selection) -> int:
        """How many are selected. Index `group` or `fingerprint`."""
        return self._collection.count_documents(selection.filter())

    def count_processes(self, selection: Selection) -> int:
        """Of how many processes those selected are. Index `group` or `fingerprint`."""
        process = {"$first": {"$split": ["$_id", SEPARATOR]}}
        stages: list[Document] = [
            {"$match": selection.filter()},
            {"$group": {"_id": process}},
            {"$count": "processes"},
        ]
        return next((found["processes"] for found in self._collection.aggregate(stages)), 0)

    def page(self, selection: Selection, after: str, limit: int) -> list[Interruption]:
        """Of those selected the next after this id, in the order of ids, that is of their processes' starts."""
        found = self._collection.find({**selection.filter(), "_id": {"$gt": after}}).sort("_id", 1).limit(limit)
        return list(readable(Interruption, found, _as_shown))

    def values(self, name: str, limit: int) -> list[str]:
        """Up to `limit` of what they have in this field, as texts, for shells that complete it. Index `group` alone, if
        the field is in it."""
        stages: list[Document] = [{"$group": {"_id": f"${name}"}}, {"$limit": limit}]
        # To be asked for by name: a group does not look for one that has all that it takes.
        options: Document = {"hint": "group"} if name in ("type", "actor", "kind", "fingerprint") else {}
        return sorted(str(found["_id"]) for found in self._collection.aggregate(stages, **options))

    def groups(self, selection: Selection) -> list[Group]:
        """Those selected, alike ones together, the most frequent first. Index `group` or `fingerprint`."""
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
                **{name: _text(found["_id"].get(name)) for name in names},
                count=found["count"],
                first=_date(found["first"]),
                last=_date(found["last"]),
                message=_text(found["example"].get("message")),
                example=found["example"]["id"],
            )
            for found in self._collection.aggregate(stages)
        ]


def _before(life: int) -> Document:
    """Listed in an earlier life of the process than this, or by somebody who does not say in which."""
    return {"reopened": {"$not": {"$gte": life}}}


def _as_shown(document: Document) -> Interruption:
    """A record as it is shown and restarted by, with what is no text, of another program, as Python writes it: it hides
    no other of its page."""
    texts = {name: _text(document.get(name)) for name in ("type", "actor", "kind", "message", "fingerprint")}
    return from_document(Interruption, {**document, **texts, "at": _date(document.get("at"))})


def _text(value: object) -> str:
    return value if isinstance(value, str) else repr(value)


def _date(value: object) -> datetime | None:
    return value if isinstance(value, datetime) else None
