"""Queries and updates of counts for metrics: the census of processes, and what programs counted that nobody scrapes.

Counting processes costs what is live, so one worker takes the census for all, seldom, and every worker reads it.
Nothing is decided by left counts: what a failover takes back is a count too few, or too many.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import datetime

import pymongo
from pymongo.collection import Collection
from pymongo.database import Database
from pymongo.errors import DuplicateKeyError

from recovery.records import Census, CensusLine, LeftCounts, ProcessState, Sample, to_document
from recovery.records.ids import new_pass
from recovery.store import schema
from recovery.store.client import Document
from recovery.store.concerns import committed, current
from recovery.store.driver_errors import translated
from recovery.store.expressions import after, literals, near_now
from recovery.store.record_reading import read, readable

THE_ONE = "census"
FAR = 86_400.0
"""Maximum postponement of a census, in seconds."""
TYPES = 200
"""Of which processes are counted by themselves, in each state: those that have the most. Whoever has more types has
them by mistake, and each would be a series in Prometheus."""

_COUNTED = ((ProcessState.RUNNING, "running"), (ProcessState.BROKEN, "unsuccessful"))
_TEXT: Document = {"$cond": [{"$eq": [{"$type": "$type"}, "string"]}, "$type", ""]}

log = logging.getLogger(__name__)


@translated
class Censuses:
    """The collection `census`, and the counts that go into it."""

    def __init__(self, database: Database[Document]) -> None:
        self._database = database
        self._current, self._committed = current(database[schema.CENSUS]), committed(database[schema.CENSUS])

    def begin(self, within: float) -> datetime | None:
        """Acquire the census lease for so many seconds, if a census is due and nobody takes it. Return the lease's
        expiry, by which `save` knows who began the census; None if none is due."""
        # One that is far off was set by a clock that ran ahead, and would be the last one.
        due: Document = {"$expr": {"$or": [{"$lte": ["$nextAt", "$$NOW"]}, {"$gt": ["$nextAt", after(FAR)]}]}}
        stages = [{"$set": {"nextAt": after(within)}}]
        begun = self._current.find_one_and_update({"_id": THE_ONE, **due}, stages, return_document=True)
        if begun is None:
            try:
                begun = self._current.find_one_and_update(
                    {"_id": THE_ONE, "nextAt": None}, stages, upsert=True, return_document=True
                )
            except DuplicateKeyError:  # it is there, and not due
                return None
        assert begun is not None  # it is an upsert
        until: datetime = begun["nextAt"]
        return until

    def count(self) -> tuple[CensusLine, ...]:
        """Running and broken processes by type, as a majority has them. Running ones: index `running`, and nothing but
        it."""
        told = committed(self._database[schema.PROCESSES])
        lines = list[CensusLine]()
        for state, index in _COUNTED:
            stages: list[Document] = [
                {"$match": {"state": state.value}},
                {"$group": {"_id": _TEXT, "count": {"$sum": 1}}},
                {"$sort": {"count": pymongo.DESCENDING, "_id": 1}},
                {"$limit": TYPES},
            ]
            found = told.aggregate(stages, hint=index)
            lines += [CensusLine(type=one["_id"], state=state.value, count=one["count"]) for one in found]
        return tuple(lines)

    def save(self, census: Census, begun: datetime, next_within: float) -> bool:
        """Save what was counted under the lease that expires at `begun`; the next census is due in so many seconds.
        Return False if counting took longer than the lease, and somebody else has begun another census."""
        fields = literals(to_document(census))
        times = {"takenAt": "$$NOW", "nextAt": after(next_within)}
        ours = {"_id": census.id, "nextAt": begun}
        return self._committed.update_one(ours, [{"$replaceWith": {**fields, **times}}]).matched_count == 1

    def last(self, within: float) -> Census | None:
        """Return the last census, as a majority has it; None if there is none that is at most so many seconds old."""
        found = self._committed.find({"_id": THE_ONE, "$expr": near_now("$takenAt", within)})
        return next(readable(Census, found), None)


@translated
class LeftCountRecords:
    """The collection `leftCounts`."""

    def __init__(self, collection: Collection[Document]) -> None:
        self._current = current(collection)

    def leave(self, samples: Iterable[Sample]) -> None:
        """Leave these counts for a worker."""
        fields = to_document(LeftCounts(id=new_pass(), samples=tuple(samples)))
        key = fields.pop("_id")
        stages = [{"$set": literals(fields) | {"at": "$$NOW"}}]
        self._current.update_one({"_id": key}, stages, upsert=True)

    def take(self, limit: int) -> list[LeftCounts]:
        """Some of what was left, the oldest first; nobody else gets them. What can't be read is told and removed: it
        would stand before all others. One round trip, and one more for each that is there."""
        found = read(LeftCounts, self._current.find().sort("_id", 1).limit(limit))
        for damage in found.damaged:
            if self._current.delete_one({"_id": damage.record}).deleted_count:
                log.warning("%s; it was removed, and is not counted", damage)
        return [one for one in found.records if self._current.delete_one({"_id": one.id}).deleted_count]
