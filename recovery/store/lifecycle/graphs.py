"""Queries and updates of the Graph records for a task's normal life; `graph_recovery` has the others.

An apply is one update of a graph. Its filter requires the epoch and that every applied task is still open, so a second
apply of the same tasks changes nothing. Of a single graph, the update returns the tasks that became ready, worked out
by the server: a graph of 10,000 tasks is never read for one of them. Updates of several graphs go in one bulk write,
whose reply contains only a count, so these graphs are read afterwards. Small graphs are then read whole, which costs
less than letting the server work out what is ready. What other workers applied in between is included in the result.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pymongo import UpdateOne
from pymongo.errors import BulkWriteError

from recovery.records import Graph, from_document, to_document
from recovery.records.ids import START_TASK
from recovery.store.client import Document
from recovery.store.driver_errors import translated
from recovery.store.expressions import literal
from recovery.store.lifecycle.graph_recovery import IDLE, TOUCHED, GraphRecovery
from recovery.store.lifecycle.tasks import there_already
from recovery.store.splitting import find_keys, is_of_record, update_each

FEW = 64
"""Maximum number of candidate tasks that the server checks one by one for being ready."""
SMALL = 64 * 1024
"""Maximum bytes of a graph that is read whole."""
_PARTS: Document = {
    **dict.fromkeys(("epoch", "notFinished", "links", "finished"), True),
    "size": {"$bsonSize": "$$ROOT"},
}
"""Projection of the parts of a graph that `_view_of` needs."""


@dataclass(frozen=True, slots=True)
class Finished:
    """A finished task, with what its graph has to learn."""

    task: str
    children: Mapping[str, tuple[str, ...]]
    """{child: names of the siblings that it waits for}."""
    dependents: Collection[str]
    """Names of the tasks that wait for this task."""
    waits: tuple[str, ...] = ()
    """Children that this task's value promises: its dependents wait for them from now on."""

    @property
    def candidates(self) -> tuple[str, ...]:
        """Names of the tasks that may have become ready because this task finished."""
        return (*(child for child, deps in self.children.items() if not deps), *self.dependents)


@dataclass(frozen=True, slots=True)
class GraphView:
    """The state of a graph after an attempt to apply ended tasks to it.

    It says whether the graph knows the tasks, whether they are applied, and which tasks are now ready.
    """

    epoch: int
    registered: bool
    """Whether the graph knows the first of these tasks, because its parent has been applied."""
    applied: bool
    """Whether all of these tasks are finished in the graph."""
    ready: tuple[str, ...]
    """Names of the candidate tasks that wait for nothing."""
    complete: bool
    """Whether no task is open."""
    finished: int
    """Number of finished tasks in the graph."""
    size: int
    """Bytes of the graph, which every update writes again."""


