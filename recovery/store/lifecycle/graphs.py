"""Queries and updates of the Graph records, as the life of a task needs them; `graph_recovery` has the others.

An apply is one update of a graph, guarded by the epoch and by every applied task being still open: run twice it changes
nothing the second time. The answer to an update of one graph is what became ready, worked out by the server: a graph of
10,000 tasks is never read for one of them. Updates of several graphs go in one command, whose answer tells only how
many changed. So these graphs are read once they are written: small ones as they are, which costs less than to have the
server work out what is ready. Others may have applied tasks in between: their effects are seen then, too.
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
"""Tasks of which it is asked one by one whether they are ready."""
SMALL = 64 * 1024
"""Bytes of a graph that is read as a whole, at most."""
_PARTS: Document = {
    **dict.fromkeys(("epoch", "notFinished", "links", "finished"), True),
    "size": {"$bsonSize": "$$ROOT"},
}


@dataclass(frozen=True, slots=True)
class Finished:
    """One finished task, as its graph has to learn it."""

    task: str
    children: Mapping[str, tuple[str, ...]]
    """{child: the siblings it waits for}."""
    dependents: Collection[str]
    """Tasks that wait for this one."""
    waits: tuple[str, ...] = ()
    """Children that this one's value promises: its dependents wait for them from now on."""

    @property
    def candidates(self) -> tuple[str, ...]:
        """Tasks that may have become ready by this."""
        return (*(child for child, deps in self.children.items() if not deps), *self.dependents)


@dataclass(frozen=True, slots=True)
class GraphView:
    """A graph as far as applied tasks are concerned."""

    epoch: int
    registered: bool
    """Whether the graph knows the first of them at all: its parent has been applied."""
    applied: bool
    """Whether it has all of them as finished."""
    ready: tuple[str, ...]
    complete: bool
    finished: int
    """How many tasks it has as finished."""
    size: int
    """The graph's size in bytes, which each update of it has to write."""


