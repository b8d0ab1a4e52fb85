"""Queries and updates of the Worker records, which workers write with their heartbeats.

Reads and writes use the primary alone, except the note about Spark. Queries by anything but the id read all workers,
which are few.
"""

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
"""Id of the note that a worker has served Spark. The note is in the collection `census`, because records of workers are
removed.
"""


@translated
class Workers:
    """The collection `workers`, with one record for each running worker; and the note whether a worker has ever served
    Spark.
    """

    def __init__(self, database: Database[Document]) -> None:
        self._current, self._notes = current(database[schema.WORKERS]), committed(database[schema.CENSUS])

    def beat(self, worker: Worker, timeout: float) -> datetime:
        """Write a worker's record with a new deadline (heartbeat). Return the database's time of the heartbeat.

        If the record was removed, it is created again, with the worker's first start time.

        Args:
            worker: What the worker reports.
            timeout: Seconds to the deadline.
        """
        registered = "$$NOW" if worker.started_at is None else literal(worker.started_at)
        times = {"startedAt": {"$ifNull": ["$startedAt", registered]}, "recoveryTime": after(timeout)}
        record = {"$mergeObjects": [literal(to_document(worker)), times]}
        written: Any = self._current.find_one_and_update(
            {"_id": worker.id}, [{"$replaceWith": record}], {"recoveryTime": True}, upsert=True, return_document=True
        )
        deadline: datetime = written["recoveryTime"]
        return deadline - timedelta(milliseconds=round(timeout * 1000))

    def all(self) -> list[Worker]:
        """Return all workers that have a record, alive or not. Damaged records are logged and left out."""
        return list(readable(Worker, self._current.find()))

    def unchanged(self, deadlines: Mapping[str, Any]) -> Read[Worker]:
        """Return those of these workers whose deadline is still the given one.

        Args:
            deadlines: {worker: its deadline as it was read}.
        """
        # Compared here instead of in the filter: a deadline beyond Python's calendar was clamped when it was read.
        documents = self._current.find({"_id": {"$in": list(deadlines)}})
        return read(
            Worker,
            (
                document
                for document in documents
                if is_same_deadline(document.get("recoveryTime"), deadlines[document["_id"]])
            ),
        )

    def silent(self, limit: int) -> list[Worker]:
        """Return workers that are not alive by their deadline, the longest silent first. Damaged records are logged and
        left out.
        """
        documents = self._current.find({"$expr": {"$not": [ALIVE]}}).sort("recoveryTime", 1).limit(limit)
        # A worker whose deadline is no date counts as silent too.
        dated = (
            document if isinstance(document.get("recoveryTime"), datetime) else {**document, "recoveryTime": None}
            for document in documents
        )
        return list(readable(Worker, dated))

    def serve_spark(self) -> bool:
        """Return whether a live worker runs the operations that are left to Spark."""
        return self._current.find_one({"spark": True, "$expr": ALIVE}, {"_id": True}) is not None

    def note_spark(self) -> None:
        """Record that a worker serves Spark. The note remains when the worker is gone. Written with a majority."""
        self._notes.update_one({"_id": SPARK}, [{"$set": {"servedAt": "$$NOW"}}], upsert=True)

    def spark_workers(self) -> int | None:
        """Return how many live workers serve Spark, or None if no worker is known to have ever served it."""
        alive = self._current.count_documents({"spark": True, "$expr": ALIVE})
        return alive if alive or self._notes.find_one({"_id": SPARK}, {"_id": True}) is not None else None

    def versions_serving(self, actor: str, pinned_to: str | None = None) -> frozenset[str | None]:
        """Return the application versions of the live workers that serve an actor.

        Args:
            actor: The actor.
            pinned_to: Only workers that run tasks which are pinned to this version.

        Returns:
            The versions. None stands for workers that do not record a version. They do not know pins, and run pinned
            tasks like all others.
        """
        serving: Document = {"queues": actor, "$expr": ALIVE}
        if pinned_to is not None:
            serving["$or"] = [{"applicationVersion": {"$in": [pinned_to, None]}}, {"compatibleWith": pinned_to}]
        documents = self._current.find(serving, {"applicationVersion": True})
        versions = (document.get("applicationVersion") for document in documents)
        return frozenset(version if isinstance(version, str) else None for version in versions)

    def serving(self, actor: str) -> list[Worker]:
        """Return the live workers that serve an actor, without their statistics of queues."""
        return list(readable(Worker, self._current.find({"queues": actor, "$expr": ALIVE}, {"polls": False})))

    def newest_version(self, actor: str) -> str | None:
        """Return the application version of the live worker of an actor that registered last.

        None if there is no such worker, or if it does not record its version.
        """
        serving: Document = {"queues": actor, "$expr": ALIVE}
        document = self._current.find_one(serving, {"applicationVersion": True}, sort=[("startedAt", -1), ("_id", -1)])
        version = (document or {}).get("applicationVersion")
        return version if isinstance(version, str) else None

    def remove(self, worker_ids: Sequence[str]) -> int:
        """Remove the records of dead workers whose claims were requeued. Return how many existed."""
        return self._current.delete_many({"_id": {"$in": list(worker_ids)}}).deleted_count