@translated
class Graphs(GraphRecovery):
    """The collection `graphs`."""

    def insert(self, graphs: Sequence[Graph]) -> list[str]:
        """Save the first graphs of processes. Return the ids of the processes that had none. Existing graphs are not
        changed.
        """
        existing_ids = there_already(self._current, [to_document(graph) for graph in graphs])
        return [graph.id for graph in graphs if graph.id not in existing_ids]

    def withdraw(self, process_id: str, epoch: int) -> bool:
        """Remove the graph of a start to which nothing was applied. Return whether it was removed. Compares epoch and
        version 0.
        """
        untouched: Document = {"_id": process_id, "epoch": epoch, "version": 0}
        return self._current.delete_one(untouched).deleted_count == 1

    def get(self, process_id: str) -> Graph | None:
        """Return the graph of this process, or None. Raises DamagedRecord."""
        document = self._current.find_one({"_id": process_id})
        return from_document(Graph, document) if document else None

    def apply(self, ended: Mapping[str, tuple[int, Sequence[Finished]]]) -> dict[str, GraphView]:
        """Move tasks from open to finished, add their children and links, and set a new idle deadline: one update for
        each graph.

        Written to the primary alone: after a failover DECISION_NOT_APPLIED applies the tasks again.

        Args:
            ended: {process: (epoch, its finished tasks)}.

        Returns:
            {process: its graph after the update}, of the graphs that this call changed. If there are several, graphs to
            which somebody else applied these tasks before may be included. A graph is missing if it does not match: its
            epoch differs, or a task is not open because it is applied already, or because its parent is not applied
            yet. If there are several, a graph that is large, can't be read or can't be written is missing as well.
            `view` tells which of these is the reason.

        Raises:
            RecordTooLarge: There is only one graph, and it would exceed MongoDB's limit.
        """
        if len(ended) > 1:
            return self._apply_many(ended)
        ((process_id, (epoch, finished)),) = ended.items()
        candidates = _candidates_of(finished)
        document = self._current.find_one_and_update(
            {"_id": process_id, **_all_open(epoch, finished)},
            _apply_stages(finished),
            projection=_projection(finished, candidates),
            return_document=True,
        )
        return {process_id: _decode_view(document, candidates)} if document else {}

    def _apply_many(self, ended: Mapping[str, tuple[int, Sequence[Finished]]]) -> dict[str, GraphView]:
        views = self._apply_last(ended)
        remaining = {process_id: change for process_id, change in ended.items() if process_id not in views}
        updates = [
            UpdateOne({"_id": process_id, **_all_open(epoch, finished)}, _apply_stages(finished))
            for process_id, (epoch, finished) in remaining.items()
        ]
        try:
            if updates:
                self._current.bulk_write(updates, ordered=False)
        except BulkWriteError as error:
            if not is_of_record(error):
                raise  # otherwise the caller applies this graph by itself, and gets the reason
        return views | self._applied(remaining)

    def _apply_last(self, ended: Mapping[str, tuple[int, Sequence[Finished]]]) -> dict[str, GraphView]:
        """Apply tasks to graphs that change in the same way and become complete, such as those of processes with one
        task.

        One update for many such graphs takes a third of the time, and their new contents are known without reading
        them.
        """
        groups: dict[str, list[str]] = defaultdict(list)
        for process_id, change in ended.items():
            groups[repr(change)].append(process_id)
        views: dict[str, GraphView] = {}
        for ids in groups.values():
            epoch, finished = ended[ids[0]]
            if len(ids) == 1 or _candidates_of(finished) or not _are_all(finished):
                continue
            open_tasks = {"$size": {"$objectToArray": "$notFinished"}}
            guard = {**_all_open(epoch, finished), "finished": [], "$expr": {"$eq": [open_tasks, len(finished)]}}
            written = update_each(self._current, ids, guard, _apply_stages(finished))
            if written.whole and written.count == len(ids):
                view = GraphView(epoch, True, True, (), complete=True, finished=len(finished), size=0)
                views |= dict.fromkeys(ids, view)
        return views

    def _applied(self, ended: Mapping[str, tuple[int, Sequence[Finished]]]) -> dict[str, GraphView]:
        """Return {process: its graph}, of the small graphs in which all of these tasks are finished in this epoch."""
        is_small = {"$expr": {"$lte": [{"$bsonSize": "$$ROOT"}, SMALL]}}
        views: dict[str, GraphView] = {}
        for document in find_keys(self._current, ended, _PARTS, is_small):
            epoch, finished = ended[document["_id"]]
            view = _view_of(document, finished)
            if view is not None and view.applied and view.epoch == epoch:
                views[document["_id"]] = view
        return views

    def view(self, process_id: str, finished: Sequence[Finished]) -> GraphView | None:
        """Return what the graph knows about these tasks, without changing it. None if there is no graph."""
        candidates = _candidates_of(finished)
        document = self._current.find_one({"_id": process_id}, _projection(finished, candidates))
        return _decode_view(document, candidates) if document else None

    def open_among(self, process_id: str, epoch: int, tasks: Sequence[str]) -> set[str]:
        """Return the names of those of these tasks that are open. Empty if the graph has another epoch or does not
        exist.
        """
        names = {"$map": {"input": {"$objectToArray": "$notFinished"}, "in": "$$this.k"}}
        open_tasks = {"open": {"$setIntersection": [literal(list(tasks)), names]}}
        document = self._current.find_one({"_id": process_id, "epoch": epoch}, open_tasks)
        return set(document["open"]) if document else set()

    def finished(self, process_id: str) -> int:
        """Return the number of finished tasks in this graph; 0 if there is no graph."""
        finished_tasks: Document = {"$cond": [{"$isArray": ["$finished"]}, "$finished", []]}
        document = self._current.find_one({"_id": process_id}, {"finished": {"$size": finished_tasks}})
        return int(document["finished"]) if document else 0

    def fail(self, process_id: str, epoch: int, task: str, restarts: int | None = None) -> bool:
        """Mark an open task as failed, and set a new idle deadline. The task stays open, so its dependents keep
        waiting.

        Written to the primary alone.

        Args:
            process_id: The process.
            epoch: The epoch that the graph must have.
            task: Name of the task.
            restarts: The restarts of the decision that failed. The graph must have the same number for this task.

        Returns:
            False if the task is not open, was restarted since, or the epoch differs.
        """
        life = {"epoch": epoch, f"restarted.{task}": restarts}
        changed = self._current.update_one(
            {"_id": process_id, f"notFinished.{task}": {"$exists": True}, **life},
            [{"$set": {f"failed.{task}": True, "touchedAt": "$$NOW", "recoveryTime": IDLE}}],
        )
        return changed.matched_count == 1

    def is_failed(self, process_id: str, task: str, restarts: int | None) -> bool:
        """Return whether the graph has this task as failed, with the same number of restarts."""
        marked = {"_id": process_id, f"failed.{task}": True, f"restarted.{task}": restarts}
        return self._current.find_one(marked, {"_id": True}) is not None