@translated
class Graphs(GraphRecovery):
    """The collection `graphs`."""

    def insert(self, graphs: Sequence[Graph]) -> list[str]:
        """Save the first graphs of processes; one that has a graph keeps it. Which had none."""
        there = there_already(self._current, [to_document(graph) for graph in graphs])
        return [graph.id for graph in graphs if graph.id not in there]

    def withdraw(self, process_id: str, epoch: int) -> bool:
        """Remove a graph to which nothing was applied since it was made."""
        made: Document = {"_id": process_id, "epoch": epoch, "version": 0}
        return self._current.delete_one(made).deleted_count == 1

    def get(self, process_id: str) -> Graph | None:
        """The graph of this process."""
        found = self._current.find_one({"_id": process_id})
        return from_document(Graph, found) if found else None

    def apply(self, ended: Mapping[str, tuple[int, Sequence[Finished]]]) -> dict[str, GraphView]:
        """Move tasks to finished, add their children and links, set a new idle deadline: one update of each graph.

        Restorable: DECISION_NOT_APPLIED applies again what a failover takes back.

        Args:
            ended: {process: (epoch, its finished tasks)}.

        Returns:
            {process: its graph, now}, of those that are applied by this. Of several it may have others, to which
            somebody applied these tasks before. Not among them is a graph that does not match (another epoch, or one
            of the tasks is not open: applied already, or not yet registered by its parent), and, of several, one that
            is large, can't be read, or can't be written. Ask `view` which.

        Raises:
            RecordTooLarge: The only graph among these outgrows its record.
        """
        if len(ended) > 1:
            return self._apply_many(ended)
        ((process_id, (epoch, finished)),) = ended.items()
        candidates = _candidates_of(finished)
        found = self._current.find_one_and_update(
            {"_id": process_id, **_all_open(epoch, finished)},
            _apply_stages(finished),
            projection=_projection(finished, candidates),
            return_document=True,
        )
        return {process_id: _decode_view(found, candidates)} if found else {}

    def _apply_many(self, ended: Mapping[str, tuple[int, Sequence[Finished]]]) -> dict[str, GraphView]:
        views = self._apply_last(ended)
        left = {process_id: what for process_id, what in ended.items() if process_id not in views}
        updates = [
            UpdateOne({"_id": process_id, **_all_open(epoch, finished)}, _apply_stages(finished))
            for process_id, (epoch, finished) in left.items()
        ]
        try:
            if updates:
                self._current.bulk_write(updates, ordered=False)
        except BulkWriteError as error:
            if not is_of_record(error):
                raise  # else by itself it is told why
        return views | self._applied(left)

    def _apply_last(self, ended: Mapping[str, tuple[int, Sequence[Finished]]]) -> dict[str, GraphView]:
        """The same of graphs that are changed alike, and whose tasks these are all: such as those of processes of one
        task. One update takes a third of the time of one for each, and what comes of it need not be read."""
        alike: dict[str, list[str]] = defaultdict(list)
        for process_id, what in ended.items():
            alike[repr(what)].append(process_id)
        views: dict[str, GraphView] = {}
        for ids in alike.values():
            epoch, finished = ended[ids[0]]
            if len(ids) == 1 or _candidates_of(finished) or not _are_all(finished):
                continue
            open_tasks = {"$size": {"$objectToArray": "$notFinished"}}
            guard = {**_all_open(epoch, finished), "finished": [], "$expr": {"$eq": [open_tasks, len(finished)]}}
            written = update_each(self._current, ids, guard, _apply_stages(finished))
            if written.whole and written.count == len(ids):
                over = GraphView(epoch, True, True, (), complete=True, finished=len(finished), size=0)
                views |= dict.fromkeys(ids, over)
        return views

    def _applied(self, ended: Mapping[str, tuple[int, Sequence[Finished]]]) -> dict[str, GraphView]:
        small = {"$expr": {"$lte": [{"$bsonSize": "$$ROOT"}, SMALL]}}
        views: dict[str, GraphView] = {}
        for found in find_keys(self._current, ended, _PARTS, small):
            epoch, finished = ended[found["_id"]]
            view = _view_of(found, finished)
            if view is not None and view.applied and view.epoch == epoch:
                views[found["_id"]] = view
        return views

    def view(self, process_id: str, finished: Sequence[Finished]) -> GraphView | None:
        """The graph as far as these tasks are concerned, without a change; None if there is no graph."""
        candidates = _candidates_of(finished)
        found = self._current.find_one({"_id": process_id}, _projection(finished, candidates))
        return _decode_view(found, candidates) if found else None

    def open_among(self, process_id: str, epoch: int, tasks: Sequence[str]) -> set[str]:
        """Those of these tasks that are open in a process's graph, if it is of this epoch."""
        names = {"$map": {"input": {"$objectToArray": "$notFinished"}, "in": "$$this.k"}}
        among = {"open": {"$setIntersection": [literal(list(tasks)), names]}}
        found = self._current.find_one({"_id": process_id, "epoch": epoch}, among)
        return set(found["open"]) if found else set()

    def finished(self, process_id: str) -> int:
        """How many tasks this graph has as finished; 0 if there is no graph."""
        among: Document = {"$cond": [{"$isArray": ["$finished"]}, "$finished", []]}
        found = self._current.find_one({"_id": process_id}, {"finished": {"$size": among}})
        return int(found["finished"]) if found else 0

    def fail(self, process_id: str, epoch: int, task: str, restarts: int | None = None) -> bool:
        """Note that a task ended with an error. It stays open, so what waits for it goes on waiting.

        False if it is not open, or was restarted since: `restarts` is that of the decision that failed.
        """
        life = {"epoch": epoch, f"restarted.{task}": restarts}
        changed = self._current.update_one(
            {"_id": process_id, f"notFinished.{task}": {"$exists": True}, **life},
            [{"$set": {f"failed.{task}": True, "touchedAt": "$$NOW", "recoveryTime": IDLE}}],
        )
        return changed.matched_count == 1

    def is_failed(self, process_id: str, task: str, restarts: int | None) -> bool:
        """Whether it is noted that a task ended with an error, and was not restarted since."""
        noted = {"_id": process_id, f"failed.{task}": True, f"restarted.{task}": restarts}
        return self._current.find_one(noted, {"_id": True}) is not None


