"""Tasks that are not decided, by actor: queued, delayed, waiting for other tasks, or worked on.

All but the last stand in the index `pending`. Which actors have any is a seek for each actor and state; what is counted
is counted where nobody serves the actor, or somebody reads it. So a look costs the actors and what is held up, and not
what is live: a graph of a million tasks whose turn is to come costs nothing while all its actors are served.
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
"""Tasks that wait for others of which the processes are looked up, in 0.1 s. Of more than that all are taken to be of
processes that run: rather an alert too many."""

MAX_STRANGERS = 50
"""Actors that no worker ever told of, as those of a client's new code, which are named. Whoever starts processes can
write any number of names: of more than these is told how many tasks they have."""
COUNT_LIMIT = 10_000
"""Tasks of the other strangers that are counted."""

FEW = 20
"""Up to this many actors have their tasks counted one after another."""

# A task goes from each to the next, and from the last back to the one before: asked for in this order it is not missed.
_IN_TURN = (WORKING, WAITING, DELAYED, QUEUED, WORKING)
# With a name for an actor: what another program wrote without one is in no queue.
_NAMED: Document = {"actor": {"$gte": ""}}
_HAS_DEADLINE: Document = {"recoveryTime": {"$exists": True}}
_HAS_HOLDER: Document = {"worker": {"$exists": True}}
_COUNTED: Document = {"$sum": 1}


@dataclass(frozen=True, slots=True)
class ToCome:
    """Numbers of tasks of one actor that are neither queued nor decided."""

    delayed: int = 0
    after_others: int = 0
    """Tasks that wait for other tasks first."""
    of_broken: int = 0
    """The same of processes that do not run: their turn comes only if an operator restarts what failed."""
    working: int = 0


@translated
class Pending:
    """Queries over undecided decisions, by actor."""

    def __init__(self, database: Database[Document]) -> None:
        self._decisions = committed(database[schema.DECISIONS])

    def to_come(self, ours: Collection[str]) -> tuple[set[str], bool]:
        """Actors with tasks that wait for others, or are delayed: those of `ours`, and up to MAX_STRANGERS others in
        each state; and whether there are still others. Index `pending`: a seek for each, and each state."""
        (waiting, more), (delayed, yet_more) = (
            self._each(state, ours, {"$group": {"_id": "$actor"}}) for state in (WAITING, DELAYED)
        )
        return waiting.keys() | delayed.keys(), more or yet_more

    def oldest(self, ours: Collection[str]) -> tuple[dict[str, datetime | None], bool]:
        """{actor: when the oldest of its queued tasks was queued}, of as many. Costs as much."""
        sort = {"state": 1, "actor": 1, "queuedAt": 1}
        stages = {"$sort": sort}, {"$group": {"_id": "$actor", "since": {"$first": "$queuedAt"}}}
        return self._each(QUEUED, ours, *stages)

    def _each(self, state: str, ours: Collection[str], *stages: Document) -> tuple[dict[str, datetime | None], bool]:
        """{actor: what `since` is} of what these stages make of each actor with tasks in a state."""
        most = len(ours) + MAX_STRANGERS
        # Cut by the server, after the seeks: a name may be megabytes long.
        cut: Document = {"$project": {"_id": {"$substrCP": ["$_id", 0, ACTOR_NAME_LENGTH + 1]}, "since": True}}
        found = self._seek(_NAMED | {"state": state}, *stages, {"$limit": most + 1}, cut)
        if len(found) > most:  # in their order by name, in which strangers may be before all of ours
            found += self._seek({"state": state, "actor": {"$in": list(ours)}}, *stages)
        since = {one["_id"]: one.get("since") for one in found}
        strangers = sorted(name for name in since.keys() - set(ours) if is_actor_name(name))[:MAX_STRANGERS]
        named = {name: since[name] for name in sorted({*strangers, *(since.keys() & set(ours))})}
        return named, len(named) < len(since)

    def count_others(self, known: Collection[str]) -> tuple[int, datetime | None]:
        """How many tasks wait of actors that are none of the known ones, COUNT_LIMIT at most, and since when the oldest
        of these is queued. Index `pending` alone."""
        waits = {"actor": {"$gte": "", "$nin": list(known)}, "state": {"$in": [WAITING, DELAYED, QUEUED]}}
        total: Document = {"$group": {"_id": None, "count": _COUNTED, "since": {"$min": "$queuedAt"}}}
        found = next(iter(self._seek(waits, {"$limit": COUNT_LIMIT}, total)), None)
        return (found["count"], found["since"]) if found else (0, None)

    def count_queued(self, actors: Collection[str], until: datetime | None = None) -> dict[str, int]:
        """{actor: queued tasks} of those that have any; of those that were queued up to then. Index `pending` alone."""
        return self._count(QUEUED, actors, {} if until is None else {"queuedAt": {"$lte": until}})

    def count_to_come(self, actors: Collection[str]) -> dict[str, ToCome]:
        """What is to come of these actors. Index `pending`, and up to MAX_LOOKED_UP decisions; for what is worked on
        index `worker`, and as many decisions as are claimed."""
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
        """Those of these actors that a task of the process waits for, now or later. Index `_id`, one range."""
        not_taken = {"state": {"$in": [WAITING, DELAYED, QUEUED]}, "actor": {"$in": list(actors)}}
        stages = [{"$match": record_range(process_id) | not_taken}, {"$group": {"_id": "$actor"}}]
        return {document["_id"] for document in self._decisions.aggregate(stages, hint="_id_")}

    def undecided(self, actor: str) -> dict[str, int]:
        """{state: tasks} of an actor that are not decided, whatever became of their processes. For an operator: what is
        worked on is found by index `deadline`, which reads all that is live."""
        found: dict[str, int] = {}
        for state in _IN_TURN:
            for document in self._undecided(state, actor, {"$group": {"_id": None, "count": _COUNTED}}):
                found[state] = max(found.get(state, 0), document["count"])
        return found

    def processes_of(self, actor: str) -> list[str]:
        """Ids of the processes that such tasks are of, each once, in order. Reads these decisions."""
        ids = (one["_id"] for state in _IN_TURN for one in self._undecided(state, actor, {"$project": {"_id": True}}))
        return sorted({split_record_id(key)[0] for key in ids})

    def still_waiting(self, actor: str, process_ids: Collection[str]) -> set[str]:
        """Those of these processes that have such a task. Index `_id`: reads the decisions of these processes, as an
        abort of them does."""
        undecided: Document = {"actor": actor, "state": {"$in": [*{*_IN_TURN}]}}
        of_them = {"$or": [record_range(key) | undecided for key in process_ids]}
        if not process_ids:
            return set()
        found = self._decisions.find(of_them, {"_id": True}, hint="_id_")
        return {split_record_id(one["_id"])[0] for one in found}

    def _undecided(self, state: str, actor: str, stage: Document) -> Iterable[Document]:
        of_actor: Document = {"state": state, "actor": actor}
        if state == WORKING:
            return self._decisions.aggregate([{"$match": _HAS_DEADLINE | of_actor}, stage], hint="deadline")
        try:
            return self._decisions.aggregate([{"$match": of_actor}, stage], hint="pending")
        except OperationFailure as error:
            if not is_index_missing(error):
                raise
        return self._decisions.aggregate([{"$match": of_actor}, stage])  # rather dear than overlooked

    def _count(self, state: str, actors: Collection[str], more: Document | None = None) -> dict[str, int]:
        # Of a few range by range, by keys alone: a tenth of the time, and a round trip for each.
        if actors and len(actors) <= FEW:
            return self._count_each(state, actors, more or {})
        of_them: Document = {"state": state, "actor": {"$in": list(actors)}, **(more or {})}
        found = self._seek(of_them, {"$group": {"_id": "$actor", "count": _COUNTED}}) if actors else []
        return {document["_id"]: document["count"] for document in found}

    def _count_each(self, state: str, actors: Collection[str], more: Document) -> dict[str, int]:
        queries: list[Document] = [{"state": state, "actor": actor, **more} for actor in actors]
        try:
            counts = [self._decisions.count_documents(query, hint="pending") for query in queries]
        except OperationFailure as error:
            if not is_index_missing(error):
                raise
            counts = [self._decisions.count_documents(_HAS_DEADLINE | query, hint="deadline") for query in queries]
        return {actor: count for actor, count in zip(actors, counts, strict=True) if count}

    def _count_running(self, actors: Collection[str]) -> dict[str, int]:
        """{actor: its tasks that wait for others} of processes that run."""
        if not actors:
            return {}
        process = {"$first": {"$split": ["$_id", SEPARATOR]}}
        found = self._seek(
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
        return {document["_id"]: document["count"] for document in found}

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
        # No worker of this version, nor `recovery init`, has run yet, as `doctor` says: reads all that is live. What
        # waits for other tasks has no deadline, and is not seen; `undecided` sees it.
        return self._decisions.aggregate([{"$match": _HAS_DEADLINE | match}, *stages], hint="deadline").to_list()
