"""What waits for a worker, by actor, as the decisions have it, and who there is to take it (`Waiting`); and tasks
that wait for another worker, because the code of those that claimed them does not accept their call, or is of another
version than they are pinned to (`Refusals`).

Neither Redis nor the collection `actors` can tell what waits. Redis may have lost the messages, and `actors` knows only
what some worker told of at its start: tasks of an actor that is new in a client's code wait in a queue that nobody ever
heard of. A decision is the fact: one that is queued, and one whose turn is still to come, which waits for nobody as
well if nobody serves its actor.

What a look costs grows with the actors, not with what waits (2 ms for 20 actors, whether 20,000 tasks wait or a
million). How many wait is counted if no worker serves them or somebody reads it: from the index, 1 ms for a thousand
on two busy cores.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime

from pymongo.database import Database

from recovery.records import PINNED, Decision
from recovery.records.ids import SEPARATOR
from recovery.store import schema
from recovery.store.client import Document
from recovery.store.clock import told_by
from recovery.store.concerns import committed, current
from recovery.store.driver_errors import translated
from recovery.store.expressions import ALIVE, record_range
from recovery.store.lifecycle.queues import Queues
from recovery.store.record_reading import readable
from recovery.store.views.pending import Pending, ToCome

OTHERS = "(other)"
"""Stands for all actors that are not named one by one. No actor can be called so."""
_TEXT: Document = {"$type": "string"}
_NAMED: Document = {"_id": _TEXT}

INDEX = "refused"


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
    to_come: ToCome = field(default_factory=ToCome)
    """What is not queued: counted only where it is not served, nor blocked."""

    @property
    def waits_for_nobody(self) -> bool:
        """Whether tasks wait, or will, that no worker will take: what is blocked waits for an operator."""
        some = self.waiting_seconds is not None or self.to_come.delayed or self.to_come.after_others
        return bool(some) and not self.is_served and self.blocked_seconds is None

    @property
    def waits_for_operator(self) -> bool:
        """Whether tasks wait that no worker may take."""
        return self.waiting_seconds is not None and self.blocked_seconds is not None


@translated
class Waiting:
    """Queries of what waits for a worker. `polled_within`: seconds for which a worker may be away to restart."""

    def __init__(self, database: Database[Document], pending: Pending, queues: Queues, polled_within: float) -> None:
        self._queues = queues
        self._pending, self._actors = pending, committed(database[schema.ACTORS])
        self._database, self._polled_within = database, polled_within

    def by_actor(self, *, count_served: bool = True, wanted: Collection[str] = ()) -> dict[str, ActorQueue]:
        """{actor: its queue} of all that a worker told of, serves, or tasks wait for, by name.

        Of those that tasks wait for and that no worker ever told of MAX_STRANGERS are named, and all `wanted` ones. The
        others, of which a client may have made up any number, are one entry, OTHERS.

        Without `count_served` what costs more with more tasks is asked only of those that no worker may take: for
        readers who ask all the time.
        """
        ours = {*self._told(), *self._workers(), *wanted}
        # In this order: a worker that comes in between makes nothing look lonely that was not, and a task whose turn
        # comes is not missed. Of each record only what is asked for, and by its type: one that another program wrote
        # hides nothing of the others.
        later, others = self._pending.to_come(ours)
        oldest, yet_others = self._pending.oldest(ours)
        known = self._told()
        workers = self._workers()
        served, now = workers.keys() | self._queues.polled_within(self._polled_within), told_by(self._database)
        held_up = {name for name in {*known, *oldest, *later} if name not in served and not known.get(name)}
        counted = {name for name in oldest if count_served or known.get(name) or name in held_up}
        to_come = self._pending.count_to_come(held_up)
        tasks = self._pending.count_queued(counted)
        found = {
            name: ActorQueue(
                actor=name,
                waiting_seconds=_seconds(oldest[name], now) if name in oldest else None,
                tasks=tasks.get(name, 0) if name in counted or name not in oldest else None,
                workers=tuple(sorted(workers.get(name, ()))),
                is_served=name in served,
                blocked_seconds=_seconds(since, now) if (since := known.get(name)) else None,
                is_known=name in known or name in workers,
                to_come=to_come.get(name, ToCome()),
            )
            for name in sorted({*known, *oldest, *later, *workers})
        }
        if others or yet_others:
            count, queued_since = self._pending.count_others({*found, *ours})
            waits = _seconds(queued_since, now)
            if count:
                found[OTHERS] = ActorQueue(OTHERS, waits, count, (), False, None, is_known=False)
        return found

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


def _seconds(since: object, now: datetime) -> float:
    """Return how many seconds ago a moment was; 0 if it is to come, or if another program left it out."""
    return max(0.0, (now - since).total_seconds()) if isinstance(since, datetime) else 0.0


@dataclass(frozen=True, slots=True)
class RefusedTasks:
    """The tasks of one actor that wait for a newer worker."""

    actor: str
    tasks: int
    versions: tuple[str, ...]
    """The versions of the application that refused one of these tasks last."""
    why: str
    """Why one of these tasks was refused, as in "got an unexpected keyword argument 'currency'"."""


@dataclass(frozen=True, slots=True)
class PinnedTasks:
    """The tasks of one actor that are pinned to one version, and that a worker of another version gave back."""

    actor: str
    pinned_to: str
    tasks: int
    process_id: str
    """The first process that such a task belongs to."""


@translated
class Refusals:
    """Queries over the index `refused` of the collection `decisions`. They cost what waits for a newer worker."""

    def __init__(self, database: Database[Document]) -> None:
        self._decisions = committed(database[schema.DECISIONS])

    def of_process(self, process_id: str) -> list[Decision]:
        """Return the tasks of a process that wait for a newer worker. Reads all tasks of the process, by the index
        `_id`, but only while some process has such a task: whoever waits for a result asks every few seconds."""
        if self._decisions.find_one(schema.WAITS_FOR_NEWER_WORKER, {"_id": True}, hint=INDEX) is None:
            return []
        of_it: Document = {**record_range(process_id), "refused": {"$exists": True}}
        of_it["state"] = {"$in": schema.BEFORE_CLAIM}
        found = readable(Decision, self._decisions.find(of_it, {"call": False}).hint("_id_"))
        return [decision for decision in found if decision.waits_for_newer_worker]

    def by_actor(self) -> list[RefusedTasks]:
        """Return the tasks that wait for a newer worker, by actor, the actor with the most tasks first."""
        stages: list[Document] = [
            *_waiting({"$ne": ["$last.why", PINNED]}),
            {
                "$group": {
                    "_id": "$actor",
                    "tasks": {"$sum": 1},
                    "versions": {"$addToSet": "$last.version"},
                    "why": {"$first": "$last.why"},
                }
            },
            {"$sort": {"tasks": -1, "_id": 1}},
        ]
        return [
            RefusedTasks(
                str(found["_id"]), found["tasks"], tuple(sorted(map(str, found["versions"]))), str(found.get("why"))
            )
            for found in self._decisions.aggregate(stages, hint=INDEX)
        ]

    def pinned(self) -> list[PinnedTasks]:
        """Return the tasks that a worker gave back last for their pins, by actor and version."""
        stages: list[Document] = [
            *_waiting({"$eq": ["$last.why", PINNED]}),
            {
                "$group": {
                    "_id": {"actor": "$actor", "version": "$pinnedTo"},
                    "tasks": {"$sum": 1},
                    "first": {"$min": "$_id"},
                }
            },
            {"$sort": {"tasks": -1, "_id": 1}},
        ]
        return [
            PinnedTasks(
                str(found["_id"].get("actor")),
                str(found["_id"].get("version")),
                found["tasks"],
                str(found["first"]).partition(SEPARATOR)[0],
            )
            for found in self._decisions.aggregate(stages, hint=INDEX)
        ]


def _waiting(last_refusal: Document) -> list[Document]:
    """The stages that find the refused tasks that wait, by their `last` refusal."""
    last: Document = {"$last": {"$cond": [{"$isArray": "$refused.by"}, "$refused.by", []]}}
    project = {"actor": True, "pinnedTo": True, "last": last}
    return [{"$match": schema.WAITS_FOR_NEWER_WORKER}, {"$project": project}, {"$match": {"$expr": last_refusal}}]
