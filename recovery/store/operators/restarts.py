"""Updates of a restart: a failed task is queued again, its graph and its process are reopened.

The first is the commit point and acknowledged to an operator; the others are run again by whoever applies the task
(`engine.apply.reopen`), as often as it takes. Each batch is one round trip for each of its parts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from pymongo import UpdateOne
from pymongo.database import Database

from recovery.records import Life, Process, ProcessState, Until, forgotten, reset, to_document
from recovery.records.ids import split_record_id
from recovery.store import schema
from recovery.store.client import Document
from recovery.store.concerns import committed, current
from recovery.store.driver_errors import translated
from recovery.store.expressions import after, literal, plus_one, task_end_by_actor
from recovery.store.lifecycle.decision_queries import FINISHED, QUEUED
from recovery.store.lifecycle.decisions import Queued
from recovery.store.lifecycle.graph_recovery import IDLE

KEPT_LIVES = 20
"""Restarts that a process's history holds."""


def with_life(life: Document) -> Document:
    """Return the history of a process with one more entry."""
    before = {"$cond": [{"$isArray": "$lives"}, "$lives", []]}
    return {"$slice": [{"$concatArrays": [before, [life]]}, -KEPT_LIVES]}


BROKEN, RUNNING = ProcessState.BROKEN.value, ProcessState.RUNNING.value

_MESSAGE = {"actor": True, "queuedAt": True}


@dataclass(frozen=True, slots=True)
class Restarted:
    """A task, `P/T`, and how often it was restarted. Within one such number a task ends once at the most, so the number
    names the failure, or the new life, that is meant."""

    id: str
    restarts: int
    epoch: int

    @property
    def process_id(self) -> str:
        return split_record_id(self.id)[0]

    @property
    def task(self) -> str:
        return split_record_id(self.id)[1]

    def again(self) -> Restarted:
        """The same task, restarted once more."""
        return Restarted(self.id, self.restarts + 1, self.epoch)


@translated
class RestartUpdates:
    """Updates over the collections `decisions`, `graphs` and `processes`."""

    def __init__(
        self, database: Database[Document], message_timeout: float, task_timeouts: Callable[[], Mapping[str, float]]
    ) -> None:
        self._decisions = committed(database[schema.DECISIONS])
        self._marked = current(database[schema.DECISIONS])
        self._processes = committed(database[schema.PROCESSES])
        self._graphs = current(database[schema.GRAPHS])
        self._message_timeout, self._task_timeouts = message_timeout, task_timeouts

    def queue(self, failed: Sequence[Restarted], pass_key: str) -> list[Queued]:
        """finished with the error of this life → queued for the next: the commit point. Those that were.

        From here on no result of an attempt from before is taken: `finish` compares `restarts`.
        """
        timeouts = self._task_timeouts()
        alike: dict[tuple[int, int], list[str]] = defaultdict(list)
        for one in failed:
            alike[one.restarts, one.epoch].append(one.id)
        for (restarts, epoch), ids in alike.items():
            broken = {"state": FINISHED, "outcome.error": {"$exists": True}, "fallible": None}
            same = {"_id": {"$in": ids}, "epoch": epoch, "restarts": restarts or None}
            fields = {
                "state": QUEUED,
                "pass": pass_key,
                # Its time as a whole begins anew.
                "enqueuedAt": "$$NOW",
                "queuedAt": "$$NOW",
                "recoveryTime": after(self._message_timeout),
                "restarts": restarts + 1,
                **reset(Until.NEXT_LIFE),
            }
            gone = list(forgotten(Until.NEXT_LIFE))
            sooner = {"recoveryTime": {"$min": ["$recoveryTime", task_end_by_actor(timeouts)]}}
            stages: list[Document] = [{"$set": fields}, {"$unset": gone}, *([{"$set": sooner}] if timeouts else [])]
            self._decisions.update_many({**broken, **same}, stages)
        marked = {"_id": {"$in": [one.id for one in failed]}, "pass": pass_key}
        found = self._marked.find(marked, _MESSAGE)
        # Behind what waits already: thousands that an operator restarts must not hold up all others.
        return [Queued(d["_id"], d["actor"], pass_key, d["queuedAt"]) for d in found]

    def reopen_graphs(self, restarted: Iterable[Restarted]) -> None:
        """Tell graphs that tasks have not failed in this life; one that knows of it already is left alone, for the task
        may have failed in it meanwhile."""
        updates = [
            UpdateOne(
                {"_id": one.process_id, "epoch": one.epoch, f"restarted.{one.task}": {"$not": {"$gte": one.restarts}}},
                [
                    {
                        "$set": {
                            f"restarted.{one.task}": one.restarts,
                            "touchedAt": "$$NOW",
                            "recoveryTime": IDLE,
                            "version": plus_one("version"),
                        }
                    },
                    {"$unset": f"failed.{one.task}"},
                ],
            )
            for one in restarted
        ]
        self._graphs.bulk_write(updates, ordered=False)

    def note_restarts(self, lives: Mapping[str, Life]) -> None:
        """Add restarts of failed tasks to the histories of their processes, {process: what it had come to}, of those
        that are in the same epoch still. Restorable: nothing is decided by a history."""
        updates = [
            UpdateOne(
                {"_id": process_id, "epoch": life.epoch}, [{"$set": {"lives": with_life(literal(to_document(life)))}}]
            )
            for process_id, life in lives.items()
        ]
        if updates:
            self._processes.bulk_write(updates, ordered=False)

    def without_failure(self, restarted: Iterable[Restarted]) -> set[str]:
        """Those of their processes in whose graph no task has failed. Of what broke them, that is, all was restarted;
        these tasks may have ended since."""
        lives = {(one.process_id, one.epoch) for one in restarted}
        well = [{"_id": process_id, "epoch": epoch, "failed": {}} for process_id, epoch in lives]
        return {document["_id"] for document in self._graphs.find({"$or": well}, {"_id": True})}

    def reopen_processes(self, seen: Iterable[Process]) -> int:
        """broken → running, unless they were reopened or aborted since they were seen. How many."""
        alike: dict[tuple[int | None, int], list[Process]] = defaultdict(list)
        for process in seen:
            alike[process.reopened, process.epoch].append(process)
        reopened = 0
        for (before, epoch), processes in alike.items():
            changed = self._processes.update_many(
                {"_id": {"$in": [p.id for p in processes]}, "state": BROKEN, "epoch": epoch, "reopened": before},
                [
                    {
                        "$set": {
                            "state": RUNNING,
                            "reopened": (before or 0) + 1,
                            "recoveryTime": IDLE,
                        }
                    },
                    {"$unset": ["error", "endedAt"]},
                ],
            )
            reopened += changed.modified_count
        return reopened

    def failed(self, process_ids: Iterable[str]) -> dict[str, list[str]]:
        """{process: its failed tasks}, of those that have some."""
        query = {"_id": {"$in": list(process_ids)}, "failed": {"$ne": {}}}
        return {document["_id"]: list(document["failed"]) for document in self._graphs.find(query, {"failed": True})}
