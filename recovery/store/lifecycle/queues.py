"""Queries and updates of the statistics of queues: which are polled, and how old the last taken message was.

Each worker reports this in its own record with every heartbeat: one write for all of its queues, and no two workers
write the same record. Readers combine the records of all workers and queues, and use the latest time of each kind. When
a worker is removed, its times are added to the queues' own records.

Because the latest time counts, a time in the future would stay, hide later times and prove wrong things. So a time in
the future is neither used nor kept, whoever wrote it.

Except for `lost`, reads and writes use the primary alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from pymongo import UpdateOne
from pymongo.collection import Collection
from pymongo.database import Database

from recovery.records import QueueStatistics, Worker
from recovery.store import schema
from recovery.store.client import Document
from recovery.store.concerns import committed, current
from recovery.store.driver_errors import translated
from recovery.store.expressions import Expression, latest_past, near_now, past_or_null
from recovery.store.record_reading import readable

_NAMED: Document = {"_id": {"$type": "string"}}
NEVER = datetime(1970, 1, 1, tzinfo=UTC)
"""Value of `lostBefore` for a queue whose messages Redis has never lost, as far as is known."""
_TIMES = ("polledAt", "takenQueuedAt", "foundEmptyAt", "seenEmptyAt", "lostBefore")
"""The fields of a queue's statistics."""


