"""What scanners ask and note: what is overdue (`Due`), what has a deadline that nobody reaches
(`UnreachableDeadlines`), and when each ran last in the whole cluster (`Scanners`)."""

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
    # A note without it is of a worker that scans only when a beat nudges.
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
# What is delayed keeps its time, if anybody can wait for it.
_DUE: Expression = {
    "$cond": [
        {"$and": [{"$eq": ["$state", DecisionState.DELAYED.value]}, {"$lte": ["$eta", after(FAR_OFF)]}]},
        {"$max": ["$eta", "$$NOW"]},
        "$$NOW",
    ]
}


@dataclass(frozen=True, slots=True)
class DueRecords:
    """What there is to do at a moment, by the database's clock."""

    at: datetime
    collections: frozenset[str]
    """Names of the collections in which a record is overdue; the operations if one is live; the decisions also if a
    task is queued, because its message may be lost."""


@translated
class Due:
    """What scanners have something to do about, and the time: one question for all of them.

    It costs one look at the first key of each index `deadline`, so the same whether nothing is live or ten million are.
    MongoDB keeps keys that were removed for five minutes and more (`minSnapshotHistoryWindowInSeconds`), and goes
    through those: after a storm a look takes up to 30 ms.
    """

    def __init__(self, database: Database[Document]) -> None:
        self._database = database

    def look(self) -> DueRecords:
        """Return what is due now."""
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


@translated
class Scanners:
    """The collection `scanners`: one note per scanner, whichever worker ran it."""

    def __init__(self, collection: Collection[Document]) -> None:
        self._current = current(collection)

    def note(self, *runs: ScannerRun, by_beat: bool) -> None:
        """Say that scanners ran just now, `by_beat` since a beat's nudge was taken: over what any worker said before.
        Nothing is decided by a note."""
        notes, nudged_at = [], "$$NOW" if by_beat else _NUDGED_AT
        for run in runs:
            fields = literals(to_document(run))
            noted = {**fields, "ranAt": "$$NOW", "nudgedAt": nudged_at, "lost": "$lost", "lostAt": "$lostAt"}
            notes.append(UpdateOne({"_id": run.id}, [{"$replaceWith": noted}], upsert=True))
        if notes:
            self._current.bulk_write(notes, ordered=False)

    def lost(self, workers: Sequence[str]) -> None:
        """Say that workers of these names were silent for too long and are forgotten. For people: nothing is decided by
        it."""
        lost = {"lost": literal(list(workers)), "lostAt": "$$NOW"}
        self._current.update_one({"_id": schema.WORKERS}, [{"$set": lost}], upsert=True)

    def all(self) -> dict[str, ScannerRun]:
        """The last run of each scanner that ever ran, by name. One that is still to come would pass for a fresh one
        for good, while nothing runs: its time is not believed."""
        found = self._current.aggregate([{"$set": {"nudgedAt": _NUDGED_AT}}, read_past("ranAt", "nudgedAt", "lostAt")])
        return {run.id: run for run in readable(ScannerRun, found)}


@translated
class UnreachableDeadlines:
    """Live records whose deadline is further off than anything that can be asked for: as good as without one.

    None is ours: another program wrote it, or an older version that took any time. While all is well there is none, and
    asking costs the end of an index. Index `deadline`.
    """

    def __init__(self, database: Database[Document]) -> None:
        self._collections = {name: current(database[name]) for name in _LIVE}

    def count(self) -> dict[str, int]:
        """Return {collection: live records with such a deadline}."""
        return {
            name: collection.count_documents(_UNREACHABLE | _LIVE[name], hint="deadline")
            for name, collection in self._collections.items()
        }

    def stamp(self, ids: Sequence[str]) -> int:
        """Set such deadlines of these records, of any collection, to now. Return how many there were."""
        return sum(
            collection.update_many(
                {"_id": {"$in": list(ids)}, **_UNREACHABLE, **_LIVE[name]}, [{"$set": {"recoveryTime": _DUE}}]
            ).modified_count
            for name, collection in self._collections.items()
        )
