"""Queries and updates of the Graph records for scanners, repairs and operators: what is overdue, gone, or to be
changed beside an apply. Each change compares what it was decided on."""

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
TOUCHED: Document = {"touchedAt": "$$NOW", "recoveryTime": IDLE, "version": plus_one("version")}


@dataclass(frozen=True, slots=True)
class Ends:
    """What a graph knows of how some tasks ended: those that are finished or failed, and how often which were
    restarted."""

    epoch: int
    ended: frozenset[str]
    restarted: Mapping[str, int]

    def is_over(self, task: str, epoch: int, restarts: int | None) -> bool:
        """Whether the end of a task in this epoch and life has reached the graph, or can't any more."""
        return self.epoch > epoch or task in self.ended or self.restarted.get(task, 0) > (restarts or 0)


@translated
class GraphRecovery:
    """What is done to the collection `graphs` beside an apply."""

    def __init__(self, collection: MongoCollection[Document]) -> None:
        self._current, self._committed = current(collection), committed(collection)

    def sizes(self, process_ids: Sequence[str]) -> dict[str, int]:
        """{process: bytes of its graph}, of those that have one: some 50 for each task."""
        found = find_keys(self._current, process_ids, {"size": {"$bsonSize": "$$ROOT"}})
        return {document["_id"]: document["size"] for document in found}

    def versions(self, process_ids: Sequence[str]) -> dict[str, Any]:
        """{process: version of its graph}, of those that have one."""
        found = find_keys(self._current, process_ids, {"version": True})
        return {document["_id"]: document.get("version") for document in found}

    def complete(self, process_ids: Sequence[str]) -> list[str]:
        """Those of these processes of whose graph nothing is open."""
        found = find_keys(self._current, process_ids, {"_id": True}, {"notFinished": {}})
        return [document["_id"] for document in found]

    def absent(self, process_ids: Iterable[str]) -> set[str]:
        """Those of these processes that have no graph."""
        ids = set(process_ids)
        return ids - {document["_id"] for document in find_keys(self._current, ids, {"_id": True})}

    def get_many(self, process_ids: Iterable[str]) -> dict[str, Graph]:
        """The graphs that are there, by process; of no more than may be held in memory at once (`Store.portions`)."""
        return {graph.id: graph for graph in readable(Graph, find_keys(self._current, process_ids, {}))}

    def committed_ends(self, tasks: Mapping[str, Collection[str]]) -> dict[str, Ends]:
        """{process: what its graph, as a majority has it, knows of how these tasks of it ended}, {process: tasks}; of
        those that have a graph."""
        names = sorted({task for of_process in tasks.values() for task in of_process})
        finished: Document = {"$cond": [{"$isArray": ["$finished"]}, "$finished", []]}
        among: Document = {"$setIntersection": [finished, literal(names)]}
        unread: Document = {"notFinished": literal({}), "links": literal({}), "version": literal(0)}
        fields: Document = {"epoch": True, "failed": True, "restarted": True, "finished": among, **unread}
        found = find_keys(self._committed, tasks, fields)
        return {
            graph.id: Ends(graph.epoch, frozenset((*graph.finished, *graph.failed)), graph.restarted)
            for graph in readable(Graph, found)
        }

    def fail_seen(self, seen: Graph, task: str) -> bool:
        """Note that a task, open or not, is what its process can't go on for; False if the graph is not as it was
        seen, or another task has failed since. It may rest from then on: one that only is open has to be looked at for
        ever."""
        fields: Document = {f"failed.{task}": True, "touchedAt": "$$NOW", "recoveryTime": IDLE}
        return self._change_seen(seen, [{"$set": fields}], {"failed": seen.failed})

    def reopen(self, seen: Graph, tasks: Mapping[str, Iterable[str]]) -> bool:
        """Put finished tasks back to not finished, {task: its dependents}, and have those of their dependents that are
        open wait for them again; False if the graph is not as it was seen."""
        waiting = {
            f"links.{one}.{task}": True
            for task, dependents in tasks.items()
            for one in dependents
            if one in seen.not_finished or one in tasks
        }
        opened = {f"notFinished.{task}": "$$NOW" for task in tasks}
        finished = literal([task for task in seen.finished if task not in tasks])
        return self._change_seen(seen, [{"$set": {**waiting, **opened, "finished": finished, **TOUCHED}}])

    def remake(self, seen: Graph, new: Graph) -> bool:
        """Put what is made from the decisions in the place of all that a graph says; False if it is not as it was
        seen."""
        names = ("notFinished", "links", "finished", "failed", "restarted")
        made = to_document(new)
        fields = {name: literal(made.get(name, {})) for name in names}
        return self._change_seen(seen, [{"$set": {**fields, **TOUCHED}}])

    def relink(self, seen: Graph, waits: Mapping[str, Iterable[str]]) -> bool:
        """Drop those links of tasks that lead to nothing open, and have them wait for others instead, {task: others};
        False if the graph is not as it was seen."""
        dead = [f"links.{t}.{dep}" for t in waits for dep in seen.links.get(t, ()) if dep not in seen.not_finished]
        links = {f"links.{task}.{other}": True for task, others in waits.items() for other in others}
        return bool(dead) and self._change_seen(seen, [{"$set": {**links, **TOUCHED}}, {"$unset": dead}])

    def _change_seen(self, seen: Graph, stages: Sequence[Document], guard: Mapping[str, object] | None = None) -> bool:
        """Every change of what is open and what waits for what makes a new version; that a task failed does not."""
        same = {"_id": seen.id, "epoch": seen.epoch, "version": seen.version, **(guard or {})}
        return self._current.update_one(same, stages).matched_count == 1

    def stamp(self, process_ids: Sequence[str]) -> int:
        """Give a deadline, now, to graphs that have something open and lack one."""
        lacking: Document = {"recoveryTime": None, "notFinished": {"$ne": {}}, "failed": {}}
        return stamp_each(self._current, process_ids, lacking, "$$NOW")

    def last_repair(self, process_id: str) -> RepairNote | None:
        """Return the last repair of anything of a process; None if there was none, or another program damaged it."""
        found = self._committed.find_one({"_id": process_id}, {"repaired": True})
        try:
            return from_document(RepairNote, found["repaired"]) if found and found.get("repaired") else None
        except (DamagedRecord, AttributeError):
            return None

    def note_repair(self, process_ids: Iterable[str], repair: RepairNote, *, touch: bool) -> None:
        """Keep the last repair of these processes; `touch` sets new idle deadlines as well, of those that have one."""
        note = {"$mergeObjects": [literal(to_document(repair)), {"at": "$$NOW"}]}
        fields: Document = {"repaired": note}
        if touch:
            has_none: Document = {"$eq": [{"$type": "$recoveryTime"}, "missing"]}
            fields["recoveryTime"] = {"$cond": [has_none, "$$REMOVE", IDLE]}
        update_each(self._current, list(process_ids), {}, [{"$set": fields}])

    def advance_deadline(self, process_id: str, seconds: float) -> None:
        """Look at an open graph within so many seconds: something in it is not as it should be."""
        self._current.update_one(
            {"_id": process_id, "recoveryTime": {"$exists": True}},
            [{"$set": {"recoveryTime": {"$min": ["$recoveryTime", after(seconds)]}}}],
        )

    def look_soon(self, process_id: str, seconds: float) -> None:
        """The same, and not before: it was looked at just now, and what was done about it is not all."""
        past, soon = {"$lte": ["$recoveryTime", "$$NOW"]}, after(seconds)
        sooner: Document = {"$cond": [past, soon, {"$min": ["$recoveryTime", soon]}]}
        live: Document = {"_id": process_id, "recoveryTime": {"$exists": True}}
        self._current.update_one(live, [{"$set": {"recoveryTime": sooner}}], bypass_document_validation=True)

    def clear_deadlines(self, process_ids: Sequence[str], *, overdue: bool = False) -> int:
        """Take the deadline off complete graphs, and off those that failed. Their processes have ended, and no failover
        takes that back: `Store.clear_graph_deadlines` sees to it. `overdue`: of those whose deadline is past still; it
        is not if somebody, an abort say, has begun to work on them since they were looked at."""
        guard: Document = {"$and": [OVERDUE]} if overdue else {}
        over: Document = {"$or": [{"notFinished": {}}, {"failed": {"$ne": {}}}], **guard}
        return update_each(self._current, process_ids, over, {"$unset": {"recoveryTime": ""}}).count

    def overdue(self, limit: int) -> list[str]:
        """Processes whose graph's deadline is past, the longest first. Index `deadline`."""
        found = self._current.find(OVERDUE, {"_id": True}).sort("recoveryTime", 1).limit(limit)
        return [document["_id"] for document in found]

    def postpone(self, process_id: str, seconds: float) -> int:
        """Look at a graph that can't be read, or whose process's records can't, after so many seconds."""
        changed = self._current.update_one(
            {"_id": process_id, "$or": [OVERDUE, {"recoveryTime": None}]},
            [{"$set": {"recoveryTime": after(seconds)}}],
            bypass_document_validation=True,
        )
        return changed.modified_count

    def postpone_idle(self, process_ids: Sequence[str]) -> int:
        """Move the deadlines of graphs found healthy: as far off as they are idle, so looks grow rare."""
        later = later_by({"$max": [idle_time("$idleTimeout"), age("$touchedAt")]})
        return update_each(self._current, process_ids, OVERDUE, [{"$set": {"recoveryTime": later}}]).count
