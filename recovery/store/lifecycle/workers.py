"""Queries and updates of what workers tell of themselves: their heartbeats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from pymongo.database import Database

from recovery.records import Worker, is_same_deadline, to_document
from recovery.store import schema
from recovery.store.client import Document
from recovery.store.concerns import committed, current
from recovery.store.driver_errors import translated
from recovery.store.expressions import ALIVE, after, literal
from recovery.store.record_reading import Read, read, readable

SPARK = "spark"
"""Id of the note that a worker served Spark. It is kept with the census, which no worker's end removes."""


@translated
class Workers:
    """The collection `workers`: one live record per running worker. And whether one has ever served Spark."""

    def __init__(self, database: Database[Document]) -> None:
        self._current, self._notes = current(database[schema.WORKERS]), committed(database[schema.CENSUS])

    def beat(self, worker: Worker, timeout: float) -> datetime:
        """Say that a worker lives: its record, with a new deadline; when that was. A record that was removed comes
        back, as it had registered first."""
        registered = "$$NOW" if worker.started_at is None else literal(worker.started_at)
        times = {"startedAt": {"$ifNull": ["$startedAt", registered]}, "recoveryTime": after(timeout)}
        record = {"$mergeObjects": [literal(to_document(worker)), times]}
        written: Any = self._current.find_one_and_update(
            {"_id": worker.id}, [{"$replaceWith": record}], {"recoveryTime": True}, upsert=True, return_document=True
        )
        deadline: datetime = written["recoveryTime"]
        return deadline - timedelta(milliseconds=round(timeout * 1000))

    def all(self) -> list[Worker]:
        """All workers that have a record, alive or not."""
        return list(readable(Worker, self._current.find()))

    def unchanged(self, deadlines: Mapping[str, Any]) -> Read[Worker]:
        """Those of these workers whose deadlines still are what is given."""
        # Compared as they were read: one that is past Python's calendar was read as the last that there is.
        found = self._current.find({"_id": {"$in": list(deadlines)}})
        return read(Worker, (d for d in found if is_same_deadline(d.get("recoveryTime"), deadlines[d["_id"]])))

    def silent(self, limit: int) -> list[Worker]:
        """Workers that have a record and do not live by it, the longest silent first. Reads all, which are few."""
        found = self._current.find({"$expr": {"$not": [ALIVE]}}).sort("recoveryTime", 1).limit(limit)
        # By a deadline that is none it is silent as well.
        dated = (d if isinstance(d.get("recoveryTime"), datetime) else {**d, "recoveryTime": None} for d in found)
        return list(readable(Worker, dated))

    def serve_spark(self) -> bool:
        """Whether a worker lives that takes what is left to Spark."""
        return self._current.find_one({"spark": True, "$expr": ALIVE}, {"_id": True}) is not None

    def note_spark(self) -> None:
        """Note that a worker serves Spark. The note stays when the worker is gone."""
        self._notes.update_one({"_id": SPARK}, [{"$set": {"servedAt": "$$NOW"}}], upsert=True)

    def spark_workers(self) -> int | None:
        """Return how many live workers serve Spark. None if no worker has ever served it, as far as is noted."""
        alive = self._current.count_documents({"spark": True, "$expr": ALIVE})
        return alive if alive or self._notes.find_one({"_id": SPARK}, {"_id": True}) is not None else None

    def versions_serving(self, actor: str, pinned_to: str | None = None) -> frozenset[str | None]:
        """Return the versions of the application that the live workers have which serve an actor, and which run tasks
        that are pinned to this version, if one is given. None stands for the workers that do not record their version:
        they know no pins, and run pinned tasks as any other. Reads all workers, which are few."""
        serving: Document = {"queues": actor, "$expr": ALIVE}
        if pinned_to is not None:
            serving["$or"] = [{"applicationVersion": {"$in": [pinned_to, None]}}, {"compatibleWith": pinned_to}]
        found = self._current.find(serving, {"applicationVersion": True})
        versions = (document.get("applicationVersion") for document in found)
        return frozenset(version if isinstance(version, str) else None for version in versions)

    def serving(self, actor: str) -> list[Worker]:
        """Return the live workers that serve an actor, without what they know of their queues."""
        return list(readable(Worker, self._current.find({"queues": actor, "$expr": ALIVE}, {"polls": False})))

    def newest_version(self, actor: str) -> str | None:
        """Return the newest version of the application that serves an actor: that of its live worker that registered
        last. None if there is none, or if that worker does not record it."""
        serving: Document = {"queues": actor, "$expr": ALIVE}
        found = self._current.find_one(serving, {"applicationVersion": True}, sort=[("startedAt", -1), ("_id", -1)])
        version = (found or {}).get("applicationVersion")
        return version if isinstance(version, str) else None

    def remove(self, worker_ids: Sequence[str]) -> int:
        """Forget workers that are gone and whose claims were seen to; how many were there."""
        return self._current.delete_many({"_id": {"$in": list(worker_ids)}}).deleted_count
