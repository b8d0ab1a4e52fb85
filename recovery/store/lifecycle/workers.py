"""Queries and updates of what workers tell of themselves: heartbeats, and queues polled."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from pymongo import UpdateOne
from pymongo.collection import Collection

from recovery.records import QueueStatistics, Worker, is_same_deadline, to_document
from recovery.store.client import Document
from recovery.store.concerns import current
from recovery.store.driver_errors import translated
from recovery.store.expressions import ALIVE, after, latest_past, literal, near_now, read_past
from recovery.store.reading import Read, read, readable

_DEADLINE = {"recoveryTime": True}
_NAMED: Document = {"_id": {"$type": "string"}}


@translated
class Workers:
    """The collection `workers`: one live record per running worker."""

    def __init__(self, collection: Collection[Document]) -> None:
        self._current = current(collection)

    def beat(self, worker: Worker, timeout: float) -> None:
        """Say that a worker lives: its record, with a new deadline. A record that was removed comes back."""
        times = {"startedAt": {"$ifNull": ["$startedAt", "$$NOW"]}, "recoveryTime": after(timeout)}
        record = {"$mergeObjects": [literal(to_document(worker)), times]}
        self._current.update_one({"_id": worker.id}, [{"$replaceWith": record}], upsert=True)

    def all(self) -> list[Worker]:
        """All workers that have a record, alive or not."""
        return list(readable(Worker, self._current.find()))

    def on_host(self, host: str) -> list[Worker]:
        """Workers that said they run on this host."""
        return list(readable(Worker, self._current.find({"host": host})))

    def deadlines(self) -> dict[str, Any]:
        """What stands as deadline in each worker's record, {worker: deadline}; of another program's perhaps no date."""
        return {document["_id"]: document.get("recoveryTime") for document in self._current.find({}, _DEADLINE)}

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

    def remove(self, worker_ids: Sequence[str]) -> int:
        """Forget workers that are gone and whose claims were seen to; how many were there."""
        return self._current.delete_many({"_id": {"$in": list(worker_ids)}}).deleted_count


@translated
class Queues:
    """The collection `queues`: poll statistics per queue, brought up to date with every heartbeat.

    Of its times the latest counts, so one that is still to come would stay for good, and hide what comes after it or
    prove what is not so. It is neither believed nor kept, whoever tells it and whatever stands there already.
    """

    def __init__(self, collection: Collection[Document]) -> None:
        self._current = current(collection)

    def polled(self, taken: Mapping[str, datetime | None]) -> None:
        """These queues are being polled; {queue: `queuedAt` of the youngest message taken, if any}."""
        updates = [
            UpdateOne(
                {"_id": queue},
                [{"$set": {"polledAt": "$$NOW", "takenQueuedAt": latest_past("$takenQueuedAt", youngest)}}],
                upsert=True,
            )
            for queue, youngest in taken.items()
        ]
        if updates:
            self._current.bulk_write(updates, ordered=False)

    def polled_again(self, queues: Iterable[str], seconds: float) -> list[str]:
        """Those of these queues that nobody had polled for so long, and that are polled now: the first who asks is
        told."""
        asleep = {"polledAt": {"$exists": True}, "$expr": {"$not": [near_now("$polledAt", seconds)]}}
        now = [{"$set": {"polledAt": "$$NOW"}}]
        return [queue for queue in queues if self._current.update_one({"_id": queue, **asleep}, now).modified_count]

    def found_empty(self, moments: Mapping[str, datetime]) -> None:
        """These queues were empty, {queue: when}; of several moments the latest is kept."""
        updates = [
            UpdateOne({"_id": queue}, [{"$set": {"foundEmptyAt": latest_past("$foundEmptyAt", moment)}}], upsert=True)
            for queue, moment in moments.items()
        ]
        if updates:
            self._current.bulk_write(updates, ordered=False)

    def all(self) -> dict[str, QueueStatistics]:
        """Statistics of all queues, by name. There are as many as actors."""
        stages = [{"$match": _NAMED}, read_past("polledAt", "takenQueuedAt", "foundEmptyAt")]
        return {one.id: one for one in readable(QueueStatistics, self._current.aggregate(stages))}

    def remove(self, queue: str) -> None:
        """Forget a queue that nobody polls: without statistics nothing is concluded from it."""
        self._current.delete_one({"_id": queue})
