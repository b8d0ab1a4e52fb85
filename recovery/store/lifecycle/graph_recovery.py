"""Queries and updates of the Graph records for scanners, repairs and operators; `graphs` has those of a task's normal
life.

Each change of tasks and links compares the state of the graph that it was decided on. Updates are written to the
primary alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pymongo.collection import Collection as MongoCollection

from recovery.errors import DamagedRecord
from recovery.records import Graph, RepairNote, from_document, to_document
from recovery.store.client import Document
from recovery.store.concerns import committed, current
from recovery.store.driver_errors import translated
from recovery.store.expressions import OVERDUE, after, age, idle_time, later_by, literal, plus_one
from recovery.store.record_reading import readable
from recovery.store.splitting import find_keys, stamp_each, update_each

IDLE: Document = {"$add": ["$$NOW", idle_time("$idleTimeout")]}
"""The deadline of a graph that was just changed: its idle timeout from now."""
TOUCHED: Document = {"touchedAt": "$$NOW", "recoveryTime": IDLE, "version": plus_one("version")}
"""The fields that every change of open tasks and links sets."""


@dataclass(frozen=True, slots=True)
class Ends:
    """What a graph knows about the ends of some tasks."""

    epoch: int
    """The graph's epoch."""
    ended: frozenset[str]
    """Names of those of the tasks that are finished or failed in the graph."""
    restarted: Mapping[str, int]
    """{task: how often it was restarted}."""

    def is_over(self, task: str, epoch: int, restarts: int | None) -> bool:
        """Return whether the graph needs no more news of a task's end in this epoch and life.

        True if the graph knows this end, or if the process's epoch or the task's restarts are later.
        """
        return self.epoch > epoch or task in self.ended or self.restarted.get(task, 0) > (restarts or 0)


