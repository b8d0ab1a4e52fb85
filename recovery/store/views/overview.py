"""Queries that count records of the whole database, for people and monitoring.

The cost depends on the number of live records, not on the number of all records. Live records are counted in the
partial indexes. Totals come from the collections' metadata, which costs nothing and may be slightly wrong after a
server crash. No index holds finished processes, so their number is the total minus all others.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import Any

import pymongo
from pymongo.collection import Collection
from pymongo.database import Database
from pymongo.errors import OperationFailure

from recovery.records import LIVE_DECISIONS, DecisionState, ProcessState, Worker
from recovery.store import schema
from recovery.store.client import Document
from recovery.store.concerns import committed, current
from recovery.store.driver_errors import is_index_missing, translated
from recovery.store.expressions import ALIVE, OVERDUE
from recovery.store.record_reading import readable

DEADLINES = (schema.DECISIONS, schema.GRAPHS, schema.PROCESSES, schema.SCHEDULES)
"""Collections whose deadlines scanners check."""

_LIVE = [state.value for state in LIVE_DECISIONS]
_RUNNING: Document = {"state": ProcessState.RUNNING.value}
_HAS_DEADLINE: Document = {"recoveryTime": {"$exists": True}}
# A range of dates is counted from index keys alone, which is faster than `$exists`. All deadlines are dates.
_DATED: Document = {"recoveryTime": {"$gte": datetime.min.replace(tzinfo=UTC)}}
_AGE: Document = {"$divide": [{"$subtract": ["$$NOW", "$recoveryTime"]}, 1000]}


PAGE = 1000

APPLYING, AT_REST = "applying", "at rest"
"""Finished decisions with a deadline are being applied. Decisions without a deadline are at rest: waiting, or
finished and applied."""


def time_limit(seconds: float) -> AbstractContextManager[None]:
    """Limit all queries in this block to `seconds` in total. They raise StoreTimeout after that."""
    return pymongo.timeout(seconds)


@translated
class Overview:
    """Queries over all collections.

    Read concern majority, except for heartbeats and overdue records, which are read from the primary.
    """

    def __init__(self, database: Database[Document]) -> None:
        self._database = database

    def _committed(self, collection: str) -> Collection[Document]:
        return committed(self._database[collection])

    def processes(self) -> dict[str, int]:
        """Return the number of processes by state.

        Running processes are counted in index `deadline`, broken and aborted ones in index `unsuccessful`. Finished
        processes are the remainder of the collection's count.
        """
        collection = self._committed(schema.PROCESSES)
        counts = {ProcessState.RUNNING.value: collection.count_documents(_DATED, hint="deadline")}
        for state in (ProcessState.BROKEN, ProcessState.ABORTED):
            counts[state.value] = collection.count_documents({"state": state.value}, hint="unsuccessful")
        finished = collection.estimated_document_count() - sum(counts.values())
        return {ProcessState.FINISHED.value: max(0, finished), **counts}

    def broken(self) -> int:
        """Return the number of broken processes. Index `unsuccessful`."""
        broken = {"state": ProcessState.BROKEN.value}
        return self._committed(schema.PROCESSES).count_documents(broken, hint="unsuccessful")

    def decisions(self) -> dict[str, int]:
        """Return the number of decisions by state.

        Live decisions are counted in the indexes `deadline` and `pending`, and working ones by index `worker` with
        their documents. The remainder of the collection's count is at rest.
        """
        collection = self._committed(schema.DECISIONS)
        live = collection.count_documents(_DATED, hint="deadline")
        counts = {
            state.value: _count_pending(collection, state) for state in (DecisionState.DELAYED, DecisionState.QUEUED)
        }
        held: Document = {"worker": {"$exists": True}, "state": DecisionState.WORKING.value}
        counts[DecisionState.WORKING.value] = collection.count_documents(held, hint="worker")
        # Counts are taken one after another, so a task that changes its state meanwhile is counted twice or not at all.
        counts[APPLYING] = max(0, live - sum(counts.values()))
        counts[AT_REST] = max(0, collection.estimated_document_count() - live)
        return counts

    def overdue(self, most: int | None = None) -> dict[str, int]:
        """Return the number of overdue records by collection, counting at most `most` of each.

        Index `deadline`; reads the primary. Costs in proportion to the overdue records.
        """
        limit: dict[str, Any] = {} if most is None else {"limit": most}
        return {name: current(self._database[name]).count_documents(OVERDUE, **limit) for name in DEADLINES}

    def oldest_overdue(self, collection: str) -> float:
        """Return the seconds since the earliest deadline in a collection; 0 if no record is overdue.

        Finds one record by index `deadline` on the primary. A deadline that is null, written by another program, is
        skipped.
        """
        overdue: Document = {"$and": [OVERDUE, {"recoveryTime": {"$gte": datetime.fromtimestamp(0, UTC)}}]}
        documents = current(self._database[collection]).find(overdue, {"age": _AGE}).sort("recoveryTime", 1).limit(1)
        return max((float(document["age"]) for document in documents), default=0.0)

    def are_more_live(self, most: int, names: Sequence[str]) -> bool:
        """Return whether one of these collections has more than `most` live records.

        Index `deadline`; reads at most `most` + 1 of its keys.
        """
        collections = map(self._committed, names)
        return any(
            collection.estimated_document_count() > most
            and collection.count_documents(_DATED, hint="deadline", limit=most + 1) > most
            for collection in collections
        )

    def without_deadline(self, most: int = 0) -> dict[str, int]:
        """Return the number of live records without a deadline by collection. No scanner would find these records.

        Processes and decisions are counted in index `deadlineMissing`, which is normally empty. Graphs have no such
        index, because each apply would have to maintain it. Instead, the graphs of running processes are looked up by
        id; if `most` is given, only those of the `most` processes with the earliest deadlines.
        """
        graphs = self._graphs_without(_HAS_DEADLINE, "deadline", most)
        graphs += self._graphs_without(_RUNNING | {"recoveryTime": None}, "deadlineMissing")
        return self.missing_deadlines() | {schema.GRAPHS: graphs}

    def missing_deadlines(self, most: int | None = None) -> dict[str, int]:
        """Return the number of live decisions and processes without a deadline, counting at most `most` of each.

        Index `deadlineMissing`.
        """
        limit: dict[str, Any] = {} if most is None else {"limit": most}
        kinds: dict[str, Document] = {schema.DECISIONS: {"state": {"$in": _LIVE}}, schema.PROCESSES: _RUNNING}
        return {
            name: self._committed(name).count_documents(live | {"recoveryTime": None}, hint="deadlineMissing", **limit)
            for name, live in kinds.items()
        }

    def _graphs_without(self, of_processes: Document, index: str, limit: int = 0) -> int:
        lacks_deadline: Document = {"recoveryTime": None, "notFinished": {"$ne": {}}, "failed": {}}
        processes = self._committed(schema.PROCESSES).find(of_processes, {"_id": True}).hint(index).limit(limit)
        count = 0
        # Pages instead of one `$lookup`, which takes ten times as long.
        while page := [document["_id"] for document in processes.to_list(PAGE)]:
            count += self._committed(schema.GRAPHS).count_documents(
                {"_id": {"$in": page}, **lacks_deadline}, hint="_id_"
            )
        return count

    def workers_alive(self) -> list[Worker]:
        """Return the workers whose heartbeat is not overdue. Reads all workers on the primary; there are few."""
        documents = current(self._database[schema.WORKERS]).find({"$expr": ALIVE})
        return list(readable(Worker, documents))

    def collections(self) -> dict[str, int]:
        """Return the approximate number of records by collection, for collections that exist. Uses metadata only."""
        names = set(self._database.list_collection_names())
        return {name: self._committed(name).estimated_document_count() for name in schema.ALL if name in names}


def _count_pending(collection: Collection[Document], state: DecisionState) -> int:
    query: Document = {"state": state.value}
    try:
        return collection.count_documents(query, hint="pending")
    except OperationFailure as error:
        if not is_index_missing(error):
            raise
    return collection.count_documents(query | _HAS_DEADLINE, hint="deadline")  # slow, but better than none
