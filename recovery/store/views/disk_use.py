"""Disk use of processes by process type: counted exactly for few records, otherwise estimated from a sample.

MongoDB's metadata gives the number and size of a collection's records, but not by type. The estimate gives each type
the share of bytes that it has in a random sample of processes.

The sample is drawn by skipping keys of index `_id`, so processes that are not drawn cost one key each. `$sample` is not
used because it draws pages, and therefore prefers large records.
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
"""Up to this many records of processes, all records are read instead of a sample. This takes a second or two."""
PORTION = 100
"""Number of drawn processes whose records are summed by one query."""
_NAMESPACE_NOT_FOUND = 26
_OF_TASKS = (schema.TASKS, schema.DECISIONS)
_IDS: Document = {"_id": {"$gte": ""}}
"""Filter of text ids. All our ids are texts."""
_PROCESS_ID: Document = {"$first": {"$split": ["$_id", SEPARATOR]}}
_BYTES: Document = {"$sum": {"$bsonSize": "$$ROOT"}}


@dataclass(slots=True)
class Use:
    """Space that records take.

    `bytes`: size of the documents. `disk`: size on disk, compressed and with indexes; None without the right to know
    it.
    """

    processes: float = 0
    records: float = 0
    bytes: float = 0
    disk: float | None = 0

    def add(self, of_records: float, of_bytes: float, stored: Use) -> None:
        """Add these fractions of the stored records and bytes."""
        self.records += of_records * stored.records
        self.bytes += of_bytes * stored.bytes
        self.disk = None if self.disk is None or stored.disk is None else self.disk + of_bytes * stored.disk


@dataclass(frozen=True, slots=True)
class DiskUse:
    """Disk use of the whole database."""

    types: Mapping[str | None, Use]
    """Use by process type. The key None stands for unreadable types."""
    others: Use
    """Use by records that belong to no process: settings, operations and their results, the audit log."""
    free: int | None
    """Free bytes inside the data files, left by removed records; None if unknown."""
    drawn: int
    """Number of processes that were drawn."""
    estimated: bool
    """Whether only some of the processes were drawn."""


@dataclass(frozen=True, slots=True)
class _Drawn:
    """Records and bytes that the drawn processes have in one collection, by type."""

    records: Counter[str | None]
    bytes: Counter[str | None]


@translated
class Disk:
    """Queries of all collections. Read concern majority."""

    def __init__(self, database: Database[Document]) -> None:
        self._collections = {name: committed(database[name]) for name in schema.ALL}

    def use(self, sample: int) -> DiskUse:
        """Measure the disk use by type.

        If there are few records, all processes are read. Otherwise about `sample` processes are drawn, with one round
        trip for each and four for every PORTION of them. Without the right `collStats`, sizes are not known.
        """
        stored = {name: self._stored(name) for name in self._collections}
        process_count = round(stored[schema.PROCESSES][0].records)
        counts_all = sum(stored[name][0].records for name in schema.OF_PROCESSES) <= COUNTED
        drawn = self._weigh_all() if counts_all else self._weigh(list(self._draw(max(1, process_count // sample))))
        by_type, others = defaultdict[str | None, Use](Use), Use()
        for name, (whole, _) in stored.items():
            if name not in drawn:
                others.add(1.0, 1.0, whole)
                continue
            records, weights = drawn[name].records, drawn[name].bytes
            if counts_all:
                whole.records, whole.bytes = records.total(), weights.total()
            elif whole.disk is None:  # the size of the documents is unknown too, so estimate it from the sample
                whole.bytes = whole.records * weights.total() / max(1, records.total())
            for kind in records:
                of_records = records[kind] / records.total()
                by_type[kind].add(of_records, weights[kind] / weights.total(), whole)
                if name == schema.PROCESSES:
                    by_type[kind].processes = of_records * whole.records
        free = [unused for _, unused in stored.values() if unused is not None]
        all_free = sum(free) if len(free) == len(stored) else None
        number = drawn[schema.PROCESSES].records.total()
        return DiskUse(dict(by_type), others, all_free, number, not counts_all and number < process_count)

    def _stored(self, name: str) -> tuple[Use, int | None]:
        """Return the use of a collection by its metadata, and the free bytes of its file (None if unknown)."""
        try:
            (document,) = self._collections[name].aggregate([{"$collStats": {"storageStats": {}}}])
        except OperationFailure as error:
            if error.code == _NAMESPACE_NOT_FOUND:
                return Use(), 0
            if not is_denied(error):
                raise
            return Use(records=self._collections[name].estimated_document_count(), disk=None), None
        stats = document["storageStats"]
        free = int(stats.get("freeStorageSize", 0))
        disk = stats["storageSize"] - free + stats["totalIndexSize"]
        return Use(records=stats["count"], bytes=stats["size"], disk=disk), free

    def _draw(self, step: int) -> Iterator[str]:
        """Yield about one process id of every `step`.

        Gaps are random, from 1 to 2 * step - 1, so that types that alternate regularly are drawn in proportion.
        """
        if step == 1:
            yield from (document["_id"] for document in self._collections[schema.PROCESSES].find(_IDS, {"_id": True}))
            return
        process_id, gap = "", random.randint(1, step)
        while True:
            cursor = (
                self._collections[schema.PROCESSES].find({"_id": {"$gt": process_id}}, {"_id": True}).sort("_id", 1)
            )
            document = next(cursor.hint("_id_").skip(gap - 1).limit(1), None)
            if document is None:
                return
            yield (process_id := document["_id"])
            gap = random.randint(1, 2 * step - 1)

    def _weigh_all(self) -> dict[str, _Drawn]:
        """Return the records and bytes of all processes by collection. Reads each collection once."""
        drawn = {name: _Drawn(Counter(), Counter()) for name in schema.OF_PROCESSES}
        types = dict[str, str | None]()
        fields = {"type": True, "bytes": {"$bsonSize": "$$ROOT"}}
        for row in self._collections[schema.PROCESSES].aggregate([{"$match": _IDS}, {"$project": fields}]):
            types[row["_id"]] = _type_of(row)
            _count(drawn[schema.PROCESSES], types[row["_id"]], 1, row["bytes"])
        for name, key in ((schema.GRAPHS, "$_id"), *((name, _PROCESS_ID) for name in _OF_TASKS)):
            group = {"_id": key, "records": {"$sum": 1}, "bytes": _BYTES}
            for row in self._collections[name].aggregate([{"$match": _IDS}, {"$group": group}]):
                _count(drawn[name], types.get(row["_id"]), row["records"], row["bytes"])
        return drawn

    def _weigh(self, ids: Sequence[str]) -> dict[str, _Drawn]:
        drawn = {name: _Drawn(Counter(), Counter()) for name in schema.OF_PROCESSES}
        for batch in batches(ids, PORTION):
            by_id: Document = {"_id": {"$in": batch}}
            fields = {"type": True, "bytes": {"$bsonSize": "$$ROOT"}}
            processes = (
                self._collections[schema.PROCESSES].aggregate([{"$match": by_id}, {"$project": fields}]).to_list()
            )
            types = {process["_id"]: _type_of(process) for process in processes}
            for process in processes:
                _count(drawn[schema.PROCESSES], types[process["_id"]], 1, process["bytes"])
            for name, query, key in (
                (schema.GRAPHS, by_id, "$_id"),
                *((name, record_ranges(batch), _PROCESS_ID) for name in _OF_TASKS),
            ):
                group = {"_id": key, "records": {"$sum": 1}, "bytes": _BYTES}
                for row in self._collections[name].aggregate([{"$match": query}, {"$group": group}], hint="_id_"):
                    _count(drawn[name], types.get(row["_id"]), row["records"], row["bytes"])
        return drawn


def _type_of(process: Document) -> str | None:
    kind = process.get("type")
    return kind if isinstance(kind, str) else None


def _count(drawn: _Drawn, kind: str | None, records: int, size: int) -> None:
    drawn.records[kind] += records
    drawn.bytes[kind] += size
