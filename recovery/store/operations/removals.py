"""Updates that remove processes which are over, with all of their records.

The first is the commit point; the process itself goes last, so that a removal which was cut off is found by its
deadline (REMOVAL_CUT_OFF). All are acknowledged by a majority. Index `_id`: a process's records are one range of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from pymongo.database import Database

from recovery.records import ProcessState
from recovery.store import schema
from recovery.store.client import Document
from recovery.store.concerns import committed
from recovery.store.driver_errors import translated
from recovery.store.expressions import after, record_range

_OVER = [ProcessState.FINISHED.value, ProcessState.ABORTED.value]


@translated
class Removals:
    """Updates over the collections `processes`, `graphs`, `decisions`, `tasks` and `interruptions`."""

    def __init__(self, database: Database[Document]) -> None:
        self._processes = committed(database[schema.PROCESSES])
        self._graphs = committed(database[schema.GRAPHS])
        self._of_tasks = [committed(database[name]) for name in (schema.DECISIONS, schema.TASKS, schema.INTERRUPTIONS)]
        self._decisions = self._of_tasks[0]

    def live(self, process_ids: Sequence[str]) -> set[str]:
        """Those of these of which a record is live, or a graph open: somebody is to look at them."""
        among = {"_id": {"$in": list(process_ids)}}
        odd = {"$or": [{"recoveryTime": {"$exists": True}}, {"notFinished": {"$ne": {}}, "aborted": None}]}
        found = {one["_id"] for one in self._graphs.find({**among, **odd}, {"_id": True})}
        if process_ids:
            of_them: Document = {"$or": [record_range(key) for key in process_ids], "recoveryTime": {"$exists": True}}
            keys = self._decisions.find(of_them, {"_id": True}).hint("_id_")
            found |= {one["_id"].partition("/")[0] for one in keys}
        return found

    def begin(self, seen: Sequence[tuple[str, int]], within: float) -> list[str]:
        """finished|aborted, at rest and of the epoch that was seen → being removed: the commit point. Those that are,
        by whomever. Their custom ids are free from here on."""
        ids = [key for key, _ in seen]
        at_rest: Document = {"state": {"$in": _OVER}, "recoveryTime": None, "redo": None, "removing": None}
        of_epoch = [{"_id": key, "epoch": epoch} for key, epoch in seen]
        former = {"$ifNull": ["$customId", "$formerCustomId", "$$REMOVE"]}
        fields = {"removing": True, "recoveryTime": after(within), "formerCustomId": former}
        if of_epoch:
            self._processes.update_many({"$or": of_epoch, **at_rest}, [{"$set": fields}, {"$unset": "customId"}])
        return self.begun(ids)

    def begun(self, process_ids: Sequence[str]) -> list[str]:
        """Those of these that are being removed."""
        among = {"_id": {"$in": list(process_ids)}, "removing": True}
        return [one["_id"] for one in self._processes.find(among, {"_id": True})]

    def finish(self, process_ids: Sequence[str]) -> int:
        """Remove the records of processes that are being removed, and last the processes; how many."""
        if not process_ids:
            return 0
        of_them = {"$or": [record_range(key) for key in process_ids]}
        for collection in self._of_tasks:
            collection.delete_many(of_them)
        self._graphs.delete_many({"_id": {"$in": list(process_ids)}})
        return self._processes.delete_many({"_id": {"$in": list(process_ids)}, "removing": True}).deleted_count
