"""Counts of unfinished tasks by actor: queued, delayed, waiting for other tasks, or running.

All but running tasks are found by index `pending`. Finding the actors that have tasks costs one index seek per actor
and state. Tasks are counted only if no worker serves their actor or somebody asks, so the cost depends on the actors
and the blocked tasks, not on all live tasks. All queries have read concern majority.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime

from pymongo.database import Database
from pymongo.errors import OperationFailure

from recovery.records import DecisionState, ProcessState
from recovery.records.ids import ACTOR_NAME_LENGTH, SEPARATOR, is_actor_name, split_record_id
from recovery.store import schema
from recovery.store.client import Document
from recovery.store.concerns import committed
from recovery.store.driver_errors import is_index_missing, translated
from recovery.store.expressions import record_range

WAITING, DELAYED = DecisionState.WAITING.value, DecisionState.DELAYED.value
QUEUED, WORKING = DecisionState.QUEUED.value, DecisionState.WORKING.value

MAX_LOOKED_UP = 10_000
"""Maximum number of waiting tasks whose processes are looked up. Beyond it, all are presumed to belong to running
processes, because a superfluous alert is better than a missing one."""

MAX_STRANGERS = 50
"""Maximum number of unknown actors that are named. An unknown actor is one that no worker has announced, for example
of a client's new code. A client can invent any number of names, so for the rest only the number of tasks is
reported."""
COUNT_LIMIT = 10_000
"""Maximum number of tasks of unnamed unknown actors that are counted."""

FEW = 20
"""Up to this many actors are counted with one query each."""

# A task moves through these states in this order. Querying in the same order does not miss a moving task. The last
# state is repeated because a running task may be queued again.
_IN_TURN = (WORKING, WAITING, DELAYED, QUEUED, WORKING)
# Only actors with a name: a decision without one, written by another program, is in no queue.
_NAMED: Document = {"actor": {"$gte": ""}}
_HAS_DEADLINE: Document = {"recoveryTime": {"$exists": True}}
_HAS_HOLDER: Document = {"worker": {"$exists": True}}
_COUNTED: Document = {"$sum": 1}


@dataclass(frozen=True, slots=True)
class ToCome:
    """The numbers of tasks of one actor that are neither queued nor finished."""

    delayed: int = 0
    after_others: int = 0
    """Tasks of running processes that wait for other tasks."""
    of_broken: int = 0
    """Tasks of processes that do not run which wait for other tasks. They run only if an operator restarts the
    failed tasks."""
    working: int = 0


@translated
class Pending:
    """Queries of unfinished decisions by actor."""

    def __init__(self, database: Database[Document]) -> None:
        self._decisions = committed(database[schema.DECISIONS])

    def to_come(self, ours: Collection[str]) -> tuple[set[str], bool]:
        """Return the actors with waiting or delayed tasks, and whether there are more such actors.

        Returns those of `ours`, and up to MAX_STRANGERS others per state. Index `pending`, one seek per actor and
        state.
        """
        (waiting, more_waiting), (delayed, more_delayed) = (
            self._each(state, ours, {"$group": {"_id": "$actor"}}) for state in (WAITING, DELAYED)
        )
        return waiting.keys() | delayed.keys(), more_waiting or more_delayed

    def oldest(self, ours: Collection[str]) -> tuple[dict[str, datetime | None], bool]:
        """Return when the oldest queued task of each actor was queued, and whether there are more such actors.

        Same actors, limits and cost as `to_come`.
        """
        sort = {"state": 1, "actor": 1, "queuedAt": 1}
        stages = {"$sort": sort}, {"$group": {"_id": "$actor", "since": {"$first": "$queuedAt"}}}
        return self._each(QUEUED, ours, *stages)

    def _each(
        self, state: str, our_actors: Collection[str], *stages: Document
    ) -> tuple[dict[str, datetime | None], bool]:
        """Run stages over the tasks in a state. Return {actor: its `since`}, and whether there are more actors."""
        limit = len(our_actors) + MAX_STRANGERS
        # Names are cut by the server, because another program may write names of megabytes.
        cut_names: Document = {"$project": {"_id": {"$substrCP": ["$_id", 0, ACTOR_NAME_LENGTH + 1]}, "since": True}}
        rows = self._seek(_NAMED | {"state": state}, *stages, {"$limit": limit + 1}, cut_names)
        if len(rows) > limit:  # sorted by name, so unknown actors may have displaced ours
            rows += self._seek({"state": state, "actor": {"$in": list(our_actors)}}, *stages)
        since = {row["_id"]: row.get("since") for row in rows}
        strangers = sorted(name for name in since.keys() - set(our_actors) if is_actor_name(name))[:MAX_STRANGERS]
        named = {name: since[name] for name in sorted({*strangers, *(since.keys() & set(our_actors))})}
        return named, len(named) < len(since)

    def count_others(self, known: Collection[str]) -> tuple[int, datetime | None]:
        """Return how many tasks of unknown actors wait, at most COUNT_LIMIT, and when the oldest was queued.

        Reads index `pending` only.
        """
        waits = {"actor": {"$gte": "", "$nin": list(known)}, "state": {"$in": [WAITING, DELAYED, QUEUED]}}
        total: Document = {"$group": {"_id": None, "count": _COUNTED, "since": {"$min": "$queuedAt"}}}
        total_row = next(iter(self._seek(waits, {"$limit": COUNT_LIMIT}, total)), None)
        return (total_row["count"], total_row["since"]) if total_row else (0, None)

    def count_queued(self, actors: Collection[str], until: datetime | None = None) -> dict[str, int]:
        """Return the number of queued tasks of these actors, optionally only those queued by `until`.

        Actors without tasks are absent. Reads index `pending` only.
        """
        return self._count(QUEUED, actors, {} if until is None else {"queuedAt": {"$lte": until}})

    def count_to_come(self, actors: Collection[str]) -> dict[str, ToCome]:
        """Return the numbers of tasks of these actors that are not queued.

        Index `pending` and up to MAX_LOOKED_UP processes; for running tasks index `worker` and the claimed decisions.
        """
        if not actors:
            return {}
        working = self._count_working(actors)
        after_others, delayed = self._count(WAITING, actors), self._count(DELAYED, actors)
        running = after_others
        if sum(after_others.values()) <= MAX_LOOKED_UP:
            running = self._count_running(after_others)
        return {
            name: ToCome(
                delayed=delayed.get(name, 0),
                after_others=running.get(name, 0),
                of_broken=max(0, after_others.get(name, 0) - running.get(name, 0)),
                working=working.get(name, 0),
            )
            for name in actors
        }

    def actors_of(self, process_id: str, actors: Collection[str]) -> set[str]:
        """Return those of these actors that have a delayed, queued or waiting task in the process.

        Index `_id`, one range.
        """
        not_taken = {"state": {"$in": [WAITING, DELAYED, QUEUED]}, "actor": {"$in": list(actors)}}
        stages = [{"$match": record_range(process_id) | not_taken}, {"$group": {"_id": "$actor"}}]
        return {document["_id"] for document in self._decisions.aggregate(stages, hint="_id_")}

    def undecided(self, actor: str) -> dict[str, int]:
        """Return the number of unfinished tasks of an actor by state, whatever the state of their processes.

        For operators: running tasks are found by index `deadline`, which reads all live decisions.
        """
        counts: dict[str, int] = {}
        for state in _IN_TURN:
            for document in self._undecided(state, actor, {"$group": {"_id": None, "count": _COUNTED}}):
                counts[state] = max(counts.get(state, 0), document["count"])
        return counts

    def processes_of(self, actor: str) -> list[str]:
        """Return the sorted ids of the processes with an unfinished task of this actor. Reads these decisions."""
        ids = (
            document["_id"]
            for state in _IN_TURN
            for document in self._undecided(state, actor, {"$project": {"_id": True}})
        )
        return sorted({split_record_id(key)[0] for key in ids})

    def still_waiting(self, actor: str, process_ids: Collection[str]) -> set[str]:
        """Return those of these processes that have an unfinished task of this actor.

        Index `_id`, one range per process; reads all their decisions.
        """
        undecided: Document = {"actor": actor, "state": {"$in": [*{*_IN_TURN}]}}
        in_processes = {"$or": [record_range(process_id) | undecided for process_id in process_ids]}
        if not process_ids:
            return set()
        documents = self._decisions.find(in_processes, {"_id": True}, hint="_id_")
        return {split_record_id(document["_id"])[0] for document in documents}

    def _undecided(self, state: str, actor: str, stage: Document) -> Iterable[Document]:
        of_actor: Document = {"state": state, "actor": actor}
        if state == WORKING:
            return self._decisions.aggregate([{"$match": _HAS_DEADLINE | of_actor}, stage], hint="deadline")
        try:
            return self._decisions.aggregate([{"$match": of_actor}, stage], hint="pending")
        except OperationFailure as error:
            if not is_index_missing(error):
                raise
        return self._decisions.aggregate([{"$match": of_actor}, stage])  # slow, but finds all

    def _count(self, state: str, actors: Collection[str], extra: Document | None = None) -> dict[str, int]:
        # For few actors, one count per actor reads index keys only and takes a tenth of the time.
        if actors and len(actors) <= FEW:
            return self._count_each(state, actors, extra or {})
        of_actors: Document = {"state": state, "actor": {"$in": list(actors)}, **(extra or {})}
        rows = self._seek(of_actors, {"$group": {"_id": "$actor", "count": _COUNTED}}) if actors else []
        return {document["_id"]: document["count"] for document in rows}

    def _count_each(self, state: str, actors: Collection[str], extra: Document) -> dict[str, int]:
        queries: list[Document] = [{"state": state, "actor": actor, **extra} for actor in actors]
        try:
            counts = [self._decisions.count_documents(query, hint="pending") for query in queries]
        except OperationFailure as error:
            if not is_index_missing(error):
                raise
            counts = [self._decisions.count_documents(_HAS_DEADLINE | query, hint="deadline") for query in queries]
        return {actor: count for actor, count in zip(actors, counts, strict=True) if count}

    def _count_running(self, actors: Collection[str]) -> dict[str, int]:
        """Return the number of waiting tasks of running processes by actor."""
        if not actors:
            return {}
        process = {"$first": {"$split": ["$_id", SEPARATOR]}}
        rows = self._seek(
            {"state": WAITING, "actor": {"$in": list(actors)}},
            {"$group": {"_id": {"actor": "$actor", "process": process}, "count": _COUNTED}},
            {
                "$lookup": {
                    "from": schema.PROCESSES,
                    "localField": "_id.process",
                    "foreignField": "_id",
                    "pipeline": [{"$match": {"state": ProcessState.RUNNING.value}}, {"$project": {"_id": True}}],
                    "as": "running",
                }
            },
            {"$match": {"running": {"$ne": []}}},
            {"$group": {"_id": "$_id.actor", "count": {"$sum": "$count"}}},
        )
        return {document["_id"]: document["count"] for document in rows}

    def _count_working(self, actors: Collection[str]) -> dict[str, int]:
        held = _HAS_HOLDER | {"state": WORKING, "actor": {"$in": list(actors)}}
        stages = [{"$match": held}, {"$group": {"_id": "$actor", "count": _COUNTED}}]
        return {document["_id"]: document["count"] for document in self._decisions.aggregate(stages, hint="worker")}

    def _seek(self, match: Document, *stages: Document) -> list[Document]:
        try:
            return self._decisions.aggregate([{"$match": match}, *stages], hint="pending").to_list()
        except OperationFailure as error:
            if not is_index_missing(error):
                raise
        # The index does not exist before a worker of this version or `recovery init` has run, as `doctor` reports. Then
        # all live decisions are read. Tasks that wait for other tasks have no deadline and are missed here; `undecided`
        # finds them.
        return self._decisions.aggregate([{"$match": _HAS_DEADLINE | match}, *stages], hint="deadline").to_list()