def _all_open(epoch: int, finished: Sequence[Finished]) -> Document:
    """A graph of this epoch in which all of these tasks are open."""
    return {"epoch": epoch, **{f"notFinished.{one.task}": {"$exists": True} for one in finished}}


def _are_all(finished: Sequence[Finished]) -> bool:
    """Whether these are a start task and all that it led to."""
    return {one.task for one in finished} == {START_TASK, *(child for one in finished for child in one.children)}


def _apply_stages(finished: Sequence[Finished]) -> list[Document]:
    applied = {one.task for one in finished}
    opened = {child: "$$NOW" for one in finished for child in one.children}
    links: Document = {}
    removed = [f"{part}.{task}" for task in applied for part in ("notFinished", "links")]
    for one in finished:
        for child, deps in one.children.items():
            if open_deps := dict.fromkeys(deps, True):
                links[f"links.{child}"] = literal(open_deps)
        for dependent in one.dependents:
            if dependent not in applied:  # whose links go as a whole
                links |= {f"links.{dependent}.{wait}": True for wait in one.waits}
                removed.append(f"links.{dependent}.{one.task}")
    changes: Document = {
        **links,
        "finished": {"$concatArrays": ["$finished", [one.task for one in finished]]},
        **TOUCHED,
    }
    if opened:
        changes["notFinished"] = {"$mergeObjects": ["$notFinished", opened]}
    # Removed last, so that of a batch in which a child and its parent finish the child ends up closed.
    return [{"$set": changes}, {"$unset": removed}]


def _candidates_of(finished: Sequence[Finished]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(candidate for one in finished for candidate in one.candidates))


def _projection(finished: Sequence[Finished], candidates: Sequence[str]) -> Document:
    """A projection worked out by the server: what is ready of these, and flags, not the graph."""
    tasks = [one.task for one in finished]
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
    each = [{"$cond": [{"$eq": [{"$ifNull": [f"$links.{one}", {}]}, {}]}, [literal(one)], []]} for one in candidates]
    return {"$concatArrays": each} if each else literal([])


def _ready_of_many(candidates: Sequence[str]) -> Document:
    """By one pass through all links: the server takes time with the square of how many paths a projection names."""
    waiting = {"$filter": {"input": {"$objectToArray": "$links"}, "cond": {"$ne": ["$$this.v", {}]}}}
    return {"$setDifference": [literal(list(candidates)), {"$map": {"input": waiting, "in": "$$this.k"}}]}


def _decode_view(found: Document, candidates: Sequence[str]) -> GraphView:
    ready = frozenset(found["ready"])
    return GraphView(
        epoch=found["epoch"],
        registered=found["open"] or found["applied"],
        applied=found["applied"],
        ready=tuple(one for one in dict.fromkeys(candidates) if one in ready),
        complete=found["complete"],
        finished=found["finished"],
        size=found["size"],
    )


def _view_of(found: Document, finished: Sequence[Finished]) -> GraphView | None:
    """What `view` has the server work out, of a graph that was read; None of one that another program wrote."""
    links, over, left, epoch = (found.get(name) for name in ("links", "finished", "notFinished", "epoch"))
    if not (isinstance(links, dict) and isinstance(over, list) and isinstance(left, dict) and isinstance(epoch, int)):
        return None
    tasks = [one.task for one in finished]
    applied = set(tasks) <= {one for one in over if isinstance(one, str)}
    return GraphView(
        epoch=epoch,
        registered=applied or tasks[0] in left,
        applied=applied,
        ready=tuple(one for one in _candidates_of(finished) if _is_empty(links.get(one))),
        complete=not left,
        finished=len(over),
        size=found["size"],
    )


def _is_empty(links: Any) -> bool:
    return links is None or links == {}
