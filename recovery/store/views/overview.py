"""Queries of the whole: counts of everything. For people and for monitoring, so each costs what is live, not what
exists.

What is live comes from the partial indexes; totals come from the collections' own counts, which cost nothing
and may be off by a little after a crash of the server. So how many processes *finished*, which no index holds,
is what remains of the total.
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
"""Collections whose deadlines a scanner looks at."""

_LIVE = [state.value for state in LIVE_DECISIONS]
_RUNNING: Document = {"state": ProcessState.RUNNING.value}
_HAS_DEADLINE: Document = {"recoveryTime": {"$exists": True}}
# Dates alone, which keys of the index answer: six times as fast as whether there is a deadline. No other has one.
_DATED: Document = {"recoveryTime": {"$gte": datetime.min.replace(tzinfo=UTC)}}
_AGE: Document = {"$divide": [{"$subtract": ["$$NOW", "$recoveryTime"]}, 1000]}


PAGE = 1000

APPLYING, AT_REST = "applying", "at rest"
"""Finished decisions that still have a deadline, and what has none: waiting, or finished and applied."""


def time_limit(seconds: float) -> AbstractContextManager[None]:
    """Give all queries in this block this many seconds together; they raise StoreTimeout after it."""
    return pymongo.timeout(seconds)


@translated
class Overview:
    """Queries over all collections, as a majority has them; what is of this moment and takes nothing back (heartbeats,
    what is overdue) as it is now."""

    def __init__(self, database: Database[Document]) -> None:
        self._database = database

    def _told(self, collection: str) -> Collection[Document]:
        return committed(self._database[collection])

    def processes(self) -> dict[str, int]:
        """{state: processes}. Running: index `deadline`. Broken and aborted: index `unsuccessful`. Finished: the
        rest of the collection's count."""
        collection = self._told(schema.PROCESSES)
        counts = {ProcessState.RUNNING.value: collection.count_documents(_DATED, hint="deadline")}
        for state in (ProcessState.BROKEN, ProcessState.ABORTED):
            counts[state.value] = collection.count_documents({"state": state.value}, hint="unsuccessful")
        rest = collection.estimated_document_count() - sum(counts.values())
        return {ProcessState.FINISHED.value: max(0, rest), **counts}

    def broken(self) -> int:
        """Return how many processes are broken. Index `unsuccessful`."""
        broken = {"state": ProcessState.BROKEN.value}
        return self._told(schema.PROCESSES).count_documents(broken, hint="unsuccessful")

    def decisions(self) -> dict[str, int]:
        """{state: decisions}. Live ones: their keys in the indexes `deadline`, `pending` and `worker`, and of the last
        the documents. The rest: the collection's count."""
        collection = self._told(schema.DECISIONS)
        live = collection.count_documents(_DATED, hint="deadline")
        counts = {
            state.value: _count_pending(collection, state) for state in (DecisionState.DELAYED, DecisionState.QUEUED)
        }
        held: Document = {"worker": {"$exists": True}, "state": DecisionState.WORKING.value}
        counts[DecisionState.WORKING.value] = collection.count_documents(held, hint="worker")
        # Counted one after the other: what moved on meanwhile is in two of them, or in none.
        counts[APPLYING] = max(0, live - sum(counts.values()))
        counts[AT_REST] = max(0, collection.estimated_document_count() - live)
        return counts

    def overdue(self, most: int | None = None) -> dict[str, int]:
        """{collection: records whose deadline is past}, now; `most` of each are counted. Index `deadline`: costs what
        is overdue."""
        limit: dict[str, Any] = {} if most is None else {"limit": most}
        return {name: current(self._database[name]).count_documents(OVERDUE, **limit) for name in DEADLINES}

    def oldest_overdue(self, collection: str) -> float:
        """Seconds that the longest overdue record is past its deadline; 0 if none is. Index `deadline`: one
        find of one record, as scanners see them. A null for a deadline, which another program wrote, has no age."""
        overdue: Document = {"$and": [OVERDUE, {"recoveryTime": {"$gte": datetime.fromtimestamp(0, UTC)}}]}
        found = current(self._database[collection]).find(overdue, {"age": _AGE}).sort("recoveryTime", 1).limit(1)
        return max((float(document["age"]) for document in found), default=0.0)

    def are_more_live(self, most: int, names: Sequence[str]) -> bool:
        """Whether one of these collections has more live records than so many. Index `deadline`: costs `most` of its
        keys, if it has."""
        collections = map(self._told, names)
        return any(
            one.estimated_document_count() > most
            and one.count_documents(_DATED, hint="deadline", limit=most + 1) > most
            for one in collections
        )

    def without_deadline(self, most: int = 0) -> dict[str, int]:
        """{collection: live records without a deadline}, which nobody would look at. Costs what is live.

        Processes and decisions: index `deadlineMissing`, empty while all is well. Graphs have no such index, since
        each apply would pay for it: those of the running processes are looked up, one key per process; of the `most`
        that are due first, if that is given.
        """
        graphs = self._graphs_without(_HAS_DEADLINE, "deadline", most)
        graphs += self._graphs_without(_RUNNING | {"recoveryTime": None}, "deadlineMissing")
        return self.missing_deadlines() | {schema.GRAPHS: graphs}

    def missing_deadlines(self, most: int | None = None) -> dict[str, int]:
        """The same of decisions and processes alone: costs what is found. `most` of each are counted."""
        limit: dict[str, Any] = {} if most is None else {"limit": most}
        kinds: dict[str, Document] = {schema.DECISIONS: {"state": {"$in": _LIVE}}, schema.PROCESSES: _RUNNING}
        return {
            name: self._told(name).count_documents(live | {"recoveryTime": None}, hint="deadlineMissing", **limit)
            for name, live in kinds.items()
        }

    def _graphs_without(self, of_processes: Document, index: str, most: int = 0) -> int:
        odd: Document = {"recoveryTime": None, "notFinished": {"$ne": {}}, "failed": {}}
        processes = self._told(schema.PROCESSES).find(of_processes, {"_id": True}).hint(index).limit(most)
        found = 0
        # Pages and not one $lookup, which takes ten times as long: 0.4 s for 100,000 running processes.
        while page := [document["_id"] for document in processes.to_list(PAGE)]:
            found += self._told(schema.GRAPHS).count_documents({"_id": {"$in": page}, **odd}, hint="_id_")
        return found

    def workers_alive(self) -> list[Worker]:
        """Return the workers whose heartbeat is not overdue. Reads all workers, which are few."""
        found = current(self._database[schema.WORKERS]).find({"$expr": ALIVE})
        return list(readable(Worker, found))

    def collections(self) -> dict[str, int]:
        """{collection: about how many records}, of those that are there."""
        names = set(self._database.list_collection_names())
        return {name: self._told(name).estimated_document_count() for name in schema.ALL if name in names}


def _count_pending(collection: Collection[Document], state: DecisionState) -> int:
    query: Document = {"state": state.value}
    try:
        return collection.count_documents(query, hint="pending")
    except OperationFailure as error:
        if not is_index_missing(error):
            raise
    return collection.count_documents(query | _HAS_DEADLINE, hint="deadline")  # rather dear than not told
