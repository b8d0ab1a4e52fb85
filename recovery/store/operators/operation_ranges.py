"""Queries and updates of the ranges of operations: leased by one worker at a time, and resumed by the next."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from pymongo import ReturnDocument
from pymongo.collection import Collection

from recovery.records import Operation, OperationRange, Totals, from_document, to_document
from recovery.records.ids import AFTER_SEPARATOR, SEPARATOR, is_process_id, started_at
from recovery.records.operation_parts import Phase, RangeState, result_id
from recovery.store.client import Document
from recovery.store.clock import told_by
from recovery.store.concerns import committed, current
from recovery.store.driver_errors import translated
from recovery.store.expressions import NOT_DUE, OVERDUE, after, literal
from recovery.store.lifecycle.tasks import insert_missing
from recovery.store.record_reading import read, readable
from recovery.store.schema import OPERATION_RESULTS, PROCESSES

CLOCKS_DIFFER = timedelta(hours=1)
"""A process id tells the time by the clock of whoever started it."""
AFTER_ALL_IDS = "\U0010ffff"


@translated
class OperationRanges:
    """The collection `operationRanges`."""

    def __init__(self, collection: Collection[Document]) -> None:
        self._committed, self._current = committed(collection), current(collection)

    def insert(self, ranges: Sequence[OperationRange]) -> None:
        """Save ranges, as far as they are not there: whoever planned them was cut off, or was not alone."""
        now = told_by(self._current.database)
        insert_missing(self._committed, [to_document(one.evolve(at=now, recovery_time=now)) for one in ranges])

    def restore(self, planned: Sequence[OperationRange], ahead: float) -> int:
        """Save the ranges of a phase again that are missing, or that nobody can go on with; return how many. They are
        gone through from their beginning: what is saved of their results stays, and nothing is done twice.

        An open range without a deadline, or with one that is further off than `ahead` seconds, may be leased now.
        """
        if not planned:
            return 0
        now = told_by(self._current.database)
        there = {found["_id"]: found for found in self._committed.find(_of(planned[0].operation, planned[0].phase))}
        missing = [one for one in planned if one.id not in there]
        if missing:
            self.insert(missing)
        restored = len(missing)
        for one in planned:
            if one.id not in there:
                continue
            found = there[one.id]
            whole = next(iter(read(OperationRange, [found]).records), None)
            changed = {"recoveryTime": now}
            if whole is None or not _is_as_planned(whole, one) or not self._is_reached(whole, now):
                changed = to_document(one.evolve(at=now, recovery_time=now))
            elif whole.state is RangeState.DONE or _is_near(whole.recovery_time, now + timedelta(seconds=ahead)):
                continue
            else:
                changed = {**found, **changed}
            as_read = {name: {"$eq": found.get(name)} for name in ("_id", "state", "lease", "cursor", "recoveryTime")}
            restored += self._committed.replace_one(as_read, changed).modified_count
        return restored

    def _is_reached(self, found: OperationRange, now: datetime) -> bool:
        """Return whether the cursor of a range is where somebody may have come: at an id that a process may have by
        now, or at one that is there. Otherwise all that follows would be left out."""
        cursor = found.cursor
        if cursor is None or (is_process_id(cursor) and started_at(cursor) <= now + CLOCKS_DIFFER):
            return True
        database = self._current.database
        places = {PROCESSES: cursor, OPERATION_RESULTS: result_id(found.operation, cursor)}
        return any(database[name].find_one({"_id": key}, {"_id": True}) is not None for name, key in places.items())

    def lease(self, number: int, phase: Phase, token: str, worker: str, seconds: float) -> OperationRange | None:
        """Lease an open range whose lease is over, if there is one, those of the highest priority first. A failover may
        take a lease back: then two are at one range, and one of them commits. Raises DamagedRecord: the range that was
        leased can't be read."""
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


def _is_as_planned(found: OperationRange, planned: OperationRange) -> bool:
    """Return whether a range is about what was planned, and was gone through as far as some process of its own."""
    of = ("operation", "phase", "priority", "only", "but", "start", "end")
    if any(getattr(found, name) != getattr(planned, name) for name in of):
        return False
    return found.cursor is None or (planned.start or "") <= found.cursor < (planned.end or AFTER_ALL_IDS)


def _is_near(deadline: datetime | None, last: datetime) -> bool:
    return deadline is not None and deadline <= last


def range_id(operation: Operation, level: int, place: int) -> str:
    """The id of a range: in order of its level, then of its place."""
    return f"{operation.id}{SEPARATOR}{operation.phase.value}{SEPARATOR}{level:03}{SEPARATOR}{place:05}"


def _of(number: int, phase: Phase) -> Document:
    prefix = f"{number}{SEPARATOR}{phase.value}"
    return {"_id": {"$gte": prefix + SEPARATOR, "$lt": prefix + AFTER_SEPARATOR}}
