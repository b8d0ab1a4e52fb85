"""Queries and updates of the Schedule records.

All writes are of the whole record and name the version that they were decided from: of two who decide at once one
writes. All are acknowledged by a majority, since a process is started, or not, for what stands here; there are as many
schedules as process types, and few writes.
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
        """Save a new schedule; False: there is one of this name."""
        try:
            self._committed.insert_one(to_document(schedule))
        except DuplicateKeyError:
            return False
        return True

    def save(self, schedule: Schedule) -> bool:
        """Save a schedule that was decided from the version it holds, as the next one; False: somebody was first."""
        document = to_document(schedule.evolve(version=schedule.version + 1))
        changed = self._committed.replace_one(_as_read(schedule), document)
        return changed.modified_count == 1

    def remove(self, schedule: Schedule) -> bool:
        """Remove a schedule in this version; False: somebody was first."""
        return self._committed.delete_one(_as_read(schedule)).deleted_count == 1

    def remove_damaged(self, name: str) -> bool:
        """Remove a schedule that can't be read. Return False if there is none of this name, if it can be read, or if
        somebody has changed it meanwhile."""
        found = self._committed.find_one({"_id": name})
        if found is None or not read(Schedule, [found]).damaged:
            return False
        return self._committed.delete_one({"_id": name, "version": found.get("version")}).deleted_count == 1

    def get(self, name: str) -> Schedule | None:
        """The schedule of this name, as a majority has it. Raises DamagedRecord."""
        found = self._committed.find_one({"_id": name})
        return from_document(Schedule, found) if found else None

    def among(self, names: Names[str]) -> dict[str, Schedule]:
        """Those of these schedules that can be read, by name, as a majority has them."""
        found = self._committed.find({"_id": {"$in": list(names)}})
        return {schedule.id: schedule for schedule in readable(Schedule, found)}

    def all(self) -> dict[str, Schedule]:
        """All schedules that can be read, by name, as a majority has them."""
        return {schedule.id: schedule for schedule in readable(Schedule, self._committed.find().sort("_id", 1))}

    def all_with_damaged(self) -> Read[Schedule]:
        """Return all schedules by name, and why the others can't be read, as a majority has them."""
        return read(Schedule, self._committed.find().sort("_id", 1))

    def awaited(self) -> set[str]:
        """Processes that schedules started, and whose ends may not be accounted for yet."""
        return {one for schedule in self.all().values() for one in (*schedule.beside, schedule.last_process) if one}

    def to_look_at(self, limit: int, ahead: float, process_types: Names[str]) -> Read[Schedule]:
        """Schedules whose deadline is past, the longest first; and those whose deadline is further off than any is
        written, since a clock was wrong; and those that have no deadline and are not at rest, since another program
        wrote them. Those of processes whose key nobody has told yet only of these types. Index `deadline` for what is
        overdue."""
        known: list[Document] = [{"keyed": {"$exists": True}}, {"orders": {"$exists": True}}]
        ours: Document = {"$or": [*known, {"type": {"$in": list(process_types)}}]}
        found = read(Schedule, self._current.find({**OVERDUE, **ours}).sort("recoveryTime", 1).limit(limit))
        left = limit - len(found)
        if left <= 0:
            return found
        odd = {"$and": [{"$or": [_far_off(ahead), _WITHOUT_DEADLINE]}, ours]}
        return found + read(Schedule, self._current.find(odd).limit(left))

    def postpone(self, record: Any, seconds: float, ahead: float) -> None:
        """Look after so many seconds at a schedule that nobody can work with, if `to_look_at` still has it."""
        later = [{"$set": {"recoveryTime": after(seconds)}}]
        found = {"_id": record, "$or": [OVERDUE, _far_off(ahead), _WITHOUT_DEADLINE]}
        self._current.update_one(found, later, bypass_document_validation=True)


_WITHOUT_DEADLINE: Document = {
    "recoveryTime": None,
    "paused": None,
    "$and": [
        {"$or": [{"disabled": None}, {"disabled.marker": {"$exists": True}}]},
        {"$or": [{"starting": {"$exists": True}}, {"nextSlot": {"$exists": True}}, {"waiting.0": {"$exists": True}}]},
    ],
}
"""Nobody has paused or disabled it, and something is to be started. There are few schedules, so no index has these."""


def _far_off(ahead: float) -> Document:
    return {"recoveryTime": {"$exists": True}, "$expr": {"$gt": ["$recoveryTime", after(ahead)]}}


def _as_read(schedule: Schedule) -> Document:
    """Return a filter that matches a schedule in the version that was read. One without a version is read as 0."""
    return {"_id": schedule.id, "version": schedule.version or {"$in": [0, None]}}
