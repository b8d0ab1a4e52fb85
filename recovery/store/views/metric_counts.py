"""Queries and updates of counts for metrics: the census of processes, and counts of programs that are not scraped.

Counting processes costs in proportion to the live processes. Therefore one worker takes the census for all, seldom, and
every worker reads it. Left counts are only for metrics: a failover may lose or repeat a few.
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
"""Maximum number of process types in a census, per state: those with the most processes. More types are probably a
mistake, and each would be a time series in Prometheus."""

_COUNTED = ((ProcessState.RUNNING, "running"), (ProcessState.BROKEN, "unsuccessful"))
_TEXT: Document = {"$cond": [{"$eq": [{"$type": "$type"}, "string"]}, "$type", ""]}

log = logging.getLogger(__name__)


@translated
class Censuses:
    """The collection `census`, and the queries that count for it."""

    def __init__(self, database: Database[Document]) -> None:
        self._database = database
        self._current, self._committed = current(database[schema.CENSUS]), committed(database[schema.CENSUS])

    def begin(self, within: float) -> datetime | None:
        """Acquire the census lease for `within` seconds, if a census is due.

        Compares `nextAt` with the database's clock, on the primary. Return the lease's expiry, which `save` compares;
        None if no census is due.
        """
        # A time that is far off comes from a clock that ran ahead. Without this check no census would be due again.
        due: Document = {"$expr": {"$or": [{"$lte": ["$nextAt", "$$NOW"]}, {"$gt": ["$nextAt", after(FAR)]}]}}
        stages = [{"$set": {"nextAt": after(within)}}]
        census = self._current.find_one_and_update({"_id": THE_ONE, **due}, stages, return_document=True)
        if census is None:
            try:
                census = self._current.find_one_and_update(
                    {"_id": THE_ONE, "nextAt": None}, stages, upsert=True, return_document=True
                )
            except DuplicateKeyError:  # it exists and is not due
                return None
        assert census is not None  # an upsert always returns a document
        until: datetime = census["nextAt"]
        return until

    def count(self) -> tuple[CensusLine, ...]:
        """Return the numbers of running and broken processes by type. Read concern majority.

        Running processes are counted in index `running` alone, broken ones by index `unsuccessful`.
        """
        processes = committed(self._database[schema.PROCESSES])
        lines = list[CensusLine]()
        for state, index in _COUNTED:
            stages: list[Document] = [
                {"$match": {"state": state.value}},
                {"$group": {"_id": _TEXT, "count": {"$sum": 1}}},
                {"$sort": {"count": pymongo.DESCENDING, "_id": 1}},
                {"$limit": TYPES},
            ]
            rows = processes.aggregate(stages, hint=index)
            lines += [CensusLine(type=row["_id"], state=state.value, count=row["count"]) for row in rows]
        return tuple(lines)

    def save(self, census: Census, begun: datetime, next_within: float) -> bool:
        """Save a census, and make the next one due in `next_within` seconds.

        `begun` is the expiry of the lease under which it was counted, and must still be stored. Acknowledged by a
        majority. Return False if the lease expired and another worker has begun a census.
        """
        fields = literals(to_document(census))
        times = {"takenAt": "$$NOW", "nextAt": after(next_within)}
        under_lease = {"_id": census.id, "nextAt": begun}
        return self._committed.update_one(under_lease, [{"$replaceWith": {**fields, **times}}]).matched_count == 1

    def last(self, within: float) -> Census | None:
        """Return the last census if it is at most `within` seconds old; None otherwise. Read concern majority."""
        documents = self._committed.find({"_id": THE_ONE, "$expr": near_now("$takenAt", within)})
        return next(readable(Census, documents), None)


@translated
class LeftCountRecords:
    """The collection `leftCounts`: counts of short-lived programs, left for a worker to export."""

    def __init__(self, collection: Collection[Document]) -> None:
        self._current = current(collection)

    def leave(self, samples: Iterable[Sample]) -> None:
        """Save counts under a new id for some worker to take."""
        fields = to_document(LeftCounts(id=new_pass(), samples=tuple(samples)))
        key = fields.pop("_id")
        stages = [{"$set": literals(fields) | {"at": "$$NOW"}}]
        self._current.update_one({"_id": key}, stages, upsert=True)

    def take(self, limit: int) -> list[LeftCounts]:
        """Take up to `limit` left counts, the oldest first. No other worker gets the same ones.

        Each is removed when taken. Counts that can't be read are logged and removed, because they would otherwise stay
        first. Uses one round trip, and one more per record.
        """
        left_counts = read(LeftCounts, self._current.find().sort("_id", 1).limit(limit))
        for damage in left_counts.damaged:
            if self._current.delete_one({"_id": damage.record}).deleted_count:
                log.warning("%s; it was removed, and is not counted", damage)
        return [counts for counts in left_counts.records if self._current.delete_one({"_id": counts.id}).deleted_count]
