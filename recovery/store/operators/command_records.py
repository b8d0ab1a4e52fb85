"""Queries and updates of what operators' commands write down: the audit log, which says what they did, searches and
operations to which they gave a name, and orders, which say what is to be done to processes beyond their normal life."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import ClassVar, Generic, TypeVar

from pymongo.collection import Collection
from pymongo.database import Database
from pymongo.errors import DuplicateKeyError

from recovery.errors import DamagedRecord
from recovery.records import (
    AuditEntry,
    Mark,
    Order,
    OrderKind,
    Process,
    SavedOperation,
    SavedSearch,
    mark_of,
    to_document,
)
from recovery.records.ids import new_pass, record_id
from recovery.store import schema
from recovery.store.client import Document
from recovery.store.clock import told_by
from recovery.store.concerns import committed
from recovery.store.driver_errors import translated
from recovery.store.expressions import literal
from recovery.store.record_reading import PROCESS_FIELDS, process_of, read, readable

S = TypeVar("S", SavedSearch, SavedOperation)
_MARKED: Document = {"$or": [{"removing": True}, {"redo": {"$exists": True}}, {"markerDue": True}]}


@translated
class AuditLog:
    """The collection `auditLog`. An entry is written before something is done, and completed after it."""

    def __init__(self, collection: Collection[Document]) -> None:
        self._entries = committed(collection)

    def begin(self, entry: AuditEntry) -> None:
        """Save what is about to be done, under a new id."""
        fields = {key: literal(value) for key, value in to_document(entry).items() if key != "_id"}
        self._entries.update_one({"_id": entry.id}, [{"$set": {**fields, "at": "$$NOW"}}], upsert=True)

    def end(self, key: str, outcome: str, operation: int | None = None) -> None:
        """Save the outcome of what was done."""
        fields = {"outcome": literal(outcome), "endedAt": "$$NOW"}
        if operation is not None:
            fields["operation"] = literal(operation)
        self._entries.update_one({"_id": key, "outcome": None}, [{"$set": fields}])

    def newest(
        self, limit: int, *, what: str | None = None, target: str | None = None, operation: int | None = None
    ) -> list[AuditEntry]:
        """The last entries, the newest first; of what begins so, of this target, of this operation. Ids are in order of
        time. Index `target`, or `_id` from its end."""
        query: Document = {}
        if what is not None:
            query["what"] = {"$gte": what, "$lt": what + "\U0010ffff"}
        if target is not None:
            query["target"] = target
        if operation is not None:
            query["operation"] = operation
        return list(readable(AuditEntry, self._entries.find(query).sort("_id", -1).limit(limit)))


def _in_version(saved: SavedSearch | SavedOperation) -> Document:
    """What is still as it was read. A version that is missing was read as 0."""
    return {"_id": saved.id, "version": {"$in": [0, None]} if saved.version == 0 else saved.version}


@translated
class Saved(Generic[S]):
    """A collection of what people saved under names.

    Every write names the version that it was decided from, so of two who change a record at once one does.
    """

    _kind: ClassVar[type[SavedSearch] | type[SavedOperation]]

    def __init__(self, collection: Collection[Document]) -> None:
        self._saved, self.name = committed(collection), collection.name

    def insert(self, new: S) -> bool:
        """Save a record under a new name; False: there is one of this name."""
        try:
            self._saved.insert_one(to_document(new))
        except DuplicateKeyError:
            return False
        return True

    def replace(self, new: S) -> bool:
        """Save a record in the place of the one in the version that it holds, as the next; False: somebody was
        first."""
        document = to_document(new.evolve(version=new.version + 1))
        changed = self._saved.replace_one(_in_version(new), document)
        return changed.modified_count == 1

    def remove(self, saved: S) -> bool:
        """Remove a record in this version; False: somebody was first."""
        return self._saved.delete_one(_in_version(saved)).deleted_count == 1

    def damage(self, name: str) -> DamagedRecord | None:
        """Return what is wrong with a record of this name; None if there is none, or it can be read."""
        found = read(self._kind, self._saved.find({"_id": name}))
        return found.damaged[0] if found.damaged else None

    def all(self) -> dict[str, S]:
        """All that can be read, by name, as a majority has them. There are as many as people gave names."""
        kind: type[S] = self._kind  # type: ignore[assignment]
        return {saved.id: saved for saved in readable(kind, self._saved.find().sort("_id", 1))}


@translated
class SavedSearches(Saved[SavedSearch]):
    """The collection `savedSearches`: by a name processes are selected."""

    _kind = SavedSearch

    def texts(self) -> dict[str, str]:
        """{name: text}, as the search language asks for them."""
        return {name: search.text for name, search in self.all().items()}


@translated
class SavedOperations(Saved[SavedOperation]):
    """The collection `savedOperations`: by a name an operation is started, or ordered by a schedule."""

    _kind = SavedOperation


def adopt(database: Database[Document]) -> int:
    """Order what processes are marked for that workers marked which knew no orders yet. Return for how many.

    Until it was done once, it may be cut off, done again, and done by several at a time. Not after that: a mark that
    comes later without an order may be anybody's. Index `deadline`.
    """
    processes, orders = committed(database[schema.PROCESSES]), ProcessOrders(database[schema.ORDERS])
    marked: Document = {**_MARKED, "order": None, "recoveryTime": {"$exists": True}}
    now, adopted = told_by(database), 0
    for found in readable(Process, processes.find(marked, PROCESS_FIELDS).hint("deadline"), process_of):
        named = found.evolve(order=new_pass())
        if (mark := mark_of(named)) is not None:
            orders.give(mark.kind, {mark.process: found.epoch}, mark.key, now, found.redo)
            seen: Document = {"_id": found.id, "epoch": found.epoch, "order": None, **_MARKED}
            if processes.update_one(seen, {"$set": {"order": mark.key}}).modified_count:
                adopted += 1
            else:  # somebody else was first
                orders.fulfil([mark.order])
    return adopted


@translated
class ProcessOrders:
    """The collection `orders`. Written before the process is marked, and removed once all is carried out."""

    def __init__(self, collection: Collection[Document]) -> None:
        self._orders = committed(collection)

    def give(
        self, kind: OrderKind, epochs: Mapping[str, int], key: str, now: datetime, tasks: Sequence[str] = ()
    ) -> None:
        """Order this for {process: its epoch while it is marked}, under a new key that their marks are to name."""
        given = [
            Order(id=record_id(one, key), kind=kind, epoch=epoch, tasks=tuple(tasks), at=now)
            for one, epoch in epochs.items()
        ]
        if given:
            self._orders.insert_many([to_document(one) for one in given], ordered=False)

    def standing(self, marks: Iterable[Mark | None]) -> dict[str, Order]:
        """{process: the order by which it is marked}, of those of these that are. The other marks are of somebody who
        may not order that, or of a worker that knows no orders yet."""
        named = {mark.order: mark for mark in marks if mark is not None}
        found = self._orders.find({"_id": {"$in": [*named]}}) if named else ()
        return {one.process_id: one for one in readable(Order, found) if named[one.id].is_by(one)}

    def fulfil(self, orders: Iterable[str]) -> None:
        """Remove these orders: all is carried out, or no process is marked by them."""
        if ids := list(orders):
            self._orders.delete_many({"_id": {"$in": ids}})
