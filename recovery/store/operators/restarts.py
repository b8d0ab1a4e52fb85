"""Updates that restart failed tasks: they enqueue the task and reopen its graph and its process.

`RestartUpdates.queue` is the commit point and is acknowledged by a majority. The other updates are repeated by whoever
applies the task (`engine.apply.reopen`) until they succeed. Each update covers a batch.
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
"""Maximum number of entries in a process's history."""


def with_life(life: Document) -> Document:
    """Return an expression for the history of a process with `life` appended, at most KEPT_LIVES entries."""
    history = {"$cond": [{"$isArray": "$lives"}, "$lives", []]}
    return {"$slice": [{"$concatArrays": [history, [life]]}, -KEPT_LIVES]}


BROKEN, RUNNING = ProcessState.BROKEN.value, ProcessState.RUNNING.value

_MESSAGE = {"actor": True, "queuedAt": True}


@dataclass(frozen=True, slots=True)
class Restarted:
    """A task and how often it was restarted.

    A task ends at most once per number of restarts, so the number identifies the failure or the new life.
    """

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
        """Return the same task, restarted once more."""
        return Restarted(self.id, self.restarts + 1, self.epoch)


@translated
class RestartUpdates:
    """Updates of the collections `decisions`, `graphs` and `processes`."""

    def __init__(
        self, database: Database[Document], message_timeout: float, task_timeouts: Callable[[], Mapping[str, float]]
    ) -> None:
        self._decisions = committed(database[schema.DECISIONS])
        self._marked = current(database[schema.DECISIONS])
        self._processes = committed(database[schema.PROCESSES])
        self._graphs = current(database[schema.GRAPHS])
        self._message_timeout, self._task_timeouts = message_timeout, task_timeouts

    def queue(self, failed: Sequence[Restarted], pass_key: str) -> list[Queued]:
        """Enqueue failed tasks for their next life. This is the commit point. Return the enqueued tasks.

        A decision changes only if it is finished with a final error and has the given epoch and number of restarts. The
        result of an earlier attempt is stale from now on, because `finish` compares `restarts`. The enqueued tasks are
        read back from the primary by their new pass. Index `_id`.
        """
        timeouts = self._task_timeouts()
        groups: dict[tuple[int, int], list[str]] = defaultdict(list)
        for task in failed:
            groups[task.restarts, task.epoch].append(task.id)
        for (restarts, epoch), ids in groups.items():
            is_failed = {"state": FINISHED, "outcome.error": {"$exists": True}, "fallible": None}
            same_life = {"_id": {"$in": ids}, "epoch": epoch, "restarts": restarts or None}
            fields = {
                "state": QUEUED,
                "pass": pass_key,
                # The time limit of the task as a whole begins anew.
                "enqueuedAt": "$$NOW",
                "queuedAt": "$$NOW",
                "recoveryTime": after(self._message_timeout),
                "restarts": restarts + 1,
                **reset(Until.NEXT_LIFE),
            }
            unset_fields = list(forgotten(Until.NEXT_LIFE))
            task_limit = {"recoveryTime": {"$min": ["$recoveryTime", task_end_by_actor(timeouts)]}}
            stages: list[Document] = [
                {"$set": fields},
                {"$unset": unset_fields},
                *([{"$set": task_limit}] if timeouts else []),
            ]
            self._decisions.update_many({**is_failed, **same_life}, stages)
        marked = {"_id": {"$in": [task.id for task in failed]}, "pass": pass_key}
        documents = self._marked.find(marked, _MESSAGE)
        # Queued now, behind waiting tasks, because thousands of restarted tasks must not hold up all others.
        return [Queued(document["_id"], document["actor"], pass_key, document["queuedAt"]) for document in documents]

    def reopen_graphs(self, restarted: Iterable[Restarted]) -> None:
        """Remove restarted tasks from the failed tasks of their graphs, and set the idle deadline.

        A graph that knows this restart or a later one is skipped, because the task may have failed again since.
        Compares the epoch. Not acknowledged by a majority; repeated until it succeeds.
        """
        updates = [
            UpdateOne(
                {
                    "_id": task.process_id,
                    "epoch": task.epoch,
                    f"restarted.{task.task}": {"$not": {"$gte": task.restarts}},
                },
                [
                    {
                        "$set": {
                            f"restarted.{task.task}": task.restarts,
                            "touchedAt": "$$NOW",
                            "recoveryTime": IDLE,
                            "version": plus_one("version"),
                        }
                    },
                    {"$unset": f"failed.{task.task}"},
                ],
            )
            for task in restarted
        ]
        self._graphs.bulk_write(updates, ordered=False)

    def note_restarts(self, lives: Mapping[str, Life]) -> None:
        """Append restarts to the histories of their processes, if they are still in the same epoch.

        Nothing is decided by a history.

        Args:
            lives: The entry for each process id.
        """
        updates = [
            UpdateOne(
                {"_id": process_id, "epoch": life.epoch}, [{"$set": {"lives": with_life(literal(to_document(life)))}}]
            )
            for process_id, life in lives.items()
        ]
        if updates:
            self._processes.bulk_write(updates, ordered=False)

    def without_failure(self, restarted: Iterable[Restarted]) -> set[str]:
        """Return those of the tasks' processes whose graph has no failed task.

        All failures that broke these processes were restarted; the restarted tasks may have ended since. Compares the
        epoch. Reads the primary.
        """
        lives = {(task.process_id, task.epoch) for task in restarted}
        no_failures = [{"_id": process_id, "epoch": epoch, "failed": {}} for process_id, epoch in lives]
        return {document["_id"] for document in self._graphs.find({"$or": no_failures}, {"_id": True})}

    def reopen_processes(self, seen: Iterable[Process]) -> int:
        """Set broken processes to running, if they were not reopened or aborted since they were read. Return how many.

        Compares state, epoch and `reopened`. Acknowledged by a majority.
        """
        groups: dict[tuple[int | None, int], list[Process]] = defaultdict(list)
        for process in seen:
            groups[process.reopened, process.epoch].append(process)
        reopened = 0
        for (reopened_before, epoch), processes in groups.items():
            changed = self._processes.update_many(
                {
                    "_id": {"$in": [process.id for process in processes]},
                    "state": BROKEN,
                    "epoch": epoch,
                    "reopened": reopened_before,
                },
                [
                    {
                        "$set": {
                            "state": RUNNING,
                            "reopened": (reopened_before or 0) + 1,
                            "recoveryTime": IDLE,
                        }
                    },
                    {"$unset": ["error", "endedAt"]},
                ],
            )
            reopened += changed.modified_count
        return reopened

    def failed(self, process_ids: Iterable[str]) -> dict[str, list[str]]:
        """Return {process id: names of its failed tasks} by the graphs on the primary.

        Processes without any are absent.
        """
        query = {"_id": {"$in": list(process_ids)}, "failed": {"$ne": {}}}
        return {document["_id"]: list(document["failed"]) for document in self._graphs.find(query, {"failed": True})}