@translated
class GraphRecovery:
    """The collection `graphs`, apart from applies."""

    def __init__(self, collection: MongoCollection[Document]) -> None:
        self._current, self._committed = current(collection), committed(collection)

    def sizes(self, process_ids: Sequence[str]) -> dict[str, int]:
        """Return {process: bytes of its graph}, of those that have a graph. A graph takes about 50 bytes for each
        task.
        """
        documents = find_keys(self._current, process_ids, {"size": {"$bsonSize": "$$ROOT"}})
        return {document["_id"]: document["size"] for document in documents}

    def versions(self, process_ids: Sequence[str]) -> dict[str, Any]:
        """Return {process: version of its graph}, of those that have a graph."""
        documents = find_keys(self._current, process_ids, {"version": True})
        return {document["_id"]: document.get("version") for document in documents}

    def complete(self, process_ids: Sequence[str]) -> list[str]:
        """Return the ids of those of these processes whose graph has no open task."""
        documents = find_keys(self._current, process_ids, {"_id": True}, {"notFinished": {}})
        return [document["_id"] for document in documents]

    def absent(self, process_ids: Iterable[str]) -> set[str]:
        """Return the ids of those of these processes that have no graph."""
        ids = set(process_ids)
        return ids - {document["_id"] for document in find_keys(self._current, ids, {"_id": True})}

    def get_many(self, process_ids: Iterable[str]) -> dict[str, Graph]:
        """Return {process: graph} as the primary has them. Damaged graphs are logged and left out.

        All graphs must fit into memory at once; see `Store.portions`.
        """
        return {graph.id: graph for graph in readable(Graph, find_keys(self._current, process_ids, {}))}

    def committed_ends(self, tasks: Mapping[str, Collection[str]]) -> dict[str, Ends]:
        """Return {process: what its graph knows about the ends of these tasks}, as a majority has it.

        Processes without a readable graph are left out.

        Args:
            tasks: {process: names of its tasks}.
        """
        names = sorted({task for of_process in tasks.values() for task in of_process})
        finished: Document = {"$cond": [{"$isArray": ["$finished"]}, "$finished", []]}
        known_finished: Document = {"$setIntersection": [finished, literal(names)]}
        unread: Document = {"notFinished": literal({}), "links": literal({}), "version": literal(0)}
        fields: Document = {"epoch": True, "failed": True, "restarted": True, "finished": known_finished, **unread}
        documents = find_keys(self._committed, tasks, fields)
        return {
            graph.id: Ends(graph.epoch, frozenset((*graph.finished, *graph.failed)), graph.restarted)
            for graph in readable(Graph, documents)
        }

    def fail_seen(self, seen: Graph, task: str) -> bool:
        """Mark a task, open or not, as failed: its process can't go on because of it.

        Compares the graph's epoch, version and failed tasks with `seen`. From then on the graph may lose its deadline,
        which a graph with open tasks and no failure must keep.

        Returns:
            False if the graph has changed since, or another task has failed.
        """
        fields: Document = {f"failed.{task}": True, "touchedAt": "$$NOW", "recoveryTime": IDLE}
        return self._change_seen(seen, [{"$set": fields}], {"failed": seen.failed})

    def reopen(self, seen: Graph, tasks: Mapping[str, Iterable[str]]) -> bool:
        """Move finished tasks back to open. Their open dependents wait for them again.

        Compares the graph's epoch and version with `seen`.

        Args:
            seen: The graph as it was read.
            tasks: {task: names of its dependents}.

        Returns:
            False if the graph has changed since.
        """
        waiting = {
            f"links.{dependent}.{task}": True
            for task, dependents in tasks.items()
            for dependent in dependents
            if dependent in seen.not_finished or dependent in tasks
        }
        opened = {f"notFinished.{task}": "$$NOW" for task in tasks}
        finished = literal([task for task in seen.finished if task not in tasks])
        return self._change_seen(seen, [{"$set": {**waiting, **opened, "finished": finished, **TOUCHED}}])

    def remake(self, seen: Graph, new: Graph) -> bool:
        """Replace the contents of a graph by one that was rebuilt from the decisions.

        Compares the graph's epoch and version with `seen`. Returns False if the graph has changed since.
        """
        names = ("notFinished", "links", "finished", "failed", "restarted")
        document = to_document(new)
        fields = {name: literal(document.get(name, {})) for name in names}
        return self._change_seen(seen, [{"$set": {**fields, **TOUCHED}}])

    def relink(self, seen: Graph, waits: Mapping[str, Iterable[str]]) -> bool:
        """Replace dead links of tasks, which lead to tasks that are not open, by links to other tasks.

        Compares the graph's epoch and version with `seen`.

        Args:
            seen: The graph as it was read.
            waits: {task: names of the tasks that it waits for instead}.

        Returns:
            False if there is no dead link, or if the graph has changed since.
        """
        dead = [
            f"links.{task}.{dep}" for task in waits for dep in seen.links.get(task, ()) if dep not in seen.not_finished
        ]
        links = {f"links.{task}.{other}": True for task, others in waits.items() for other in others}
        return bool(dead) and self._change_seen(seen, [{"$set": {**links, **TOUCHED}}, {"$unset": dead}])

    def _change_seen(self, seen: Graph, stages: Sequence[Document], guard: Mapping[str, object] | None = None) -> bool:
        """Update a graph if its epoch and version are as in `seen` and it matches `guard`. Return whether it did.

        Every change of open tasks or links sets a new version (TOUCHED). Noting a failure does not.
        """
        unchanged = {"_id": seen.id, "epoch": seen.epoch, "version": seen.version, **(guard or {})}
        return self._current.update_one(unchanged, stages).matched_count == 1

    def stamp(self, process_ids: Sequence[str]) -> int:
        """Set the deadline of graphs that have open tasks and no deadline to now. Return how many were changed."""
        lacking: Document = {"recoveryTime": None, "notFinished": {"$ne": {}}, "failed": {}}
        return stamp_each(self._current, process_ids, lacking, "$$NOW")

    def last_repair(self, process_id: str) -> RepairNote | None:
        """Return the note of a process's last repair, as a majority has it. None if there was none, or if the note is
        damaged.
        """
        document = self._committed.find_one({"_id": process_id}, {"repaired": True})
        try:
            return from_document(RepairNote, document["repaired"]) if document and document.get("repaired") else None
        except (DamagedRecord, AttributeError):
            return None

    def note_repair(self, process_ids: Iterable[str], repair: RepairNote, *, touch: bool) -> None:
        """Record the last repair of these processes.

        Args:
            process_ids: The processes.
            repair: The note; its time is set here.
            touch: Whether to set a new idle deadline on graphs that have a deadline.
        """
        note = {"$mergeObjects": [literal(to_document(repair)), {"at": "$$NOW"}]}
        fields: Document = {"repaired": note}
        if touch:
            has_no_deadline: Document = {"$eq": [{"$type": "$recoveryTime"}, "missing"]}
            fields["recoveryTime"] = {"$cond": [has_no_deadline, "$$REMOVE", IDLE]}
        update_each(self._current, list(process_ids), {}, [{"$set": fields}])

    def advance_deadline(self, process_id: str, seconds: float) -> None:
        """Move the deadline of a graph to at most this many seconds from now, because something in it needs attention.

        A graph without a deadline is not changed.
        """
        self._current.update_one(
            {"_id": process_id, "recoveryTime": {"$exists": True}},
            [{"$set": {"recoveryTime": {"$min": ["$recoveryTime", after(seconds)]}}}],
        )

    def look_soon(self, process_id: str, seconds: float) -> None:
        """Advance a deadline as `advance_deadline` does, and move one that is past to this many seconds from now.

        For a graph that was just looked at and needs another look. Bypasses the validators, because the graph may be
        damaged.
        """
        past, soon = {"$lte": ["$recoveryTime", "$$NOW"]}, after(seconds)
        sooner: Document = {"$cond": [past, soon, {"$min": ["$recoveryTime", soon]}]}
        live: Document = {"_id": process_id, "recoveryTime": {"$exists": True}}
        self._current.update_one(live, [{"$set": {"recoveryTime": sooner}}], bypass_document_validation=True)

    def clear_deadlines(self, process_ids: Sequence[str], *, overdue: bool = False) -> int:
        """Clear the deadlines of complete graphs and of failed graphs. Return how many were cleared.

        Callers must make sure that the processes have ended for good; see `Store.clear_graph_deadlines`.

        Args:
            process_ids: The processes.
            overdue: Only deadlines that are still past. A deadline in the future means that somebody, such as an abort,
                has begun to work on the graph since it was looked at.
        """
        guard: Document = {"$and": [OVERDUE]} if overdue else {}
        ended_graphs: Document = {"$or": [{"notFinished": {}}, {"failed": {"$ne": {}}}], **guard}
        return update_each(self._current, process_ids, ended_graphs, {"$unset": {"recoveryTime": ""}}).count

    def overdue(self, limit: int) -> list[str]:
        """Return ids of processes whose graphs are overdue, the longest overdue first. Index `deadline`."""
        documents = self._current.find(OVERDUE, {"_id": True}).sort("recoveryTime", 1).limit(limit)
        return [document["_id"] for document in documents]

    def postpone(self, process_id: str, seconds: float) -> int:
        """Move the deadline of a graph that is overdue or has none to this many seconds from now. Return how many were
        changed (0 or 1).

        For a graph that can't be read, or whose process has other records that can't be read. Bypasses the validators.
        """
        changed = self._current.update_one(
            {"_id": process_id, "$or": [OVERDUE, {"recoveryTime": None}]},
            [{"$set": {"recoveryTime": after(seconds)}}],
            bypass_document_validation=True,
        )
        return changed.modified_count

    def postpone_idle(self, process_ids: Sequence[str]) -> int:
        """Move the deadlines of healthy overdue graphs into the future. Return how many were changed.

        The delay is the time since the graph's last change, and at least its idle timeout, so checks become less
        frequent.
        """
        deadline = later_by({"$max": [idle_time("$idleTimeout"), age("$touchedAt")]})
        return update_each(self._current, process_ids, OVERDUE, [{"$set": {"recoveryTime": deadline}}]).count
