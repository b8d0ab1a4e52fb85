"""Queries of tasks that wait for a worker.

`Waiting` returns by actor which tasks wait, and which workers can run them. `Refusals` finds tasks that wait for
another worker, because the workers that claimed them have code that does not accept the call, or another version than
the task is pinned to.

Decisions are read, because neither Redis nor the collection `actors` shows all waiting tasks: Redis may have lost
messages, and `actors` contains only actors that a worker announced. Tasks of an actor that exists only in a client's
new code wait in an unknown queue.

The cost depends on the number of actors, not of waiting tasks. Waiting tasks are counted, in an index, only if no
worker serves them or somebody asks.
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
"""Name for all actors that are not listed individually. It is not a valid actor name."""
_TEXT: Document = {"$type": "string"}
_NAMED: Document = {"_id": _TEXT}

INDEX = "refused"


@dataclass(frozen=True, slots=True)
class ActorQueue:
    """The waiting tasks of one actor, and the workers that serve it."""

    actor: str
    waiting_seconds: float | None
    """Seconds since the oldest task was queued; None if no task is queued."""
    tasks: int | None
    """Number of queued tasks; None if they were not counted."""
    workers: tuple[str, ...]
    """Names of the live workers that serve the actor."""
    is_served: bool
    """Whether a worker serves the actor, or did until so recently that it may be restarting."""
    blocked_seconds: float | None
    """Seconds since an operator blocked the actor; None if it is not blocked."""
    is_known: bool
    """Whether a worker ever announced the actor."""
    to_come: ToCome = field(default_factory=ToCome)
    """Tasks that are not queued. Counted only if the actor is neither served nor blocked."""

    @property
    def waits_for_nobody(self) -> bool:
        """Whether tasks wait, now or later, that no worker will take. A blocked actor waits for an operator instead."""
        has_tasks = self.waiting_seconds is not None or self.to_come.delayed or self.to_come.after_others
        return bool(has_tasks) and not self.is_served and self.blocked_seconds is None

    @property
    def waits_for_operator(self) -> bool:
        """Whether queued tasks wait because an operator blocked the actor."""
        return self.waiting_seconds is not None and self.blocked_seconds is not None


@translated
class Waiting:
    """Queries of tasks that wait for a worker. A worker may be absent for `polled_within` seconds to restart."""

    def __init__(self, database: Database[Document], pending: Pending, queues: Queues, polled_within: float) -> None:
        self._queues = queues
        self._pending, self._actors = pending, committed(database[schema.ACTORS])
        self._database, self._polled_within = database, polled_within

    def by_actor(self, *, count_served: bool = True, wanted: Collection[str] = ()) -> dict[str, ActorQueue]:
        """Return the queue of each known, served or waiting actor by name.

        Unknown actors, which no worker announced, are listed only up to MAX_STRANGERS, because a client can invent any
        number of names. The remaining ones are summed up in the entry OTHERS.

        Args:
            count_served: Whether to count the tasks of actors that are served. Frequent readers turn it off, because
                counting costs more with more tasks.
            wanted: Unknown actors to list in any case.
        """
        our_actors = {*self._announced(), *self._workers(), *wanted}
        # The order matters: with it, neither a worker that starts between two queries nor a task that is enqueued
        # between them makes an actor look unserved. Only the needed fields are read, by type, so that a damaged record
        # does not hide others.
        waiting_actors, has_more_waiting = self._pending.to_come(our_actors)
        oldest, has_more_queued = self._pending.oldest(our_actors)
        known = self._announced()
        workers = self._workers()
        served, now = workers.keys() | self._queues.polled_within(self._polled_within), told_by(self._database)
        unserved = {name for name in {*known, *oldest, *waiting_actors} if name not in served and not known.get(name)}
        counted = {name for name in oldest if count_served or known.get(name) or name in unserved}
        to_come = self._pending.count_to_come(unserved)
        tasks = self._pending.count_queued(counted)
        actor_queues = {
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
            for name in sorted({*known, *oldest, *waiting_actors, *workers})
        }
        if has_more_waiting or has_more_queued:
            count, queued_since = self._pending.count_others({*actor_queues, *our_actors})
            waiting_seconds = _seconds(queued_since, now)
            if count:
                actor_queues[OTHERS] = ActorQueue(OTHERS, waiting_seconds, count, (), False, None, is_known=False)
        return actor_queues

    def _announced(self) -> dict[str, datetime | None]:
        """Return when each announced actor was blocked, by name; None if it is not blocked."""
        documents = self._actors.find(_NAMED, {"blockedAt": True})
        return {document["_id"]: document.get("blockedAt") for document in documents}

    def _workers(self) -> dict[str, list[str]]:
        """Return the names of the live workers that serve each actor. Reads the primary."""
        alive: Document = {"$expr": ALIVE, "name": _TEXT, "queues": {"$type": "array"}}
        serving: dict[str, list[str]] = {}
        for document in current(self._database[schema.WORKERS]).find(alive, {"name": True, "queues": True}):
            for queue in filter(lambda queue: isinstance(queue, str), document["queues"]):
                serving.setdefault(queue, []).append(document["name"])
        return serving


def _seconds(since: object, now: datetime) -> float:
    """Return the seconds since a moment; 0 if it is in the future or not a date."""
    return max(0.0, (now - since).total_seconds()) if isinstance(since, datetime) else 0.0


@dataclass(frozen=True, slots=True)
class RefusedTasks:
    """The tasks of one actor that wait for a newer worker."""

    actor: str
    tasks: int
    versions: tuple[str, ...]
    """The application versions that last refused one of these tasks."""
    why: str
    """Why one of these tasks was refused, for example "got an unexpected keyword argument 'currency'"."""


@dataclass(frozen=True, slots=True)
class PinnedTasks:
    """The tasks of one actor that are pinned to one version and were returned by a worker of another version."""

    actor: str
    pinned_to: str
    tasks: int
    process_id: str
    """The first process with such a task."""


@translated
class Refusals:
    """Queries of the collection `decisions` by index `refused`.

    They cost in proportion to the refused tasks. Read concern majority.
    """

    def __init__(self, database: Database[Document]) -> None:
        self._decisions = committed(database[schema.DECISIONS])

    def of_process(self, process_id: str) -> list[Decision]:
        """Return the tasks of a process that wait for a newer worker.

        Reads all tasks of the process by index `_id`, but only if any process has such a task, because callers that
        wait for a result ask every few seconds.
        """
        if self._decisions.find_one(schema.WAITS_FOR_NEWER_WORKER, {"_id": True}, hint=INDEX) is None:
            return []
        refused_tasks: Document = {**record_range(process_id), "refused": {"$exists": True}}
        refused_tasks["state"] = {"$in": schema.BEFORE_CLAIM}
        decisions = readable(Decision, self._decisions.find(refused_tasks, {"call": False}).hint("_id_"))
        return [decision for decision in decisions if decision.waits_for_newer_worker]

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
            RefusedTasks(str(row["_id"]), row["tasks"], tuple(sorted(map(str, row["versions"]))), str(row.get("why")))
            for row in self._decisions.aggregate(stages, hint=INDEX)
        ]

    def pinned(self) -> list[PinnedTasks]:
        """Return the tasks that were last returned because of their pin, by actor and version."""
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
                str(row["_id"].get("actor")),
                str(row["_id"].get("version")),
                row["tasks"],
                str(row["first"]).partition(SEPARATOR)[0],
            )
            for row in self._decisions.aggregate(stages, hint=INDEX)
        ]


def _waiting(last_refusal: Document) -> list[Document]:
    """Return stages that find waiting refused tasks by a condition on their `last` refusal."""
    last: Document = {"$last": {"$cond": [{"$isArray": "$refused.by"}, "$refused.by", []]}}
    project = {"actor": True, "pinnedTo": True, "last": last}
    return [{"$match": schema.WAITS_FOR_NEWER_WORKER}, {"$project": project}, {"$match": {"$expr": last_refusal}}]
