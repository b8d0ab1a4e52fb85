"""Updates that remove processes which are over, with all of their records; and what a demo destroys of its own
database.

The first update of a removal is the commit point. The process itself goes last, so that a removal which was cut off is
found by its deadline (REMOVAL_CUT_OFF). All are acknowledged by a majority. Index `_id`: a process's records are one
range of it.

Each update names the epoch that the process was of when it was seen to be removed, and touches nothing of a later
one: a process that was removed meanwhile, and read back from its export, is of a later one with all of its records.
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
    """A process that is being removed, as it was seen."""

    id: str
    epoch: Any
    """As it stands in the record, where another program may have spoilt it."""
    reopened: int
    key: str | None
    """The key of the order that its mark names."""

    @property
    def mark(self) -> Mark | None:
        """How it is marked; None: by nobody who names an order."""
        return Mark(self.id, OrderKind.REMOVE, self.key, self.epoch or 0) if self.key is not None else None


@translated
class Removals:
    """Updates over the collections `processes`, `graphs`, `decisions`, `tasks` and `interruptions`."""

    def __init__(self, database: Database[Document]) -> None:
        self._processes = committed(database[schema.PROCESSES])
        self._graphs = committed(database[schema.GRAPHS])
        self._decisions, self._tasks = committed(database[schema.DECISIONS]), committed(database[schema.TASKS])
        self._interruptions = committed(database[schema.INTERRUPTIONS])

    def live(self, process_ids: Sequence[str]) -> set[str]:
        """Those of these of which a record is live, or a graph open: somebody is to look at them."""
        among = {"_id": {"$in": list(process_ids)}}
        odd = {"$or": [{"recoveryTime": {"$exists": True}}, {"notFinished": {"$ne": {}}, "aborted": None}]}
        found = {one["_id"] for one in self._graphs.find({**among, **odd}, {"_id": True})}
        if process_ids:
            of_them: Document = {**record_ranges(process_ids), "recoveryTime": {"$exists": True}}
            keys = self._decisions.find(of_them, {"_id": True}).hint("_id_")
            found |= {one["_id"].partition("/")[0] for one in keys}
        return found

    def begin(self, seen: Sequence[tuple[str, int]], key: str, within: float) -> list[Begun]:
        """finished|aborted, at rest and of the epoch that was seen → being removed, by the orders of this key: the
        commit point. So are those that are marked already. Those that are, by whomever. Their custom ids are free from
        here on."""
        at_rest: Document = {"$or": [{"recoveryTime": None, "removing": None}, {"removing": True}]}
        over: Document = {"state": {"$in": _OVER}, "redo": None}
        of_epoch = [{"_id": key, "epoch": epoch} for key, epoch in seen]
        former = {"$ifNull": ["$customId", "$formerCustomId", "$$REMOVE"]}
        fields = {
            "removing": True,
            "order": literal(key),
            "recoveryTime": after(within),
            "formerCustomId": former,
        }
        if of_epoch:
            self._processes.update_many(
                {"$and": [{"$or": of_epoch}, over, at_rest]}, [{"$set": fields}, {"$unset": "customId"}]
            )
        return self.begun([key for key, _ in seen])

    def begun(self, process_ids: Sequence[str]) -> list[Begun]:
        """Return those of these processes that are being removed."""
        among = {"_id": {"$in": list(process_ids)}, "removing": True}
        found = self._processes.find(among, {"epoch": True, "reopened": True, "order": True})
        return [Begun(one["_id"], one.get("epoch"), one.get("reopened") or 0, one.get("order")) for one in found]

    def take_off(self, marks: Iterable[Begun]) -> int:
        """Take these marks off processes that nobody has ordered to be removed; from how many. As they were seen. What
        goes on is looked at now, whatever deadline stands in it."""
        goes_on = {"$or": [{"$eq": ["$state", ProcessState.RUNNING.value]}, {"$eq": ["$markerDue", True]}]}
        # What is done again, or leaves a marker, goes by an order of its own: a removal never begins at such a one.
        is_ordered = {"$or": [{"$gt": ["$redo", None]}, {"$eq": ["$markerDue", True]}]}
        kept = {
            "recoveryTime": {"$cond": [goes_on, "$$NOW", "$$REMOVE"]},
            "order": {"$cond": [is_ordered, "$order", "$$REMOVE"]},
        }
        changed = 0
        for one in marks:
            seen = {"_id": one.id, "removing": True, "order": one.key, "epoch": one.epoch}
            stages: list[Document] = [{"$set": kept}, {"$unset": "removing"}]
            changed += self._processes.update_one(seen, stages).modified_count
        return changed

    def finish(self, begun: Iterable[Begun]) -> int:
        """Remove the records of processes that are being removed, and last the processes; how many. Of what is of a
        later epoch by now, nothing."""
        alike = defaultdict[tuple[Any, int], list[str]](list)
        for one in begun:
            alike[one.epoch, one.reopened].append(one.id)
        return sum(self._finish(ids, epoch, reopened) for (epoch, reopened), ids in alike.items())

    def _finish(self, process_ids: Sequence[str], epoch: Any, reopened: int) -> int:
        of_them: Document = record_ranges(process_ids)
        among: Document = {"_id": {"$in": list(process_ids)}}
        # Not `$lte`: something that is no number goes as well.
        no_later: Document = {"epoch": {"$not": {"$gt": epoch}}}
        self._decisions.delete_many({**of_them, **no_later})
        self._tasks.delete_many({**of_them, **no_later})
        # Each begin of an epoch reopens the process, and these tell how often it was.
        self._interruptions.delete_many({**of_them, "reopened": {"$not": {"$gt": reopened}}})
        self._graphs.delete_many({**among, **no_later})
        return self._processes.delete_many({**among, "removing": True, "epoch": epoch}).deleted_count


@dataclass(frozen=True, slots=True)
class Removed:
    """Records that were removed."""

    ids: Mapping[str, Many[str]]
    """{collection: ids of the removed records}."""
    finished: frozenset[str]
    """The removed decisions that were finished."""


@translated
class Destruction:
    """What a demo destroys of its own database, as a disaster would: nothing else of ours calls this."""

    def __init__(self, database: Database[Document]) -> None:
        self._database = database

    def drop_graphs(self) -> int:
        """Drop the whole collection with its indexes and its validator. Return how many graphs there were."""
        graphs = committed(self._database[schema.GRAPHS])
        count = graphs.count_documents({})
        graphs.drop()
        return count

    def remove_some(self, part: float, choose: random.Random) -> Removed:
        """Remove this share of the records of every kind, drawn at random."""
        gone, finished = dict[str, Many[str]](), set[str]()
        for name in schema.OF_PROCESSES:
            collection = committed(self._database[name])
            ids = sorted(document["_id"] for document in collection.find({}, {"_id": True}))
            gone[name] = choose.sample(ids, round(part * len(ids)))
            for some in batches(gone[name]):
                if name == schema.DECISIONS:
                    finished |= self._remove_decisions(some)
                else:
                    collection.delete_many({"_id": {"$in": some}})
        return Removed(gone, frozenset(finished))

    def _remove_decisions(self, ids: Sequence[str]) -> set[str]:
        """Remove these; which of them were finished by then. One that is finishes no more, and one that is not is
        removed only as such."""
        decisions, finished, left = committed(self._database[schema.DECISIONS]), set[str](), set(ids)
        while left:
            is_over: Document = {"_id": {"$in": [*left]}, "state": DecisionState.FINISHED.value}
            over = {document["_id"] for document in current(decisions).find(is_over, {"_id": True})}
            decisions.delete_many({"_id": {"$in": [*over]}})
            finished |= over
            left -= over
            decisions.delete_many({"_id": {"$in": [*left]}, "state": {"$ne": DecisionState.FINISHED.value}})
            left = {one["_id"] for one in current(decisions).find({"_id": {"$in": [*left]}}, {"_id": True})}
        return finished
