"""Queries and updates of what is known of queues: which are polled, and how old the last message was that was taken.

Each worker tells that in one record of its own (`polls`) with every heartbeat, so what heartbeats cost does not grow
with the queues, and no two write one record. Readers take the latest of all. When a worker is gone what it told is
added to the queues' own records.

Of these times the latest counts, so one that is still to come would stay for good, and hide what comes after it or
prove what is not so. It is neither believed nor kept, whoever tells it and whatever stands there already.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from pymongo import UpdateOne
from pymongo.database import Database

from recovery.records import Polls, QueueStatistics, to_document
from recovery.store import schema
from recovery.store.client import Document
from recovery.store.concerns import current
from recovery.store.driver_errors import translated
from recovery.store.expressions import latest_past, literal, near_now, past_or_null
from recovery.store.reading import readable

_NAMED: Document = {"_id": {"$type": "string"}}
_TIMES = ("polledAt", "takenQueuedAt", "foundEmptyAt")


@translated
class Queues:
    """The collections `queues` and `polls`."""

    def __init__(self, database: Database[Document]) -> None:
        self._current, self._polls = current(database[schema.QUEUES]), current(database[schema.POLLS])

    def polled_by(self, worker: str, queues: Sequence[QueueStatistics]) -> None:
        """All that a worker knows of the queues that it polls, or has polled. One small write."""
        document = to_document(Polls(id=worker, queues=tuple(queues)))
        self._polls.update_one({"_id": worker}, [{"$replaceWith": literal(document)}], upsert=True)

    def polled(self, taken: Mapping[str, datetime | None]) -> None:
        """Somebody polls these queues now; {queue: `queuedAt` of the youngest message taken, if any}."""
        self._add({queue: ("$$NOW", youngest) for queue, youngest in taken.items()})

    def fold(self, workers: Sequence[str]) -> None:
        """Add to the queues' records what these workers told, which are gone."""
        for polls in readable(Polls, self._polls.find({"_id": {"$in": list(workers)}})):
            self._add({queue.id: (queue.polled_at, queue.taken_queued_at) for queue in polls.queues})
        self._polls.delete_many({"_id": {"$in": list(workers)}})

    def _add(self, moments: Mapping[str, tuple[Any, datetime | None]]) -> None:
        self._latest({queue: {"polledAt": at, "takenQueuedAt": taken} for queue, (at, taken) in moments.items()})

    def _latest(self, moments: Mapping[str, Mapping[str, Any]]) -> None:
        """Of each time of these queues keep the latest."""
        updates = [
            UpdateOne(
                {"_id": queue},
                [{"$set": {time: latest_past(f"${time}", moment) for time, moment in times.items()}}],
                upsert=True,
            )
            for queue, times in moments.items()
        ]
        if updates:
            self._current.bulk_write(updates, ordered=False)

    def polled_again(self, queues: Iterable[str], seconds: float) -> list[str]:
        """Those of these queues that nobody had polled for so long, and that are polled now: the first who asks is
        told."""
        known = set(queues)
        if not known:
            return []
        asleep = known & self.all().keys() - self.polled_within(seconds)
        return [queue for queue in sorted(asleep) if self._wake(queue, seconds)]

    def _wake(self, queue: str, seconds: float) -> bool:
        self._current.update_one({"_id": queue}, {"$setOnInsert": {"polledAt": None}}, upsert=True)
        asleep: Document = {"_id": queue, "$expr": {"$not": [near_now("$polledAt", seconds)]}}
        return self._current.update_one(asleep, [{"$set": {"polledAt": "$$NOW"}}]).modified_count == 1

    def found_empty(self, moments: Mapping[str, datetime]) -> None:
        """These queues were empty, {queue: when}; of several moments the latest is kept."""
        self._latest({queue: {"foundEmptyAt": moment} for queue, moment in moments.items()})

    def all(self) -> dict[str, QueueStatistics]:
        """Statistics of all queues, by name. The server puts together what workers tell."""
        latest = {time: {"$max": past_or_null(f"${time}")} for time in _TIMES}
        stages: list[Document] = [
            {"$match": _NAMED},
            {"$unionWith": _told(_NAMED)},
            {"$group": {"_id": "$_id", **latest}},
        ]
        return {one.id: one for one in readable(QueueStatistics, self._current.aggregate(stages))}

    def polled_within(self, seconds: float) -> set[str]:
        """Queues that were polled so short a time ago."""
        polled: Document = {**_NAMED, "$expr": near_now("$polledAt", seconds)}
        stages: list[Document] = [{"$match": polled}, {"$project": {"_id": True}}, {"$unionWith": _told(polled)}]
        return {document["_id"] for document in self._current.aggregate(stages)}

    def remove(self, queue: str) -> None:
        """Forget a queue that nobody polls: without statistics nothing is concluded from it."""
        self._polls.update_many({"queues._id": queue}, {"$pull": {"queues": {"_id": queue}}})
        self._current.delete_one({"_id": queue})


def _told(match: Document) -> Document:
    """What workers tell of each queue, as if it stood in the queue's record."""
    elements = {"$filter": {"input": "$queues", "cond": {"$eq": [{"$type": "$$this"}, "object"]}}}
    queues: Document = {"$cond": [{"$isArray": ["$queues"]}, elements, []]}
    each = [{"$project": {"queues": queues}}, {"$unwind": "$queues"}, {"$replaceWith": "$queues"}, {"$match": match}]
    return {"coll": schema.POLLS, "pipeline": each}
