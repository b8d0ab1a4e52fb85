"""Queries and updates of the Schedule records.

`save` replaces the whole record and compares the version that it was decided from, so only one of two concurrent writes
succeeds. All writes except `postpone` are `committed`, because they decide whether a process is started. There are as
many schedules as process types, and few writes.
"""

from __future__ import annotations

from collections.abc import Collection as Names
from typing import Any

from pymongo.collection import Collection
from pymongo.errors import DuplicateKeyError

from recovery.records import from_document, to_document
from recovery.records.schedule import Schedule
from recovery.store.client import Document
from recovery.store.concerns import committed, current
from recovery.store.driver_errors import translated
from recovery.store.expressions import OVERDUE, after
from recovery.store.record_reading import Read, read, readable


@translated
class Schedules:
    """The collection `schedules`."""

    def __init__(self, collection: Collection[Document]) -> None:
        self._committed, self._current = committed(collection), current(collection)

    def insert(self, schedule: Schedule) -> bool:
        """Save a new schedule. Return False if the name exists already."""
        try:
            self._committed.insert_one(to_document(schedule))
        except DuplicateKeyError:
            return False
        return True

    def save(self, schedule: Schedule) -> bool:
        """Replace a schedule and increment its version. Return False if its version has changed since it was read."""
        document = to_document(schedule.evolve(version=schedule.version + 1))
        changed = self._committed.replace_one(_as_read(schedule), document)
        return changed.modified_count == 1

    def remove(self, schedule: Schedule) -> bool:
        """Remove a schedule. Return False if its version has changed since it was read."""
        return self._committed.delete_one(_as_read(schedule)).deleted_count == 1

    def remove_damaged(self, name: str) -> bool:
        """Remove a schedule that can't be read.

        Returns:
            False if there is no schedule of this name, if it can be read, or if it was changed at the same time.
        """
        document = self._committed.find_one({"_id": name})
        if document is None or not read(Schedule, [document]).damaged:
            return False
        return self._committed.delete_one({"_id": name, "version": document.get("version")}).deleted_count == 1

    def get(self, name: str) -> Schedule | None:
        """Return the schedule of this name as a majority has it, or None. Raises DamagedRecord."""
        document = self._committed.find_one({"_id": name})
        return from_document(Schedule, document) if document else None

    def among(self, names: Names[str]) -> dict[str, Schedule]:
        """Return {name: schedule} of these schedules as a majority has them. Damaged ones are logged and left out."""
        documents = self._committed.find({"_id": {"$in": list(names)}})
        return {schedule.id: schedule for schedule in readable(Schedule, documents)}

    def all(self) -> dict[str, Schedule]:
        """Return {name: schedule} of all schedules as a majority has them. Damaged ones are logged and left out."""
        return {schedule.id: schedule for schedule in readable(Schedule, self._committed.find().sort("_id", 1))}

    def all_with_damaged(self) -> Read[Schedule]:
        """Return all schedules by name, and the damage of the others, as a majority has them."""
        return read(Schedule, self._committed.find().sort("_id", 1))

    def awaited(self) -> set[str]:
        """Return the ids of processes that schedules started and whose ends may not have been evaluated yet."""
        return {
            process_id
            for schedule in self.all().values()
            for process_id in (*schedule.beside, schedule.last_process)
            if process_id
        }

    def to_look_at(self, limit: int, ahead: float, process_types: Names[str]) -> Read[Schedule]:
        """Return schedules that need attention, from the primary.

        Overdue schedules come first, the longest overdue first (index `deadline`). Then come schedules with an
        impossible deadline (a clock was wrong), and schedules that lack a deadline although they are not at rest
        (another program wrote them).

        Args:
            limit: Maximum number of schedules.
            ahead: A deadline more than this many seconds ahead is impossible.
            process_types: Process types that this worker has. A schedule whose key is not known yet is returned only if
                its type is one of these.
        """
        has_key: list[Document] = [{"keyed": {"$exists": True}}, {"orders": {"$exists": True}}]
        startable: Document = {"$or": [*has_key, {"type": {"$in": list(process_types)}}]}
        overdue = read(Schedule, self._current.find({**OVERDUE, **startable}).sort("recoveryTime", 1).limit(limit))
        remaining = limit - len(overdue)
        if remaining <= 0:
            return overdue
        abnormal = {"$and": [{"$or": [_far_off(ahead), _WITHOUT_DEADLINE]}, startable]}
        return overdue + read(Schedule, self._current.find(abnormal).limit(remaining))

    def postpone(self, record: Any, seconds: float, ahead: float) -> None:
        """Set the deadline of a schedule that can't be handled to this many seconds from now.

        Changes it only if `to_look_at` would still return it. Bypasses the validators.
        """
        stages = [{"$set": {"recoveryTime": after(seconds)}}]
        query = {"_id": record, "$or": [OVERDUE, _far_off(ahead), _WITHOUT_DEADLINE]}
        self._current.update_one(query, stages, bypass_document_validation=True)


_WITHOUT_DEADLINE: Document = {
    "recoveryTime": None,
    "paused": None,
    "$and": [
        {"$or": [{"disabled": None}, {"disabled.marker": {"$exists": True}}]},
        {"$or": [{"starting": {"$exists": True}}, {"nextSlot": {"$exists": True}}, {"waiting.0": {"$exists": True}}]},
    ],
}
"""Filter: a schedule has no deadline although it is not paused or disabled and has something to start. There are few
schedules, so no index is needed.
"""


def _far_off(ahead: float) -> Document:
    """Return a filter for deadlines more than this many seconds ahead."""
    return {"recoveryTime": {"$exists": True}, "$expr": {"$gt": ["$recoveryTime", after(ahead)]}}


def _as_read(schedule: Schedule) -> Document:
    """Return a filter that matches a schedule in the version that was read. A missing version is read as 0."""
    return {"_id": schedule.id, "version": schedule.version or {"$in": [0, None]}}