@translated
class Queues:
    """The collection `queues`, and the statistics of queues in the collection `workers`."""

    def __init__(self, database: Database[Document]) -> None:
        self._current, self._workers = current(database[schema.QUEUES]), current(database[schema.WORKERS])
        self._committed = committed(database[schema.QUEUES])

    def polled(self, taken: Mapping[str, datetime | None]) -> None:
        """Record that these queues are polled now.

        Args:
            taken: {queue: `queuedAt` of the youngest message that was taken, if any}.
        """
        self._add({queue: ("$$NOW", youngest) for queue, youngest in taken.items()})

    def fold(self, workers: Sequence[str]) -> None:
        """Add to the queues' records what these workers, which are gone, had reported."""
        for worker in readable(Worker, self._workers.find({"_id": {"$in": list(workers)}})):
            self._add({queue.id: (queue.polled_at, queue.taken_queued_at) for queue in worker.polls})

    def _add(self, moments: Mapping[str, tuple[Any, datetime | None]]) -> None:
        self._latest({queue: {"polledAt": at, "takenQueuedAt": taken} for queue, (at, taken) in moments.items()})

    def _latest(self, moments: Mapping[str, Mapping[str, Any]], within: Collection[Document] | None = None) -> None:
        """Set each time of these queues to the later one of the stored and the given. `within` is the collection with
        another write concern.
        """
        updates = [
            UpdateOne(
                {"_id": queue},
                [{"$set": {name: latest_past(f"${name}", moment) for name, moment in times.items()}}],
                upsert=True,
            )
            for queue, times in moments.items()
        ]
        if updates:
            (self._current if within is None else within).bulk_write(updates, ordered=False)

    def polled_again(self, queues: Iterable[str], seconds: float, worker: str) -> list[str]:
        """Return those of these queues that nobody else had polled for `seconds`, and record that they are polled now.

        Of several workers that ask at the same time, only the first gets a queue.

        Args:
            queues: Queues that the worker polls now.
            seconds: Minimum time without a poll.
            worker: Id of the worker, whose own record is ignored.
        """
        polled = set(queues)
        unpolled = polled - self.polled_within(seconds, {"_id": {"$ne": worker}}) if polled else polled
        if not unpolled:  # after an outage all workers ask, and for most of them this first query is enough
            return []
        return [queue for queue in sorted(unpolled & self.all().keys()) if self._wake(queue, seconds)]

    def _wake(self, queue: str, seconds: float) -> bool:
        """Set `polledAt` to now unless somebody polled the queue within `seconds`. Return whether it was set."""
        self._current.update_one({"_id": queue}, {"$setOnInsert": {"polledAt": None}}, upsert=True)
        unpolled: Document = {"_id": queue, "$expr": {"$not": [near_now("$polledAt", seconds)]}}
        return self._current.update_one(unpolled, [{"$set": {"polledAt": "$$NOW"}}]).modified_count == 1

    def seen_empty(self, queues: Iterable[str], moment: datetime, claim_margin: timedelta) -> None:
        """Record that these queues were empty at this moment.

        `seenEmptyAt` becomes `foundEmptyAt` only once it is older than `claim_margin`: by then every message that had
        been taken is claimed or lost. Until then the stored `seenEmptyAt` is kept. Otherwise frequent looks would
        replace it before it is old enough.

        Args:
            queues: The queues.
            moment: When they were seen to be empty.
            claim_margin: Maximum time from taking a message to claiming its task.
        """
        stored_seen_empty = latest_past("$seenEmptyAt")
        # True as well if no time is stored (null is less than every date). A moment in the future comes from a primary
        # whose clock was ahead.
        is_old_enough: Expression = {
            "$and": [{"$lte": [moment, "$$NOW"]}, {"$lte": [stored_seen_empty, moment - claim_margin]}]
        }
        found_empty = {
            "$cond": [is_old_enough, latest_past("$foundEmptyAt", stored_seen_empty), latest_past("$foundEmptyAt")]
        }
        fields = {
            "seenEmptyAt": {"$cond": [is_old_enough, latest_past(stored_seen_empty, moment), stored_seen_empty]},
            "foundEmptyAt": found_empty,
        }
        updates = [UpdateOne({"_id": queue}, [{"$set": fields}], upsert=True) for queue in queues]
        if updates:
            self._current.bulk_write(updates, ordered=False)

    def lost(self, queues: Iterable[str], moment: datetime) -> None:
        """Record that Redis lost all messages of these queues that were pushed before this moment.

        Written with a majority, because Redis is marked as checked afterwards, and then nobody checks again.
        """
        self._latest({queue: {"lostBefore": moment} for queue in queues}, self._committed)

    def served(self, queues: Iterable[str]) -> None:
        """Record that Redis has all messages of these queues, as far as is known. Messages that are missing later were
        lost later.

        After a failover the next scan records it again; until then lost messages are found by their deadlines.
        """
        self._latest({queue: {"lostBefore": NEVER} for queue in queues})

    def all(self) -> dict[str, QueueStatistics]:
        """Return {queue: its statistics}. The server combines the records of queues and workers."""
        latest = {time: {"$max": past_or_null(f"${time}")} for time in _TIMES}
        stages: list[Document] = [
            {"$match": _NAMED},
            {"$unionWith": _told(_NAMED)},
            {"$group": {"_id": "$_id", **latest}},
        ]
        return {statistics.id: statistics for statistics in readable(QueueStatistics, self._current.aggregate(stages))}

    def polled_within(self, seconds: float, by: Document | None = None) -> set[str]:
        """Return the queues that were polled at most this many seconds ago.

        Args:
            seconds: The time.
            by: A filter: of the workers' records only those that match are considered. By default all are.
        """
        polled: Document = {**_NAMED, "$expr": near_now("$polledAt", seconds)}
        stages: list[Document] = [{"$match": polled}, {"$project": {"_id": True}}, {"$unionWith": _told(polled, by)}]
        return {document["_id"] for document in self._current.aggregate(stages)}

    def remove(self, queue: str) -> None:
        """Remove the statistics of a queue that nobody polls, so that nothing is concluded from them."""
        self._workers.update_many({"polls._id": queue}, {"$pull": {"polls": {"_id": queue}}})
        self._current.delete_one({"_id": queue})


def _told(match: Document, by: Document | None = None) -> Document:
    """Return a `$unionWith` stage: what workers reported about each queue, in the form of the queue's record."""
    elements = {"$filter": {"input": "$polls", "cond": {"$eq": [{"$type": "$$this"}, "object"]}}}
    polls: Document = {"$cond": [{"$isArray": ["$polls"]}, elements, []]}
    each: list[Document] = [
        {"$match": by or {}},
        {"$project": {"polls": polls}},
        {"$unwind": "$polls"},
        {"$replaceWith": "$polls"},
        {"$match": match},
    ]
    return {"coll": schema.WORKERS, "pipeline": each}
