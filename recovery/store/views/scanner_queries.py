"""Queries and notes of scanners.

`Due` finds what is overdue, `UnreachableDeadlines` finds deadlines too far in the future, and `Scanners` records when
each scanner last ran in the cluster. All read and write the primary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from pymongo import UpdateOne
from pymongo.collection import Collection
from pymongo.database import Database

from recovery.limits import FAR_OFF
from recovery.records import LIVE_DECISIONS, DecisionState, ProcessState, ScannerRun, to_document
from recovery.store import schema
from recovery.store.client import Document
from recovery.store.concerns import current
from recovery.store.driver_errors import translated
from recovery.store.expressions import OVERDUE, Expression, after, literal, literals, read_past
from recovery.store.record_reading import readable

_NUDGED_AT: Document = {
    # A note without the field comes from a worker that scans only when a beat nudges it.
    "$cond": [{"$eq": [{"$type": "$nudgedAt"}, "missing"]}, {"$ifNull": ["$ranAt", None]}, "$nudgedAt"]
}
_UNREACHABLE: Document = {
    "recoveryTime": {"$exists": True},
    "$expr": {"$gt": ["$recoveryTime", after(FAR_OFF)]},
}
_LIVE: dict[str, Document] = {
    schema.DECISIONS: {"state": {"$in": [state.value for state in LIVE_DECISIONS]}},
    schema.GRAPHS: {"notFinished": {"$ne": {}}, "failed": {}},
    schema.PROCESSES: {"state": ProcessState.RUNNING.value},
}
# A delayed task keeps its scheduled time if that is not too far in the future.
_DUE: Expression = {
    "$cond": [
        {"$and": [{"$eq": ["$state", DecisionState.DELAYED.value]}, {"$lte": ["$eta", after(FAR_OFF)]}]},
        {"$max": ["$eta", "$$NOW"]},
        "$$NOW",
    ]
}


@dataclass(frozen=True, slots=True)
class DueRecords:
    """The work for scanners at one moment of the database's clock."""

    at: datetime
    collections: frozenset[str]
    """Names of collections with an overdue record. `operations` is included if an operation is live, and `decisions`
    also if a task is queued, because its message may be lost."""


@translated
class Due:
    """A query that shows which scanners have work, and the database's time, in one round trip.

    It reads the first key of each index `deadline`, so the cost does not depend on the number of live records. MongoDB
    keeps removed keys for five minutes or more (`minSnapshotHistoryWindowInSeconds`), which makes the query slower
    after many changes.
    """

    def __init__(self, database: Database[Document]) -> None:
        self._database = database

    def look(self) -> DueRecords:
        """Return what is due now."""
        filters = dict.fromkeys((schema.DECISIONS, schema.GRAPHS, schema.PROCESSES, schema.SCHEDULES), OVERDUE)
        filters |= {schema.OPERATIONS: {"recoveryTime": {"$exists": True}}}
        # These stages make one empty document. `$documents` would do the same but needs a right that no database role
        # has.
        stages: list[Document] = [{"$match": {"_id": {"$in": []}}}, {"$facet": {"nothing": [{"$limit": 1}]}}]
        stages += [{"$project": {"at": "$$NOW"}}]
        stages += [_union(name, query, {"recoveryTime": 1}) for name, query in filters.items()]
        queued: Document = {"state": DecisionState.QUEUED.value, "actor": {"$gte": ""}}
        stages += [_union(schema.DECISIONS, queued)]
        first, *matches = self._database[schema.OPERATIONS].aggregate(stages)
        return DueRecords(first["at"], frozenset(match["_id"] for match in matches))


def _union(collection: str, query: Document, sort: Document | None = None) -> Document:
    """Return a stage that adds a document with the collection's name if a record matches."""
    sort_stages = [{"$sort": sort}] if sort else []
    pipeline = [{"$match": query}, *sort_stages, {"$limit": 1}, {"$project": {"_id": literal(collection)}}]
    return {"$unionWith": {"coll": collection, "pipeline": pipeline}}


@translated
class Scanners:
    """The collection `scanners`: one note per scanner for the whole cluster."""

    def __init__(self, collection: Collection[Document]) -> None:
        self._current = current(collection)

    def note(self, *runs: ScannerRun, by_beat: bool) -> None:
        """Record that scanners ran just now, replacing the notes of other workers. Only for reports.

        Args:
            runs: The runs to record.
            by_beat: Whether a nudge of Celery beat caused the runs.
        """
        notes, nudged_at = [], "$$NOW" if by_beat else _NUDGED_AT
        for run in runs:
            fields = literals(to_document(run))
            noted = {**fields, "ranAt": "$$NOW", "nudgedAt": nudged_at, "lost": "$lost", "lostAt": "$lostAt"}
            notes.append(UpdateOne({"_id": run.id}, [{"$replaceWith": noted}], upsert=True))
        if notes:
            self._current.bulk_write(notes, ordered=False)

    def lost(self, workers: Sequence[str]) -> None:
        """Record that workers with these names were silent for too long and were removed. Only for reports."""
        lost_fields = {"lost": literal(list(workers)), "lostAt": "$$NOW"}
        self._current.update_one({"_id": schema.WORKERS}, [{"$set": lost_fields}], upsert=True)

    def all(self) -> dict[str, ScannerRun]:
        """Return the last run of each scanner by name.

        A time in the future is ignored. Otherwise it would look recent for a long time while no scanner runs.
        """
        documents = self._current.aggregate(
            [{"$set": {"nudgedAt": _NUDGED_AT}}, read_past("ranAt", "nudgedAt", "lostAt")]
        )
        return {run.id: run for run in readable(ScannerRun, documents)}


@translated
class UnreachableDeadlines:
    """Live records whose deadline is further in the future than any setting allows, so no scanner would find them.

    Such a deadline comes from another program or an older version. Normally there are none, and a query reads only the
    end of index `deadline`.
    """

    def __init__(self, database: Database[Document]) -> None:
        self._collections = {name: current(database[name]) for name in _LIVE}

    def count(self) -> dict[str, int]:
        """Return the number of such records by collection. Index `deadline`."""
        return {
            name: collection.count_documents(_UNREACHABLE | _LIVE[name], hint="deadline")
            for name, collection in self._collections.items()
        }

    def stamp(self, ids: Sequence[str]) -> int:
        """Set such deadlines of these records to now, in any collection. Return how many changed.

        A delayed task keeps its scheduled time. Matches only records that are still live with such a deadline.
        """
        return sum(
            collection.update_many(
                {"_id": {"$in": list(ids)}, **_UNREACHABLE, **_LIVE[name]}, [{"$set": {"recoveryTime": _DUE}}]
            ).modified_count
            for name, collection in self._collections.items()
        )
