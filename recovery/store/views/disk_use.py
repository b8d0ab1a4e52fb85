"""What processes take on the disk, by their type: counted where they have few records, and else an estimate from some
processes with all of their records.

How many records a collection has, and what they take, MongoDB knows without reading them; whose they are, nobody does.
So as many bytes are a type's as its share of those of the processes that were drawn.

They are drawn by passing over keys of the index `_id`, 3 million a second, and nothing else of what is not drawn.
`$sample` would pass over nothing, but it draws pages and not records: of 4,000 small processes and 1,000 large ones
after them it drew four large ones of five.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pymongo.database import Database
from pymongo.errors import OperationFailure

from recovery.records.ids import SEPARATOR
from recovery.store import schema
from recovery.store.client import Document
from recovery.store.concerns import committed
from recovery.store.driver_errors import is_denied, translated
from recovery.store.expressions import record_ranges
from recovery.store.splitting import batches

COUNTED = 100_000
"""Records of processes that are all read, in a second or two; of more an estimate is made."""
PORTION = 100
"""Processes whose records are added up together."""
_NOT_THERE = 26
_OF_TASKS = (schema.TASKS, schema.DECISIONS)
_IDS: Document = {"_id": {"$gte": ""}}
"""Ids that are texts, as all of ours are."""
_PROCESS_ID: Document = {"$first": {"$split": ["$_id", SEPARATOR]}}
_BYTES: Document = {"$sum": {"$bsonSize": "$$ROOT"}}


@dataclass(slots=True)
class Use:
    """What something takes: `bytes` as its documents are, `disk` as they are stored, compressed and with their indexes.
    None: we may not know."""

    processes: float = 0
    records: float = 0
    bytes: float = 0
    disk: float | None = 0

    def add(self, of_records: float, of_bytes: float, stored: Use) -> None:
        """Add these shares of the records and bytes that are stored."""
        self.records += of_records * stored.records
        self.bytes += of_bytes * stored.bytes
        self.disk = None if self.disk is None or stored.disk is None else self.disk + of_bytes * stored.disk


@dataclass(frozen=True, slots=True)
class DiskUse:
    """What the whole database takes."""

    types: Mapping[str | None, Use]
    """By process type; None: one that can't be read."""
    others: Use
    """Settings, operations and their results, the audit log: all that is of no process."""
    free: int | None
    """Bytes of the files that are kept for records to come: what was removed leaves them."""
    drawn: int
    """How many processes were drawn."""
    estimated: bool
    """Whether there are more processes than were drawn."""


@dataclass(frozen=True, slots=True)
class _Drawn:
    """What the processes that were drawn have in one collection, by type."""

    records: Counter[str | None]
    bytes: Counter[str | None]


