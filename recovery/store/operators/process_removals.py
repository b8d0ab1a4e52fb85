"""Updates that remove ended processes with all their records; and the destruction that a demo does to its database.

The first update of a removal is the commit point. The process itself is removed last, so its deadline reveals an
interrupted removal (REMOVAL_CUT_OFF). All reads have read concern majority and all writes are acknowledged by a
majority. All use index `_id`: the records of a process are one range of it.

Each update names the epoch that the process had when it was selected for removal, and skips records of later epochs. A
process that was removed in the meantime and imported again has a later epoch in all of its records.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Collection as Many
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pymongo.database import Database

from recovery.records import DecisionState, Mark, OrderKind, ProcessState
from recovery.store import schema
from recovery.store.client import Document
from recovery.store.concerns import committed, current
from recovery.store.driver_errors import translated
from recovery.store.expressions import after, literal, record_ranges
from recovery.store.splitting import batches

_OVER = [ProcessState.FINISHED.value, ProcessState.ABORTED.value]


class Begun(NamedTuple):
    """A process that is being removed, as it was read."""

    id: str
    epoch: Any
    """Its epoch as stored, possibly of a wrong type."""
    reopened: int
    key: str | None
    """The key of the order that its mark names."""

    @property
    def mark(self) -> Mark | None:
        """The removal mark of the process; None if it names no order."""
        return Mark(self.id, OrderKind.REMOVE, self.key, self.epoch or 0) if self.key is not None else None


@translated
class Removals:
    """Updates of the collections `processes`, `graphs`, `decisions`, `tasks` and `interruptions`."""

    def __init__(self, database: Database[Document]) -> None:
        self._processes = committed(database[schema.PROCESSES])
        self._graphs = committed(database[schema.GRAPHS])
        self._decisions, self._tasks = committed(database[schema.DECISIONS]), committed(database[schema.TASKS])
        self._interruptions = committed(database[schema.INTERRUPTIONS])

    def live(self, process_ids: Sequence[str]) -> set[str]:
        """Return those of these processes that have a live record or an open graph, so a scanner will look at them."""
        by_id = {"_id": {"$in": list(process_ids)}}
        is_live = {"$or": [{"recoveryTime": {"$exists": True}}, {"notFinished": {"$ne": {}}, "aborted": None}]}
        live_ids = {document["_id"] for document in self._graphs.find({**by_id, **is_live}, {"_id": True})}
        if process_ids:
            live_decisions: Document = {**record_ranges(process_ids), "recoveryTime": {"$exists": True}}
            documents = self._decisions.find(live_decisions, {"_id": True}).hint("_id_")
            live_ids |= {document["_id"].partition("/")[0] for document in documents}
        return live_ids

    def begin(self, seen: Sequence[tuple[str, int]], key: str, within: float) -> list[Begun]:
        """Mark processes as being removed, by the orders with this key. This is the commit point.

        A process is marked if it is finished or aborted, has the given epoch, has no redo, and is at rest or already
        marked. Its custom id becomes free. The processes are read again afterwards.

        Args:
            seen: Id and epoch of each process.
            key: Key of the orders.
            within: Seconds until a scanner looks at an interrupted removal.

        Returns:
            All of these processes that are being removed, by this call or an earlier one.
        """
        at_rest: Document = {"$or": [{"recoveryTime": None, "removing": None}, {"removing": True}]}
        is_over: Document = {"state": {"$in": _OVER}, "redo": None}
        of_epoch = [{"_id": process_id, "epoch": epoch} for process_id, epoch in seen]
        former_custom_id = {"$ifNull": ["$customId", "$formerCustomId", "$$REMOVE"]}
        fields = {
            "removing": True,
            "order": literal(key),
            "recoveryTime": after(within),
            "formerCustomId": former_custom_id,
        }
        if of_epoch:
            self._processes.update_many(
                {"$and": [{"$or": of_epoch}, is_over, at_rest]}, [{"$set": fields}, {"$unset": "customId"}]
            )
        return self.begun([process_id for process_id, _ in seen])

    def begun(self, process_ids: Sequence[str]) -> list[Begun]:
        """Return those of these processes that are being removed."""
        being_removed = {"_id": {"$in": list(process_ids)}, "removing": True}
        documents = self._processes.find(being_removed, {"epoch": True, "reopened": True, "order": True})
        return [
            Begun(document["_id"], document.get("epoch"), document.get("reopened") or 0, document.get("order"))
            for document in documents
        ]

    def take_off(self, marks: Iterable[Begun]) -> int:
        """Remove the removal mark of processes whose removal nobody ordered. Return how many changed.

        A process changes only if mark, order and epoch are as they were read. A process that continues becomes due now,
        whatever deadline it has.
        """
        continues = {"$or": [{"$eq": ["$state", ProcessState.RUNNING.value]}, {"$eq": ["$markerDue", True]}]}
        # A redo or a due marker has its own order, which must stay. A removal never begins at a process that has
        # either.
        has_other_order = {"$or": [{"$gt": ["$redo", None]}, {"$eq": ["$markerDue", True]}]}
        fields = {
            "recoveryTime": {"$cond": [continues, "$$NOW", "$$REMOVE"]},
            "order": {"$cond": [has_other_order, "$order", "$$REMOVE"]},
        }
        changed = 0
        for begun in marks:
            seen = {"_id": begun.id, "removing": True, "order": begun.key, "epoch": begun.epoch}
            stages: list[Document] = [{"$set": fields}, {"$unset": "removing"}]
            changed += self._processes.update_one(seen, stages).modified_count
        return changed

    def finish(self, begun: Iterable[Begun]) -> int:
        """Remove the records of processes that are being removed, the processes last. Return how many processes.

        Records of a later epoch are kept.
        """
        groups = defaultdict[tuple[Any, int], list[str]](list)
        for process in begun:
            groups[process.epoch, process.reopened].append(process.id)
        return sum(self._finish(ids, epoch, reopened) for (epoch, reopened), ids in groups.items())

    def _finish(self, process_ids: Sequence[str], epoch: Any, reopened: int) -> int:
        in_ranges: Document = record_ranges(process_ids)
        by_id: Document = {"_id": {"$in": list(process_ids)}}
        # Not `$lte`, because a damaged epoch that is no number must be removed too.
        no_later: Document = {"epoch": {"$not": {"$gt": epoch}}}
        self._decisions.delete_many({**in_ranges, **no_later})
        self._tasks.delete_many({**in_ranges, **no_later})
        # Each new epoch reopens the process, so `reopened` tells interruptions of different epochs apart.
        self._interruptions.delete_many({**in_ranges, "reopened": {"$not": {"$gt": reopened}}})
        self._graphs.delete_many({**by_id, **no_later})
        return self._processes.delete_many({**by_id, "removing": True, "epoch": epoch}).deleted_count


@dataclass(frozen=True, slots=True)
class Removed:
    """The records that a demo removed."""

    ids: Mapping[str, Many[str]]
    """Ids of the removed records by collection."""
    finished: frozenset[str]
    """Ids of the removed decisions that were finished."""


@translated
class Destruction:
    """Destruction of parts of a demo's own database, like a disaster. Nothing else calls this."""

    def __init__(self, database: Database[Document]) -> None:
        self._database = database

    def drop_graphs(self) -> int:
        """Drop the collection `graphs` with its indexes and validator. Return the number of dropped graphs."""
        graphs = committed(self._database[schema.GRAPHS])
        count = graphs.count_documents({})
        graphs.drop()
        return count

    def remove_some(self, part: float, choose: random.Random) -> Removed:
        """Remove this fraction (0 to 1) of the records of every process collection, drawn at random."""
        removed_ids, finished = dict[str, Many[str]](), set[str]()
        for name in schema.OF_PROCESSES:
            collection = committed(self._database[name])
            ids = sorted(document["_id"] for document in collection.find({}, {"_id": True}))
            removed_ids[name] = choose.sample(ids, round(part * len(ids)))
            for batch in batches(removed_ids[name]):
                if name == schema.DECISIONS:
                    finished |= self._remove_decisions(batch)
                else:
                    collection.delete_many({"_id": {"$in": batch}})
        return Removed(removed_ids, frozenset(finished))

    def _remove_decisions(self, ids: Sequence[str]) -> set[str]:
        """Remove these decisions. Return those that were finished at that moment.

        Finished decisions stay finished. An unfinished decision is removed only while it is unfinished, so a decision
        that finishes in the meantime is read again and counted as finished.
        """
        decisions, finished, remaining = committed(self._database[schema.DECISIONS]), set[str](), set(ids)
        while remaining:
            finished_filter: Document = {"_id": {"$in": [*remaining]}, "state": DecisionState.FINISHED.value}
            finished_ids = {document["_id"] for document in current(decisions).find(finished_filter, {"_id": True})}
            decisions.delete_many({"_id": {"$in": [*finished_ids]}})
            finished |= finished_ids
            remaining -= finished_ids
            decisions.delete_many({"_id": {"$in": [*remaining]}, "state": {"$ne": DecisionState.FINISHED.value}})
            remaining = {
                document["_id"] for document in current(decisions).find({"_id": {"$in": [*remaining]}}, {"_id": True})
            }
        return finished
