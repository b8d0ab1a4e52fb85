"""What waits for a worker, by actor, as the decisions have it.

Neither Redis nor the collection `actors` can tell that. Redis may have lost the messages, and `actors` knows only what
some worker told of at its start: tasks of an actor that is new in a client's code wait in a queue that nobody ever
heard of. A queued decision is the fact.

Since when each actor's oldest task waits is one seek in the index `waiting`: what that costs grows with the actors, not
with what waits (2 ms for 20 actors, whether 20,000 tasks wait or a million). How many wait is counted where somebody
reads it, from the index alone: 1 ms for a thousand, on two busy cores.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime

from pymongo.database import Database
from pymongo.errors import OperationFailure

from recovery.records import DecisionState
from recovery.records.ids import split_record_id
from recovery.store import schema
from recovery.store.client import Document
from recovery.store.concerns import committed, current
from recovery.store.expressions import ALIVE, near_now
from recovery.store.snapshots import record_range

_QUEUED = DecisionState.QUEUED.value
# With a name for an actor: what another program wrote without one is in no queue.
_WAITS: Document = {"state": _QUEUED, "actor": {"$gte": ""}}
_TEXT: Document = {"$type": "string"}
_NAMED: Document = {"_id": _TEXT}
_HAS_DEADLINE: Document = {"recoveryTime": {"$exists": True}}
_UNDECIDED = [state.value for state in (DecisionState.DELAYED, DecisionState.QUEUED, DecisionState.WORKING)]


@dataclass(frozen=True, slots=True)
class ActorQueue:
    """The tasks of one actor that wait for a worker, and who there is to take them."""

    actor: str
    waiting_seconds: float | None
    """How long the oldest has been queued; None: nothing waits."""
    tasks: int | None
    """How many are queued; None: not counted."""
    workers: tuple[str, ...]
    """Names of the workers that live and serve it."""
    is_served: bool
    """Whether there are some, or were until so short a time ago that they may just be restarting."""
    blocked_seconds: float | None
    """How long an operator has had it blocked; None: it is not."""
    is_known: bool
    """Whether a worker ever told of it."""

    @property
    def waits_for_nobody(self) -> bool:
        """Whether tasks wait that no worker will take: what is blocked waits for an operator."""
        return self.waiting_seconds is not None and not self.is_served and self.blocked_seconds is None

    @property
    def waits_for_operator(self) -> bool:
        """Whether tasks wait that no worker may take."""
        return self.waiting_seconds is not None and self.blocked_seconds is not None


class Waiting:
    """Queries of what waits for a worker. `polled_within`: seconds for which a worker may be away to restart."""

    def __init__(self, database: Database[Document], polled_within: float) -> None:
        self._decisions, self._actors = committed(database[schema.DECISIONS]), committed(database[schema.ACTORS])
        self._database, self._polled_within = database, polled_within

    def by_actor(self, *, count_served: bool = True) -> dict[str, ActorQueue]:
        """{actor: its queue} of all that a worker told of, serves, or tasks wait for, by name.

        Without `count_served` what costs more with more tasks is asked only of those that no worker may take: for
        readers who ask all the time.
        """
        # In this order: a worker that comes in between makes nothing look lonely that was not. Of each record only what
        # is asked for, and by its type: one that another program wrote hides nothing of the others.
        oldest = self._oldest()
        known = self._told()
        workers = self._workers()
        served, now = workers.keys() | self._polled(), self._now()
        counted = {name for name in oldest if count_served or known.get(name) or name not in served}
        tasks = self._count(counted)
        return {
            name: ActorQueue(
                actor=name,
                waiting_seconds=_seconds(oldest[name], now) if name in oldest else None,
                tasks=tasks.get(name, 0) if name in counted or name not in oldest else None,
                workers=tuple(sorted(workers.get(name, ()))),
                is_served=name in served,
                blocked_seconds=_seconds(since, now) if (since := known.get(name)) else None,
                is_known=name in known or name in workers,
            )
            for name in sorted({*known, *oldest, *workers})
        }

    def actors_of(self, process_id: str, actors: Collection[str]) -> set[str]:
        """Those of these actors that a task of the process waits for. Index `_id`, one range."""
        of_them: Document = {**record_range(process_id), "state": _QUEUED, "actor": {"$in": list(actors)}}
        stages = [{"$match": of_them}, {"$group": {"_id": "$actor"}}]
        return {document["_id"] for document in self._decisions.aggregate(stages, hint="_id_")}

    def undecided(self, actor: str) -> dict[str, int]:
        """{state: tasks} of an actor that are delayed, queued or being worked on. Index `deadline`: reads all that is
        live, for an operator."""
        stages = [{"$match": self._undecided_of(actor)}, {"$group": {"_id": "$state", "count": {"$sum": 1}}}]
        found = self._decisions.aggregate(stages, hint="deadline")
        return {document["_id"]: document["count"] for document in found}

    def processes_of(self, actor: str) -> Iterator[str]:
        """Ids of the processes that such tasks are of, each once, by id. Costs the same."""
        found = self._decisions.find(self._undecided_of(actor), {"_id": True}).hint("deadline")
        yield from sorted({split_record_id(document["_id"])[0] for document in found})

    def _undecided_of(self, actor: str) -> Document:
        return {**_HAS_DEADLINE, "actor": actor, "state": {"$in": _UNDECIDED}}

    def _oldest(self) -> dict[str, datetime | None]:
        """{actor: when the oldest of its queued tasks was queued}."""
        sort = {"state": 1, "actor": 1, "queuedAt": 1}
        found = self._queued(_WAITS, {"$sort": sort}, {"$group": {"_id": "$actor", "since": {"$first": "$queuedAt"}}})
        return {document["_id"]: document["since"] for document in found}

    def _count(self, actors: Collection[str]) -> dict[str, int]:
        # At once: to count range by range takes half of the time, and a round trip for each of a thousand odd names.
        of_them: Document = {"state": _QUEUED, "actor": {"$in": list(actors)}}
        found = self._queued(of_them, {"$group": {"_id": "$actor", "count": {"$sum": 1}}}) if actors else []
        return {document["_id"]: document["count"] for document in found}

    def _queued(self, match: Document, *stages: Document) -> list[Document]:
        decisions = self._decisions
        try:
            return decisions.aggregate([{"$match": match}, *stages], hint="waiting").to_list()
        except OperationFailure as error:
            if not schema.is_index_missing(error):
                raise
        # No worker of this version, nor `recovery init`, has run yet: reads all that is live.
        return decisions.aggregate([{"$match": _HAS_DEADLINE | match}, *stages], hint="deadline").to_list()

    def _told(self) -> dict[str, datetime | None]:
        """{actor that a worker told of: since when it is blocked, if it is}."""
        found = self._actors.find(_NAMED, {"blockedAt": True})
        return {document["_id"]: document.get("blockedAt") for document in found}

    def _workers(self) -> dict[str, list[str]]:
        """{actor: names of the workers that live and serve it}."""
        alive: Document = {"$expr": ALIVE, "name": _TEXT, "queues": {"$type": "array"}}
        serving: dict[str, list[str]] = {}
        for document in current(self._database[schema.WORKERS]).find(alive, {"name": True, "queues": True}):
            for queue in filter(lambda queue: isinstance(queue, str), document["queues"]):
                serving.setdefault(queue, []).append(document["name"])
        return serving

    def _polled(self) -> set[str]:
        """Queues that were polled a moment ago."""
        polled: Document = {**_NAMED, "$expr": near_now("$polledAt", self._polled_within)}
        return {document["_id"] for document in current(self._database[schema.QUEUES]).find(polled, {"_id": True})}

    def _now(self) -> datetime:
        hello = self._database.command("hello", codec_options=self._database.codec_options)
        now: datetime = hello["localTime"]
        return now


def _seconds(since: object, now: datetime) -> float:
    """How long ago a moment was; 0 for one that is to come, or that another program left out."""
    return max(0.0, (now - since).total_seconds()) if isinstance(since, datetime) else 0.0
