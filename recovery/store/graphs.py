"""Queries and updates of the Graph records.

An apply is one update, guarded by the epoch and by every applied task being still open: run twice it
changes nothing the second time. What became ready is worked out by the server from the updated graph and
comes back with the update, so a graph of 10,000 tasks is never read for one of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from pymongo.collection import Collection as MongoCollection

from recovery.records import Graph, from_document, to_document
from recovery.store.client import Document
from recovery.store.expressions import OVERDUE, RESTORABLE, after, jittered, literal
from recovery.store.tasks import insert_missing

IDLE: Document = {"$add": ["$$NOW", {"$multiply": ["$idleTimeout", 1000]}]}

_TOUCHED: Document = {"touchedAt": "$$NOW", "recoveryTime": IDLE, "version": {"$add": ["$version", 1]}}


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
    """A graph as far as an applied task is concerned."""

    epoch: int
    registered: bool
    """Whether the graph knows the task at all: its parent has been applied."""
    applied: bool
    ready: tuple[str, ...]
    complete: bool
    size: int
    """The graph's size in bytes, which each update of it has to write."""


class Graphs:
    """The collection `graphs`."""

    def __init__(self, collection: MongoCollection[Document]) -> None:
        self._collection = collection.with_options(write_concern=RESTORABLE)

    def insert(self, graph: Graph) -> int:
        """Save a process's first graph, unless it has one: 1 or 0."""
        return insert_missing(self._collection, [to_document(graph)])

    def get(self, process_id: str) -> Graph | None:
        """The graph of this process."""
        found = self._collection.find_one({"_id": process_id})
        return from_document(Graph, found) if found else None

    def complete(self, process_ids: Sequence[str]) -> list[str]:
        """Those of these processes of whose graph nothing is open."""
        found = self._collection.find({"_id": {"$in": list(process_ids)}, "notFinished": {}}, {"_id": True})
        return [document["_id"] for document in found]

    def absent(self, process_ids: Iterable[str]) -> set[str]:
        """Those of these processes that have no graph."""
        ids = set(process_ids)
        return ids - {document["_id"] for document in self._collection.find({"_id": {"$in": list(ids)}}, {"_id": True})}

    def get_many(self, process_ids: Iterable[str]) -> dict[str, Graph]:
        """The graphs that are there, by process."""
        found = self._collection.find({"_id": {"$in": list(process_ids)}})
        return {document["_id"]: from_document(Graph, document) for document in found}

    def apply(self, process_id: str, epoch: int, finished: Sequence[Finished]) -> GraphView | None:
        """Move tasks to finished, add their children and links, set a new idle deadline: one update.

        None if the guard does not match: another epoch, or one of the tasks is not open (applied already,
        or not yet registered by its parent). Ask `view` which.
        """
        guard: Document = {"_id": process_id, "epoch": epoch}
        guard |= {f"notFinished.{one.task}": {"$exists": True} for one in finished}
        candidates = tuple(dict.fromkeys(c for one in finished for c in one.candidates))
        found = self._collection.find_one_and_update(
            guard,
            _apply_stages(finished),
            projection=_view(finished[0].task, candidates),
            return_document=True,
        )
        return _decode_view(found, candidates) if found else None

    def view(self, process_id: str, finished: Finished) -> GraphView | None:
        """The graph as far as this task is concerned, without a change; None if there is no graph."""
        found = self._collection.find_one({"_id": process_id}, _view(finished.task, finished.candidates))
        return _decode_view(found, finished.candidates) if found else None

    def fail(self, process_id: str, epoch: int, task: str, restarts: int | None = None) -> bool:
        """Note that a task ended with an error. It stays open, so what waits for it goes on waiting.

        False if it is not open, or was restarted since: `restarts` is that of the decision that failed.
        """
        life = {"epoch": epoch, f"restarted.{task}": restarts}
        changed = self._collection.update_one(
            {"_id": process_id, f"notFinished.{task}": {"$exists": True}, **life},
            [{"$set": {f"failed.{task}": True, "touchedAt": "$$NOW", "recoveryTime": IDLE}}],
        )
        return changed.matched_count == 1

    def reopen(self, seen: Graph, task: str, dependents: Iterable[str]) -> bool:
        """Put a finished task back to not finished, and have those of its dependents that are open wait for it again;
        False if the graph is not as it was seen."""
        waiting = {f"links.{one}.{task}": True for one in dependents if one in seen.not_finished}
        finished = {"$filter": {"input": "$finished", "cond": {"$ne": ["$$this", task]}}}
        changed = self._collection.update_one(
            {"_id": seen.id, "epoch": seen.epoch, "version": seen.version, "finished": task},
            [{"$set": {**waiting, f"notFinished.{task}": "$$NOW", "finished": finished, **_TOUCHED}}],
        )
        return changed.matched_count == 1

    def drop_links(self, seen: Graph, task: str) -> bool:
        """Drop those links of a task that lead to nothing open; False if the graph is not as it was seen."""
        dead = [dep for dep in seen.links.get(task, ()) if dep not in seen.not_finished]
        if not dead:
            return False
        changed = self._collection.update_one(
            {"_id": seen.id, "epoch": seen.epoch, "version": seen.version},
            [{"$set": _TOUCHED}, {"$unset": [f"links.{task}.{dep}" for dep in dead]}],
        )
        return changed.matched_count == 1

    def stamp(self, process_ids: Sequence[str]) -> int:
        """Give a deadline, now, to graphs that have something open and lack one."""
        lacking: Document = {"recoveryTime": None, "notFinished": {"$ne": {}}, "failed": {}}
        changed = self._collection.update_many(
            {"_id": {"$in": list(process_ids)}, **lacking}, [{"$set": {"recoveryTime": "$$NOW"}}]
        )
        return changed.modified_count

    def is_failed(self, process_id: str, task: str, restarts: int | None) -> bool:
        """Whether it is noted that a task ended with an error, and was not restarted since."""
        noted = {"_id": process_id, f"failed.{task}": True, f"restarted.{task}": restarts}
        return self._collection.find_one(noted, {"_id": True}) is not None

    def touch(self, process_ids: Iterable[str]) -> None:
        """Set new idle deadlines: something is going on in these processes."""
        self._collection.update_many(
            {"_id": {"$in": list(process_ids)}, "recoveryTime": {"$exists": True}},
            [{"$set": {"recoveryTime": IDLE}}],
        )

    def rest(self, process_ids: Sequence[str]) -> int:
        """Take the deadline off complete graphs, and off those that failed. Their processes have ended."""
        changed = self._collection.update_many(
            {"_id": {"$in": list(process_ids)}, "$or": [{"notFinished": {}}, {"failed": {"$ne": {}}}]},
            {"$unset": {"recoveryTime": ""}},
        )
        return changed.modified_count

    def overdue(self, limit: int) -> list[str]:
        """Processes whose graph's deadline is past, the longest first. Index `deadline`."""
        found = self._collection.find(OVERDUE, {"_id": True}).sort("recoveryTime", 1).limit(limit)
        return [document["_id"] for document in found]

    def put_off(self, process_id: str, seconds: float) -> int:
        """Look at a graph that can't be read, or whose process's records can't, after so many seconds."""
        changed = self._collection.update_one(
            {"_id": process_id, "$or": [OVERDUE, {"recoveryTime": None}]},
            [{"$set": {"recoveryTime": after(seconds)}}],
            bypass_document_validation=True,
        )
        return changed.modified_count

    def look_later(self, process_ids: Sequence[str]) -> int:
        """Move the deadlines of graphs found healthy: as far off as they are idle, so looks grow rare."""
        idle_for = {"$subtract": ["$$NOW", {"$ifNull": ["$touchedAt", "$$NOW"]}]}
        changed = self._collection.update_many(
            {"_id": {"$in": list(process_ids)}, **OVERDUE},
            [
                {
                    "$set": {
                        "recoveryTime": {
                            "$add": ["$$NOW", jittered({"$max": [{"$multiply": ["$idleTimeout", 1000]}, idle_for]})]
                        }
                    }
                }
            ],
        )
        return changed.modified_count


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
        **_TOUCHED,
    }
    if opened:
        changes["notFinished"] = {"$mergeObjects": ["$notFinished", opened]}
    # Removed last, so that of a batch in which a child and its parent finish the child ends up closed.
    return [{"$set": changes}, {"$unset": removed}]


def _view(task: str, candidates: Sequence[str]) -> Document:
    """A projection worked out by the server: flags, not the graph. Candidates are given by their place."""
    flags: Document = {
        f"c{place}": {"$eq": [{"$ifNull": [f"$links.{candidate}", {}]}, {}]}
        for place, candidate in enumerate(candidates)
    }
    return {
        "_id": False,
        "epoch": True,
        "open": {"$ne": [{"$type": f"$notFinished.{task}"}, "missing"]},
        "applied": {"$in": [task, "$finished"]},
        "complete": {"$eq": ["$notFinished", {}]},
        "size": {"$bsonSize": "$$ROOT"},
        "ready": flags or literal({}),
    }


def _decode_view(found: Document, candidates: Sequence[str]) -> GraphView:
    flags = found["ready"]
    return GraphView(
        epoch=found["epoch"],
        registered=found["open"] or found["applied"],
        applied=found["applied"],
        ready=tuple(c for place, c in enumerate(candidates) if flags[f"c{place}"]),
        complete=found["complete"],
        size=found["size"],
    )
