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

from recovery.records import to_document
from recovery.records.schedule import Schedule
from recovery.store.client import Document
from recovery.store.concerns import committed, current
from recovery.store.driver_errors import translated
from recovery.store.expressions import OVERDUE, after
from recovery.store.reading import Read, read, readable


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
        changed = self._committed.replace_one({"_id": schedule.id, "version": schedule.version}, document)
        return changed.modified_count == 1

    def remove(self, schedule: Schedule) -> bool:
        """Remove a schedule in this version; False: somebody was first."""
        return self._committed.delete_one({"_id": schedule.id, "version": schedule.version}).deleted_count == 1

    def get(self, name: str) -> Schedule | None:
        """The schedule of this name, as a majority has it."""
        found = self._committed.find_one({"_id": name})
        return next(readable(Schedule, [found]), None) if found else None

    def all(self) -> dict[str, Schedule]:
        """All schedules that can be read, by name, as a majority has them."""
        return {schedule.id: schedule for schedule in readable(Schedule, self._committed.find().sort("_id", 1))}

    def awaited(self) -> set[str]:
        """Processes that schedules started, and whose ends may not be accounted for yet."""
        return {one for schedule in self.all().values() for one in (*schedule.beside, schedule.last_process) if one}

    def to_look_at(self, limit: int, ahead: float, process_types: Names[str]) -> Read[Schedule]:
        """Schedules whose deadline is past, the longest first; and those whose deadline is further off than any is
        written, since a clock was wrong. Those whose key nobody has told yet only of these types. Index `deadline`."""
        ours: Document = {"$or": [{"keyed": {"$exists": True}}, {"type": {"$in": list(process_types)}}]}
        found = read(Schedule, self._current.find({**OVERDUE, **ours}).sort("recoveryTime", 1).limit(limit))
        left = limit - len(found)
        if left <= 0:
            return found
        # Above all dates, and not now's: a filter with an expression has only one bound of the index.
        far: Document = {"recoveryTime": {"$exists": True}, "$expr": {"$gt": ["$recoveryTime", after(ahead)]}}
        return found + read(Schedule, self._current.find({**far, **ours}).limit(left))

    def postpone(self, record: Any, seconds: float) -> None:
        """Look at a schedule that can't be read after so many seconds."""
        later = [{"$set": {"recoveryTime": after(seconds)}}]
        self._current.update_one({"_id": record, **OVERDUE}, later, bypass_document_validation=True)
