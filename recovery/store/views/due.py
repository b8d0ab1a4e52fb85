"""What scanners have something to do about, and the time: one question for all of them, where a scan of each asks some.

It costs one look at the first key of each index `deadline`, so the same whether nothing is live or ten million are.
MongoDB keeps keys that were removed for five minutes and more (`minSnapshotHistoryWindowInSeconds`), and goes through
those: after a storm a look takes up to 30 ms.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from pymongo.database import Database

from recovery.records import DecisionState
from recovery.store import schema
from recovery.store.client import Document
from recovery.store.driver_errors import translated
from recovery.store.expressions import OVERDUE, literal


@dataclass(frozen=True, slots=True)
class DueRecords:
    """What there is to do at a moment, by the database's clock."""

    at: datetime
    collections: frozenset[str]
    """Names of the collections in which a record is overdue; the operations if one is live; the decisions also if a
    task is queued, because its message may be lost."""


@translated
class Due:
    """A view over the collections that scanners look at."""

    def __init__(self, database: Database[Document]) -> None:
        self._database = database

    def look(self) -> DueRecords:
        """What is due now."""
        of_all = dict.fromkeys((schema.DECISIONS, schema.GRAPHS, schema.PROCESSES, schema.SCHEDULES), OVERDUE)
        of_all |= {schema.OPERATIONS: {"recoveryTime": {"$exists": True}}}
        # One document of nothing: `$documents` would say it, and takes a right that no role of one database gives.
        stages: list[Document] = [{"$match": {"_id": {"$in": []}}}, {"$facet": {"nothing": [{"$limit": 1}]}}]
        stages += [{"$project": {"at": "$$NOW"}}]
        stages += [_union(name, query, {"recoveryTime": 1}) for name, query in of_all.items()]
        queued: Document = {"state": DecisionState.QUEUED.value, "actor": {"$gte": ""}}
        stages += [_union(schema.DECISIONS, queued)]
        first, *rest = self._database[schema.OPERATIONS].aggregate(stages)
        return DueRecords(first["at"], frozenset(one["_id"] for one in rest))


def _union(collection: str, query: Document, sort: Document | None = None) -> Document:
    """A stage that adds the name of the collection if anything is found in it."""
    by = [{"$sort": sort}] if sort else []
    pipeline = [{"$match": query}, *by, {"$limit": 1}, {"$project": {"_id": literal(collection)}}]
    return {"$unionWith": {"coll": collection, "pipeline": pipeline}}
