"""Queries and updates of audit log, saved searches, saved operations and orders.

The audit log records what operators did. Saved searches and saved operations have names that people gave them. An order
says what is to be done to a process beyond its normal life. All reads have read concern majority, and all writes are
acknowledged by a majority, except where a method says otherwise.
"""

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
    """The collection `auditLog`. An entry is written before an action and completed after it.

    MongoDB removes entries after KEPT_AUDIT seconds.
    """

    def __init__(self, collection: Collection[Document]) -> None:
        self._entries = committed(collection)

    def begin(self, entry: AuditEntry) -> None:
        """Save the entry of an action that is about to begin, under a new id. The database's clock sets its time."""
        fields = {key: literal(value) for key, value in to_document(entry).items() if key != "_id"}
        self._entries.update_one({"_id": entry.id}, [{"$set": {**fields, "at": "$$NOW"}}], upsert=True)

    def end(self, key: str, outcome: str, operation: int | None = None) -> None:
        """Save the outcome of an entry that has none yet, and the number of the operation that the action created."""
        fields = {"outcome": literal(outcome), "endedAt": "$$NOW"}
        if operation is not None:
            fields["operation"] = literal(operation)
        self._entries.update_one({"_id": key, "outcome": None}, [{"$set": fields}])

    def newest(
        self, limit: int, *, what: str | None = None, target: str | None = None, operation: int | None = None
    ) -> list[AuditEntry]:
        """Return the newest entries first.

        Entries are sorted by id, which is in order of time. Uses index `target`, or walks index `_id` from its end.

        Args:
            limit: Maximum number of entries.
            what: Only actions whose name begins with this text.
            target: Only actions on this target.
            operation: Only actions that belong to the operation with this number.
        """
        query: Document = {}
        if what is not None:
            query["what"] = {"$gte": what, "$lt": what + "\U0010ffff"}
        if target is not None:
            query["target"] = target
        if operation is not None:
            query["operation"] = operation
        return list(readable(AuditEntry, self._entries.find(query).sort("_id", -1).limit(limit)))


def _in_version(saved: SavedSearch | SavedOperation) -> Document:
    """Return a filter for a saved record that is still in the version that was read.

    A record without a version was read as version 0.
    """
    return {"_id": saved.id, "version": {"$in": [0, None]} if saved.version == 0 else saved.version}


@translated
class Saved(Generic[S]):
    """A collection of records that people saved under names.

    Every write names the version that it was decided from: of two people who change a record at the same time, only one
    succeeds.
    """

    _kind: ClassVar[type[SavedSearch] | type[SavedOperation]]

    def __init__(self, collection: Collection[Document]) -> None:
        self._saved, self.name = committed(collection), collection.name

    def insert(self, new: S) -> bool:
        """Save a record under a new name. Return False if the name exists already."""
        try:
            self._saved.insert_one(to_document(new))
        except DuplicateKeyError:
            return False
        return True

    def replace(self, new: S) -> bool:
        """Replace a record that is still in the version of `new`, and increment the version.

        Return False if somebody changed or removed the record in the meantime.
        """
        document = to_document(new.evolve(version=new.version + 1))
        changed = self._saved.replace_one(_in_version(new), document)
        return changed.modified_count == 1

    def remove(self, saved: S) -> bool:
        """Remove a record that is still in this version. Return False if somebody changed or removed it."""
        return self._saved.delete_one(_in_version(saved)).deleted_count == 1

    def damage(self, name: str) -> DamagedRecord | None:
        """Return why the record of this name can't be read; None if it can be read or does not exist."""
        records = read(self._kind, self._saved.find({"_id": name}))
        return records.damaged[0] if records.damaged else None

    def all(self) -> dict[str, S]:
        """Return all readable records by name. Reads the whole collection, which is small."""
        kind: type[S] = self._kind  # type: ignore[assignment]
        return {saved.id: saved for saved in readable(kind, self._saved.find().sort("_id", 1))}


@translated
class SavedSearches(Saved[SavedSearch]):
    """The collection `savedSearches`: named searches that select processes."""

    _kind = SavedSearch

    def texts(self) -> dict[str, str]:
        """Return {name: search text}, as the search language needs it."""
        return {name: search.text for name, search in self.all().items()}


@translated
class SavedOperations(Saved[SavedOperation]):
    """The collection `savedOperations`: named operations that a person or a schedule starts."""

    _kind = SavedOperation


def adopt(database: Database[Document]) -> int:
    """Create orders for processes that a worker without support for orders has marked. Return how many were adopted.

    Until this has been completed once, it may be interrupted, repeated and run by several workers at a time. It must
    not run after that: a later mark without an order may come from anybody. Each process is marked with its order by a
    compare-and-set on epoch and mark. Index `deadline`.
    """
    processes, orders = committed(database[schema.PROCESSES]), ProcessOrders(database[schema.ORDERS])
    marked: Document = {**_MARKED, "order": None, "recoveryTime": {"$exists": True}}
    now, adopted = told_by(database), 0
    for process in readable(Process, processes.find(marked, PROCESS_FIELDS).hint("deadline"), process_of):
        with_order = process.evolve(order=new_pass())
        if (mark := mark_of(with_order)) is not None:
            orders.give(mark.kind, {mark.process: process.epoch}, mark.key, now, process.redo)
            unchanged: Document = {"_id": process.id, "epoch": process.epoch, "order": None, **_MARKED}
            if processes.update_one(unchanged, {"$set": {"order": mark.key}}).modified_count:
                adopted += 1
            else:  # another worker was first
                orders.fulfil([mark.order])
    return adopted


@translated
class ProcessOrders:
    """The collection `orders`. An order is written before its process is marked, and removed once it is carried out.

    MongoDB removes orders that are never carried out after KEPT_ORDERS seconds.
    """

    def __init__(self, collection: Collection[Document]) -> None:
        self._orders = committed(collection)

    def give(
        self, kind: OrderKind, epochs: Mapping[str, int], key: str, now: datetime, tasks: Sequence[str] = ()
    ) -> None:
        """Save one order per process, under a new key that the marks of the processes will name.

        Args:
            kind: What to do to the processes.
            epochs: Each process's epoch while it is marked, by process id.
            key: The new key.
            now: The time of the order.
            tasks: Names of the tasks to redo.
        """
        orders = [
            Order(id=record_id(process_id, key), kind=kind, epoch=epoch, tasks=tuple(tasks), at=now)
            for process_id, epoch in epochs.items()
        ]
        if orders:
            self._orders.insert_many([to_document(order) for order in orders], ordered=False)

    def standing(self, marks: Iterable[Mark | None]) -> dict[str, Order]:
        """Return {process id: its order} for each mark that names an existing, matching order.

        A mark without an order was set by somebody who may not order the action, or by a worker without support for
        orders.
        """
        marks_by_order = {mark.order: mark for mark in marks if mark is not None}
        documents = self._orders.find({"_id": {"$in": [*marks_by_order]}}) if marks_by_order else ()
        return {
            order.process_id: order for order in readable(Order, documents) if marks_by_order[order.id].is_by(order)
        }

    def fulfil(self, orders: Iterable[str]) -> None:
        """Remove these orders, because they were carried out or no process is marked by them."""
        if ids := list(orders):
            self._orders.delete_many({"_id": {"$in": ids}})