def _all_open(epoch: int, finished: Sequence[Finished]) -> Document:
    """Return a filter for a graph of this epoch in which all of these tasks are open."""
    return {"epoch": epoch, **{f"notFinished.{ended.task}": {"$exists": True} for ended in finished}}


def _are_all(finished: Sequence[Finished]) -> bool:
    """Return whether these are a start task and all tasks that come from it."""
    return {ended.task for ended in finished} == {
        START_TASK,
        *(child for ended in finished for child in ended.children),
    }


def _apply_stages(finished: Sequence[Finished]) -> list[Document]:
    """Return the stages of the update that applies these tasks."""
    applied = {ended.task for ended in finished}
    opened = {child: "$$NOW" for ended in finished for child in ended.children}
    links: Document = {}
    removed = [f"{part}.{task}" for task in applied for part in ("notFinished", "links")]
    for ended in finished:
        for child, deps in ended.children.items():
            if open_deps := dict.fromkeys(deps, True):
                links[f"links.{child}"] = literal(open_deps)
        for dependent in ended.dependents:
            if dependent not in applied:  # the links of an applied task are removed as a whole
                links |= {f"links.{dependent}.{promised}": True for promised in ended.waits}
                removed.append(f"links.{dependent}.{ended.task}")
    changes: Document = {
        **links,
        "finished": {"$concatArrays": ["$finished", [ended.task for ended in finished]]},
        **TOUCHED,
    }
    if opened:
        changes["notFinished"] = {"$mergeObjects": ["$notFinished", opened]}
    # Removed after the additions: if a batch contains a task and its parent, the task must end up closed.
    return [{"$set": changes}, {"$unset": removed}]


def _candidates_of(finished: Sequence[Finished]) -> tuple[str, ...]:
    """Return the names of the tasks that may have become ready because these tasks finished."""
    return tuple(dict.fromkeys(candidate for ended in finished for candidate in ended.candidates))


def _projection(finished: Sequence[Finished], candidates: Sequence[str]) -> Document:
    """Return a projection that the server works out: which candidates are ready, and some flags, without the graph
    itself.
    """
    tasks = [ended.task for ended in finished]
    return {
        "_id": False,
        "epoch": True,
        "open": {"$ne": [{"$type": f"$notFinished.{tasks[0]}"}, "missing"]},
        "applied": {"$setIsSubset": [literal(tasks), "$finished"]},
        "complete": {"$eq": ["$notFinished", {}]},
        "finished": {"$size": "$finished"},
        "size": {"$bsonSize": "$$ROOT"},
        "ready": _ready_of_few(candidates) if len(candidates) <= FEW else _ready_of_many(candidates),
    }


def _ready_of_few(candidates: Sequence[str]) -> Document:
    """Return an expression for those of a few candidates that have no links."""
    ready_lists = [
        {"$cond": [{"$eq": [{"$ifNull": [f"$links.{candidate}", {}]}, {}]}, [literal(candidate)], []]}
        for candidate in candidates
    ]
    return {"$concatArrays": ready_lists} if ready_lists else literal([])


def _ready_of_many(candidates: Sequence[str]) -> Document:
    """Return an expression for those of many candidates that have no links, by one pass over all links.

    The server's time grows with the square of the number of paths that a projection names.
    """
    waiting = {"$filter": {"input": {"$objectToArray": "$links"}, "cond": {"$ne": ["$$this.v", {}]}}}
    return {"$setDifference": [literal(list(candidates)), {"$map": {"input": waiting, "in": "$$this.k"}}]}


def _decode_view(document: Document, candidates: Sequence[str]) -> GraphView:
    """Return the view of a document that was read with `_projection`."""
    ready = frozenset(document["ready"])
    return GraphView(
        epoch=document["epoch"],
        registered=document["open"] or document["applied"],
        applied=document["applied"],
        ready=tuple(candidate for candidate in dict.fromkeys(candidates) if candidate in ready),
        complete=document["complete"],
        finished=document["finished"],
        size=document["size"],
    )


def _view_of(document: Document, finished: Sequence[Finished]) -> GraphView | None:
    """Return the view of a graph that was read with `_PARTS`; None if another program damaged the graph."""
    links, finished_tasks, open_tasks, epoch = (
        document.get(name) for name in ("links", "finished", "notFinished", "epoch")
    )
    if not (
        isinstance(links, dict)
        and isinstance(finished_tasks, list)
        and isinstance(open_tasks, dict)
        and isinstance(epoch, int)
    ):
        return None
    tasks = [ended.task for ended in finished]
    applied = set(tasks) <= {name for name in finished_tasks if isinstance(name, str)}
    return GraphView(
        epoch=epoch,
        registered=applied or tasks[0] in open_tasks,
        applied=applied,
        ready=tuple(name for name in _candidates_of(finished) if _is_empty(links.get(name))),
        complete=not open_tasks,
        finished=len(finished_tasks),
        size=document["size"],
    )


def _is_empty(links: Any) -> bool:
    return links is None or links == {}
