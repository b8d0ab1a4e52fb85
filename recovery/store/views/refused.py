"""Tasks that wait for another worker: the code of those that claimed them does not accept their call, or is of another
version than they are pinned to."""

from __future__ import annotations

from dataclasses import dataclass

from pymongo.database import Database

from recovery.records import PINNED, Decision
from recovery.records.ids import SEPARATOR
from recovery.store import schema
from recovery.store.client import Document
from recovery.store.concerns import committed
from recovery.store.driver_errors import translated
from recovery.store.expressions import record_range
from recovery.store.record_reading import readable

INDEX = "refused"


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
