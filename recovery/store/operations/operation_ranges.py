"""Queries and updates of the ranges of operations: leased by one worker at a time, and resumed by the next."""

from __future__ import annotations

from collections.abc import Sequence

from pymongo import ReturnDocument
from pymongo.collection import Collection
from pymongo.errors import BulkWriteError

from recovery.records import Operation, OperationRange, Totals, from_document, to_document
from recovery.records.operation import SEPARATOR, Phase, RangeState
from recovery.store.client import Document
from recovery.store.clock import told_by
from recovery.store.concerns import committed, current
from recovery.store.driver_errors import translated
from recovery.store.expressions import NOT_DUE, OVERDUE, after, literal
from recovery.store.reading import readable

DUPLICATE = 11000
_AFTER_SEPARATOR = chr(ord(SEPARATOR) + 1)


@translated
class OperationRanges:
    """The collection `operationRanges`."""

    def __init__(self, collection: Collection[Document]) -> None:
        self._committed, self._current = committed(collection), current(collection)

    def insert(self, ranges: Sequence[OperationRange]) -> None:
        """Save ranges, as far as they are not there: whoever planned them was cut off, or was not alone."""
        now = told_by(self._current.database)
        documents = [to_document(one.evolve(at=now, recovery_time=now)) for one in ranges]
        try:
            self._committed.insert_many(documents, ordered=False)
        except BulkWriteError as error:
            if any(one["code"] != DUPLICATE for one in error.details["writeErrors"]):
                raise

    def lease(self, number: int, phase: Phase, token: str, worker: str, seconds: float) -> OperationRange | None:
        """Lease an open range whose lease is over, if there is one, those of the highest priority first. A failover may
        take a lease back: then two are at one range, and one of them commits."""
        query = {"operation": number, "phase": phase.value, **OVERDUE}
        fields = {"lease": literal(token), "worker": literal(worker), "recoveryTime": after(seconds)}
        leased = self._current.find_one_and_update(
            query,
            [{"$set": {**fields, "leases": {"$add": [{"$ifNull": ["$leases", 0]}, 1]}}}, {"$unset": "error"}],
            sort=[("priority", -1), ("_id", 1)],
            return_document=ReturnDocument.AFTER,
        )
        return from_document(OperationRange, leased) if leased else None

    def extend(self, leased: OperationRange, seconds: float) -> bool:
        """Hold the lease for so many seconds from now; False: somebody else has it."""
        held = {"_id": leased.id, "lease": leased.lease}
        return self._current.update_one(held, [{"$set": {"recoveryTime": after(seconds)}}]).matched_count == 1

    def commit(
        self, leased: OperationRange, cursor: str | None, totals: Totals, seconds: float, *, done: bool
    ) -> OperationRange | None:
        """Count a page: the range is done up to `cursor`, or as a whole. None: somebody else has the lease, who counts
        what is done after the last page that was committed."""
        fields: Document = {
            **({} if cursor is None else {"cursor": literal(cursor)}),
            "totals": literal(to_document(leased.totals + totals)),
        }
        stages: list[Document] = [{"$set": {**fields, "recoveryTime": after(seconds)}}]
        if done:
            stages = [{"$set": {**fields, "state": RangeState.DONE.value}}, {"$unset": ["recoveryTime", "lease"]}]
        saved = self._committed.find_one_and_update(
            {"_id": leased.id, "lease": leased.lease, "cursor": leased.cursor},
            stages,
            return_document=ReturnDocument.AFTER,
        )
        return from_document(OperationRange, saved) if saved else None

    def give_back(self, leased: OperationRange, error: str | None, seconds: float = 0.0) -> None:
        """End a lease: anybody may take the range, after so many seconds."""
        fields: Document = {"recoveryTime": after(seconds), **({"error": literal(error)} if error else {})}
        self._current.update_one({"_id": leased.id, "lease": leased.lease}, [{"$set": fields}, {"$unset": "lease"}])

    def take_back(self, numbers: Sequence[int], workers: Sequence[str]) -> int:
        """End the leases of workers that are gone, in these operations; how many. Who is not gone after all, and
        commits before another one leases his range, loses nothing."""
        query = {"operation": {"$in": list(numbers)}, "worker": {"$in": list(workers)}, "lease": {"$exists": True}}
        taken = self._current.update_many(query, [{"$set": {"recoveryTime": "$$NOW"}}])
        return taken.modified_count

    def leased(self, number: int, phase: Phase) -> bool:
        """Whether somebody holds a lease that is not over. Index `open`."""
        query = {"operation": number, "phase": phase.value, "lease": {"$exists": True}, **NOT_DUE}
        return self._current.find_one(query, {"_id": True}) is not None

    def free(self, number: int, phase: Phase) -> None:
        """Let all open ranges of a phase be leased at once, as when an operation is resumed."""
        query = {"operation": number, "phase": phase.value, "lease": None, "recoveryTime": {"$exists": True}}
        self._current.update_many(query, [{"$set": {"recoveryTime": "$$NOW"}}])

    def all(self, number: int, phase: Phase) -> list[OperationRange]:
        """All ranges of a phase, in order, as a majority has them. Index `_id`."""
        return list(readable(OperationRange, self._committed.find(_of(number, phase)).sort("_id", 1)))

    def how_many_open(self, number: int, phase: Phase) -> int:
        """How many ranges of a phase are not done."""
        return self._committed.count_documents({**_of(number, phase), "state": {"$ne": RangeState.DONE.value}})


def range_id(operation: Operation, level: int, place: int) -> str:
    """The id of a range: in order of its level, then of its place."""
    return f"{operation.id}{SEPARATOR}{operation.phase.value}{SEPARATOR}{level:03}{SEPARATOR}{place:05}"


def _of(number: int, phase: Phase) -> Document:
    prefix = f"{number}{SEPARATOR}{phase.value}"
    return {"_id": {"$gte": prefix + SEPARATOR, "$lt": prefix + _AFTER_SEPARATOR}}
