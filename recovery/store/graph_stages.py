"""What an apply changes in a graph, and what it tells of it: documents for `Graphs`, made and decoded.

What became ready is worked out by the server from the updated graph, so a graph of 10,000 tasks is never read for one
of them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from recovery.store.client import Document
from recovery.store.expressions import idle_time, literal, plus_one

IDLE: Document = {"$add": ["$$NOW", idle_time("$idleTimeout")]}
TOUCHED: Document = {"touchedAt": "$$NOW", "recoveryTime": IDLE, "version": plus_one("version")}


FEW = 64
"""Tasks of which it is asked one by one whether they are ready."""


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
    finished: int
    """How many tasks it has as finished."""
    size: int
    """The graph's size in bytes, which each update of it has to write."""


def apply_stages(finished: Sequence[Finished]) -> list[Document]:
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


def projection(task: str, candidates: Sequence[str]) -> Document:
    """A projection worked out by the server: what is ready of these, and flags, not the graph."""
    return {
        "_id": False,
        "epoch": True,
        "open": {"$ne": [{"$type": f"$notFinished.{task}"}, "missing"]},
        "applied": {"$in": [task, "$finished"]},
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


def decode_view(found: Document, candidates: Sequence[str]) -> GraphView:
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