@translated
class Disk:
    """Queries of all collections, as a majority has them."""

    def __init__(self, database: Database[Document]) -> None:
        self._told = {name: committed(database[name]) for name in schema.ALL}

    def use(self, sample: int) -> DiskUse:
        """By all processes if they have few records, else by about so many: one round trip for each, and four for a
        hundred. Right `collStats`, or it is not known what is stored."""
        stored = {name: self._stored(name) for name in self._told}
        there = round(stored[schema.PROCESSES][0].records)
        counts_all = sum(stored[name][0].records for name in schema.OF_PROCESSES) <= COUNTED
        drawn = self._weigh_all() if counts_all else self._weigh(list(self._draw(max(1, there // sample))))
        found, others = defaultdict[str | None, Use](Use), Use()
        for name, (whole, _) in stored.items():
            if name not in drawn:
                others.add(1.0, 1.0, whole)
                continue
            records, weights = drawn[name].records, drawn[name].bytes
            if counts_all:
                whole.records, whole.bytes = records.total(), weights.total()
            elif whole.disk is None:  # nor what its documents are: as those that were drawn
                whole.bytes = whole.records * weights.total() / max(1, records.total())
            for kind in records:
                of_records = records[kind] / records.total()
                found[kind].add(of_records, weights[kind] / weights.total(), whole)
                if name == schema.PROCESSES:
                    found[kind].processes = of_records * whole.records
        free = [unused for _, unused in stored.values() if unused is not None]
        all_free = sum(free) if len(free) == len(stored) else None
        number = drawn[schema.PROCESSES].records.total()
        return DiskUse(dict(found), others, all_free, number, not counts_all and number < there)

    def _stored(self, name: str) -> tuple[Use, int | None]:
        """Return what a collection takes by its metadata, and how much of its file is free."""
        try:
            (found,) = self._told[name].aggregate([{"$collStats": {"storageStats": {}}}])
        except OperationFailure as error:
            if error.code == _NOT_THERE:
                return Use(), 0
            if not is_denied(error):
                raise
            return Use(records=self._told[name].estimated_document_count(), disk=None), None
        stats = found["storageStats"]
        free = int(stats.get("freeStorageSize", 0))
        disk = stats["storageSize"] - free + stats["totalIndexSize"]
        return Use(records=stats["count"], bytes=stats["size"], disk=disk), free

    def _draw(self, step: int) -> Iterator[str]:
        """Process ids, one of about `step` each; from 1 to twice as many on each time, so that types which take turns
        are drawn as often as they come."""
        if step == 1:
            yield from (one["_id"] for one in self._told[schema.PROCESSES].find(_IDS, {"_id": True}))
            return
        last, gap = "", random.randint(1, step)
        while True:
            beyond = self._told[schema.PROCESSES].find({"_id": {"$gt": last}}, {"_id": True}).sort("_id", 1)
            found = next(beyond.hint("_id_").skip(gap - 1).limit(1), None)
            if found is None:
                return
            yield (last := found["_id"])
            gap = random.randint(1, 2 * step - 1)

    def _weigh_all(self) -> dict[str, _Drawn]:
        """Return what all processes have in each collection, which is read once."""
        drawn = {name: _Drawn(Counter(), Counter()) for name in schema.OF_PROCESSES}
        types = dict[str, str | None]()
        fields = {"type": True, "bytes": {"$bsonSize": "$$ROOT"}}
        for one in self._told[schema.PROCESSES].aggregate([{"$match": _IDS}, {"$project": fields}]):
            types[one["_id"]] = _type_of(one)
            _count(drawn[schema.PROCESSES], types[one["_id"]], 1, one["bytes"])
        for name, key in ((schema.GRAPHS, "$_id"), *((name, _PROCESS_ID) for name in _OF_TASKS)):
            group = {"_id": key, "records": {"$sum": 1}, "bytes": _BYTES}
            for one in self._told[name].aggregate([{"$match": _IDS}, {"$group": group}]):
                _count(drawn[name], types.get(one["_id"]), one["records"], one["bytes"])
        return drawn

    def _weigh(self, ids: Sequence[str]) -> dict[str, _Drawn]:
        drawn = {name: _Drawn(Counter(), Counter()) for name in schema.OF_PROCESSES}
        for some in batches(ids, PORTION):
            among: Document = {"_id": {"$in": some}}
            fields = {"type": True, "bytes": {"$bsonSize": "$$ROOT"}}
            processes = self._told[schema.PROCESSES].aggregate([{"$match": among}, {"$project": fields}]).to_list()
            types = {one["_id"]: _type_of(one) for one in processes}
            for one in processes:
                _count(drawn[schema.PROCESSES], types[one["_id"]], 1, one["bytes"])
            for name, query, key in (
                (schema.GRAPHS, among, "$_id"),
                *((name, record_ranges(some), _PROCESS_ID) for name in _OF_TASKS),
            ):
                group = {"_id": key, "records": {"$sum": 1}, "bytes": _BYTES}
                for one in self._told[name].aggregate([{"$match": query}, {"$group": group}], hint="_id_"):
                    _count(drawn[name], types.get(one["_id"]), one["records"], one["bytes"])
        return drawn


def _type_of(process: Document) -> str | None:
    kind = process.get("type")
    return kind if isinstance(kind, str) else None


def _count(drawn: _Drawn, kind: str | None, records: int, size: int) -> None:
    drawn.records[kind] += records
    drawn.bytes[kind] += size
