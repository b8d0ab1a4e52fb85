"""Queries and updates of the ranges of operations. One worker at a time leases a range; the next one resumes it."""

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
"""Tolerated clock difference. A process id contains the time by the clock of the machine that started the process."""
AFTER_ALL_IDS = "\U0010ffff"


@translated
class OperationRanges:
    """The collection `operationRanges`.

    Leases are read and written on the primary only (`current`): a failover may take a lease back. Committed pages are
    acknowledged by a majority.
    """

    def __init__(self, collection: Collection[Document]) -> None:
        self._committed, self._current = committed(collection), current(collection)

    def insert(self, ranges: Sequence[OperationRange]) -> None:
        """Save those of these ranges that do not exist yet, due now.

        Existing ranges were saved by an earlier planner.
        """
        now = told_by(self._current.database)
        insert_missing(self._committed, [to_document(planned.evolve(at=now, recovery_time=now)) for planned in ranges])

    def restore(self, planned: Sequence[OperationRange], ahead: float) -> int:
        """Save the missing and unusable ranges of a phase again. Return how many changed.

        Saved results stay, and nothing is done twice. A missing or damaged range, one that differs from the plan, or
        one with an impossible cursor starts again from its beginning. An open range without a deadline, or with a
        deadline more than `ahead` seconds away, becomes due now. Each replacement compares id, state, lease, cursor and
        deadline with the values that were read.
        """
        if not planned:
            return 0
        now = told_by(self._current.database)
        existing = {
            document["_id"]: document for document in self._committed.find(_of(planned[0].operation, planned[0].phase))
        }
        missing = [expected for expected in planned if expected.id not in existing]
        if missing:
            self.insert(missing)
        restored = len(missing)
        for expected in planned:
            if expected.id not in existing:
                continue
            document = existing[expected.id]
            saved = next(iter(read(OperationRange, [document]).records), None)
            replacement = {"recoveryTime": now}
            if saved is None or not _is_as_planned(saved, expected) or not self._is_reached(saved, now):
                replacement = to_document(expected.evolve(at=now, recovery_time=now))
            elif saved.state is RangeState.DONE or _is_near(saved.recovery_time, now + timedelta(seconds=ahead)):
                continue
            else:
                replacement = {**document, **replacement}
            as_read = {
                name: {"$eq": document.get(name)} for name in ("_id", "state", "lease", "cursor", "recoveryTime")
            }
            restored += self._committed.replace_one(as_read, replacement).modified_count
        return restored

    def _is_reached(self, saved: OperationRange, now: datetime) -> bool:
        """Return whether the cursor may have been reached by a worker.

        It may if it is a process id that can exist by now, or the id of an existing process or result. Otherwise the
        range would skip everything before the cursor.
        """
        cursor = saved.cursor
        if cursor is None or (is_process_id(cursor) and started_at(cursor) <= now + CLOCKS_DIFFER):
            return True
        database = self._current.database
        keys = {PROCESSES: cursor, OPERATION_RESULTS: result_id(saved.operation, cursor)}
        return any(database[name].find_one({"_id": key}, {"_id": True}) is not None for name, key in keys.items())

    def lease(self, number: int, phase: Phase, token: str, worker: str, seconds: float) -> OperationRange | None:
        """Lease the open range of the highest priority that is due; None if there is none. Index `open`.

        A range is due if it was never leased, or if its lease has expired.

        A failover may take a lease back. Then two workers process the same range, and only one of them commits.

        Args:
            number: The operation.
            phase: Its phase.
            token: Identifies the lease.
            worker: Name of the worker.
            seconds: Duration of the lease.

        Raises:
            DamagedRecord: The range was leased, but it can't be read.
        """
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
        """Extend the lease to `seconds` from now. Return False if another worker has the lease."""
        held = {"_id": leased.id, "lease": leased.lease}
        return self._current.update_one(held, [{"$set": {"recoveryTime": after(seconds)}}]).matched_count == 1

    def commit(
        self, leased: OperationRange, cursor: str | None, totals: Totals, seconds: float, *, done: bool
    ) -> OperationRange | None:
        """Save progress: the range is processed up to `cursor`, or completely if `done`.

        Compares lease and cursor, and is acknowledged by a majority.

        Returns:
            The saved range; None if another worker has the lease. That worker counts everything after the last
            committed page.
        """
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
        """End a lease. Any worker may lease the range after `seconds`."""
        fields: Document = {"recoveryTime": after(seconds), **({"error": literal(error)} if error else {})}
        self._current.update_one({"_id": leased.id, "lease": leased.lease}, [{"$set": fields}, {"$unset": "lease"}])

    def take_back(self, numbers: Sequence[int], workers: Sequence[str]) -> int:
        """Let the leases of workers that are gone expire now, in these operations. Return how many.

        A worker that is alive after all loses nothing if it commits before another worker leases its range.
        """
        query = {"operation": {"$in": list(numbers)}, "worker": {"$in": list(workers)}, "lease": {"$exists": True}}
        updated = self._current.update_many(query, [{"$set": {"recoveryTime": "$$NOW"}}])
        return updated.modified_count

    def leased(self, number: int, phase: Phase) -> bool:
        """Return whether a worker holds an unexpired lease in this phase. Index `open`."""
        query = {"operation": number, "phase": phase.value, "lease": {"$exists": True}, **NOT_DUE}
        return self._current.find_one(query, {"_id": True}) is not None

    def free(self, number: int, phase: Phase) -> None:
        """Make all open, unleased ranges of a phase due now, for example because the operation is resumed."""
        query = {"operation": number, "phase": phase.value, "lease": None, "recoveryTime": {"$exists": True}}
        self._current.update_many(query, [{"$set": {"recoveryTime": "$$NOW"}}])

    def all(self, number: int, phase: Phase) -> list[OperationRange]:
        """Return all readable ranges of a phase in order. Index `_id`; read concern majority."""
        return list(readable(OperationRange, self._committed.find(_of(number, phase)).sort("_id", 1)))

    def how_many_open(self, number: int, phase: Phase) -> int:
        """Return how many ranges of a phase are not done. Index `_id`; read concern majority."""
        return self._committed.count_documents({**_of(number, phase), "state": {"$ne": RangeState.DONE.value}})


def _is_as_planned(saved: OperationRange, planned: OperationRange) -> bool:
    """Return whether a saved range matches its plan and its cursor is within its bounds."""
    names = ("operation", "phase", "priority", "only", "but", "start", "end")
    if any(getattr(saved, name) != getattr(planned, name) for name in names):
        return False
    return saved.cursor is None or (planned.start or "") <= saved.cursor < (planned.end or AFTER_ALL_IDS)


def _is_near(deadline: datetime | None, last: datetime) -> bool:
    return deadline is not None and deadline <= last


def range_id(operation: Operation, level: int, place: int) -> str:
    """Return the id of a range. Ids sort by level, then by position."""
    return f"{operation.id}{SEPARATOR}{operation.phase.value}{SEPARATOR}{level:03}{SEPARATOR}{place:05}"


def _of(number: int, phase: Phase) -> Document:
    prefix = f"{number}{SEPARATOR}{phase.value}"
    return {"_id": {"$gte": prefix + SEPARATOR, "$lt": prefix + AFTER_SEPARATOR}}
