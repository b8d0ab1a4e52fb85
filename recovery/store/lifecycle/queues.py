"""Queries and updates of what is known of queues: which are polled, and how old the last message was that was taken.

Each worker tells that in its own record, with every heartbeat: that is one write, whatever it serves, and no two write
one record. Readers take the latest of all. When a worker is gone what it told is added to the queues' own records.

Of these times the latest counts, so one that is still to come would stay for good, and hide what comes after it or
prove what is not so. It is neither believed nor kept, whoever tells it and whatever stands there already.
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
"""Before this Redis lost its data, as is told where it was seen for the first time that it has all."""
_TIMES = ("polledAt", "takenQueuedAt", "foundEmptyAt", "seenEmptyAt", "lostBefore")


@translated
class Queues:
    """The collection `queues`, and what of it stands in `workers`."""

    def __init__(self, database: Database[Document]) -> None:
        self._current, self._workers = current(database[schema.QUEUES]), current(database[schema.WORKERS])
        self._committed = committed(database[schema.QUEUES])

    def polled(self, taken: Mapping[str, datetime | None]) -> None:
        """Somebody polls these queues now; {queue: `queuedAt` of the youngest message taken, if any}."""
        self._add({queue: ("$$NOW", youngest) for queue, youngest in taken.items()})

    def fold(self, workers: Sequence[str]) -> None:
        """Add to the queues' records what these workers told, which are gone."""
        for worker in readable(Worker, self._workers.find({"_id": {"$in": list(workers)}})):
            self._add({queue.id: (queue.polled_at, queue.taken_queued_at) for queue in worker.polls})

    def _add(self, moments: Mapping[str, tuple[Any, datetime | None]]) -> None:
        self._latest({queue: {"polledAt": at, "takenQueuedAt": taken} for queue, (at, taken) in moments.items()})

    def _latest(self, moments: Mapping[str, Mapping[str, Any]], within: Collection[Document] | None = None) -> None:
        """Of each time of these queues keep the latest; `within` the collection with another concern."""
        updates = [
            UpdateOne(
                {"_id": queue},
                [{"$set": {time: latest_past(f"${time}", moment) for time, moment in times.items()}}],
                upsert=True,
            )
            for queue, times in moments.items()
        ]
        if updates:
            (self._current if within is None else within).bulk_write(updates, ordered=False)

    def polled_again(self, queues: Iterable[str], seconds: float, worker: str) -> list[str]:
        """Those of these queues, which this worker polls now, that nobody had polled for so long: the first who asks is
        told."""
        asked = set(queues)
        asleep = asked - self.polled_within(seconds, {"_id": {"$ne": worker}}) if asked else asked
        if not asleep:  # after an outage all workers ask, and to most of them the first question is answer enough
            return []
        return [queue for queue in sorted(asleep & self.all().keys()) if self._wake(queue, seconds)]

    def _wake(self, queue: str, seconds: float) -> bool:
        self._current.update_one({"_id": queue}, {"$setOnInsert": {"polledAt": None}}, upsert=True)
        asleep: Document = {"_id": queue, "$expr": {"$not": [near_now("$polledAt", seconds)]}}
        return self._current.update_one(asleep, [{"$set": {"polledAt": "$$NOW"}}]).modified_count == 1

    def seen_empty(self, queues: Iterable[str], moment: datetime, claim_margin: timedelta) -> None:
        """These queues were empty at this moment. The one that was kept before is `foundEmptyAt` once nothing that was
        taken by then can be in hand; until then it stays: it would never come to that where one looks every moment."""
        kept = latest_past("$seenEmptyAt")
        # Where none is kept this one is. One that is still to come is of a primary whose clock was ahead.
        proves: Expression = {"$and": [{"$lte": [moment, "$$NOW"]}, {"$lte": [kept, moment - claim_margin]}]}
        found = {"$cond": [proves, latest_past("$foundEmptyAt", kept), latest_past("$foundEmptyAt")]}
        fields = {"seenEmptyAt": {"$cond": [proves, latest_past(kept, moment), kept]}, "foundEmptyAt": found}
        updates = [UpdateOne({"_id": queue}, [{"$set": fields}], upsert=True) for queue in queues]
        if updates:
            self._current.bulk_write(updates, ordered=False)

    def lost(self, queues: Iterable[str], moment: datetime) -> None:
        """Redis lost all messages of these queues that were pushed before this moment. Written with a majority: it is
        noted in Redis after that, and nobody looks again."""
        self._latest({queue: {"lostBefore": moment} for queue in queues}, self._committed)

    def served(self, queues: Iterable[str]) -> None:
        """Redis has all messages of these queues, as far as is known: what it lacks from now on it lost. Restorable:
        whoever begins to scan tells it again, and until then what is lost is found by its deadlines."""
        self._latest({queue: {"lostBefore": NEVER} for queue in queues})

    def all(self) -> dict[str, QueueStatistics]:
        """Statistics of all queues, by name. The server puts together what workers tell."""
        latest = {time: {"$max": past_or_null(f"${time}")} for time in _TIMES}
        stages: list[Document] = [
            {"$match": _NAMED},
            {"$unionWith": _told(_NAMED)},
            {"$group": {"_id": "$_id", **latest}},
        ]
        return {one.id: one for one in readable(QueueStatistics, self._current.aggregate(stages))}

    def polled_within(self, seconds: float, by: Document | None = None) -> set[str]:
        """Queues that were polled so short a time ago, by any worker or one of those that this query finds."""
        polled: Document = {**_NAMED, "$expr": near_now("$polledAt", seconds)}
        stages: list[Document] = [{"$match": polled}, {"$project": {"_id": True}}, {"$unionWith": _told(polled, by)}]
        return {document["_id"] for document in self._current.aggregate(stages)}

    def remove(self, queue: str) -> None:
        """Forget a queue that nobody polls: without statistics nothing is concluded from it."""
        self._workers.update_many({"polls._id": queue}, {"$pull": {"polls": {"_id": queue}}})
        self._current.delete_one({"_id": queue})


def _told(match: Document, by: Document | None = None) -> Document:
    """What workers tell of each queue, as if it stood in the queue's record."""
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
