"""Queries and updates of orders: what is to be done to processes beyond their normal life."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from pymongo.collection import Collection
from pymongo.database import Database

from recovery.records import Mark, Order, OrderKind, Process, mark_of, to_document
from recovery.records.ids import new_pass, record_id
from recovery.store import schema
from recovery.store.client import Document
from recovery.store.clock import told_by
from recovery.store.concerns import committed
from recovery.store.driver_errors import translated
from recovery.store.record_reading import PROCESS_FIELDS, process_of, readable

_MARKED: Document = {"$or": [{"removing": True}, {"redo": {"$exists": True}}, {"markerDue": True}]}


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
