"""Queries and updates of the Operation records: what operators ordered, and its progress.

Decisions about an operation compare the version that they were made from, so of two concurrent decisions only one is
written. They are acknowledged by a majority, and reads have read concern majority, because people see these records and
thousands of processes are changed by them. Deadlines, attendance, the driver and the rate limiter change without a
version. The rate limiter is a single time that only moves forward. There are few operations.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import floor

from pymongo import ReturnDocument
from pymongo.collection import Collection
from pymongo.errors import DuplicateKeyError

from recovery.limits import MAX_NUMBER
from recovery.records import Operation, OperationKind, OperationState, from_document, to_document
from recovery.records.operation import ACTIVE, OVER, UNDER_WAY
from recovery.store.client import Document
from recovery.store.concerns import committed, current
from recovery.store.driver_errors import translated
from recovery.store.expressions import OVERDUE, after, date_of, literal, literals
from recovery.store.record_reading import Read, read, readable, tell

_ACTIVE = [state.value for state in ACTIVE]
LOWEST_RATE = 0.001
MAX_WAITING = 1_000_000
"""Maximum number of processes that wait at a rate limiter: a thousand pages of a thousand."""
LONGEST_DRIVE = 3600.0
"""Maximum seconds for which a driver may reserve an operation. A later expiry is a mistake and is ignored."""
_NUMBERED: Document = {"_id": {"$type": ["int", "long", "double"], "$lt": MAX_NUMBER}}
"""Filter of operations whose id is a number. Another program may have written other ids."""


@dataclass(frozen=True, slots=True)
class LimiterTurn:
    """The rate limiter's answer: how many seconds to wait, and the current rate in processes per second."""

    seconds: float
    rate: float | None


@translated
class Operations:
    """The collection `operations`."""

    def __init__(self, collection: Collection[Document]) -> None:
        self._committed, self._current = committed(collection), current(collection)

    def insert(self, wanted: Operation, deadline: float) -> Operation:
        """Save a new operation under the next number, with a deadline in `deadline` seconds.

        Return the saved operation.

        If an operation for the same occurrence of a schedule exists, return that operation instead.
        """
        while True:
            newest = next(iter(self._current.find(_NUMBERED, {"_id": True}).sort("_id", -1).limit(1)), None)
            number = (floor(newest["_id"]) if newest else 0) + 1
            fields = to_document(wanted.evolve(id=number))
            new = {key: literal(value) for key, value in fields.items() if key != "_id"}
            times = {"askedAt": "$$NOW", "begunAt": "$$NOW", "recoveryTime": after(deadline)}
            try:
                # An update and not an insert, because only an update can use the database's clock.
                saved = self._committed.find_one_and_update(
                    {"_id": number, "kind": None},
                    [{"$set": {**new, **times}}],
                    upsert=True,
                    return_document=ReturnDocument.AFTER,
                )
            except DuplicateKeyError as error:  # the number or the slot is taken
                existing = self._of_slot(wanted.slot) if "slot" in (error.details or {}).get("keyPattern", ()) else None
                if existing is not None:
                    return existing
                continue
            assert saved is not None  # an upsert always returns a document
            return from_document(Operation, saved)

    def _of_slot(self, slot: str | None) -> Operation | None:
        # From the primary, because the operation may have just been written. The next majority write covers it.
        document = self._current.find_one({"slot": slot})
        return from_document(Operation, document) if document else None

    def get(self, number: int) -> Operation | None:
        """Return the operation with this number; None if there is none.

        Raises:
            DamagedRecord: The operation can't be read.
        """
        if abs(number) > MAX_NUMBER:
            return None
        document = self._committed.find_one({"_id": number})
        return from_document(Operation, document) if document else None

    def newest(self, limit: int, states: Iterable[OperationState] = ()) -> list[Operation]:
        """Return the newest operations first, optionally only those in these states.

        Logs operations that can't be read.
        """
        operations = self.newest_with_damaged(limit, states)
        for damage in operations.damaged:
            tell(damage)
        return operations.records

    def newest_with_damaged(self, limit: int, states: Iterable[OperationState] = ()) -> Read[Operation]:
        """Return the newest operations first, and the damage of unreadable ones; optionally only in these states."""
        query: Document = {"state": {"$in": [state.value for state in states]}} if states else {}
        return read(Operation, self._committed.find(query).sort("_id", -1).limit(limit))

    def is_under_way(self, number: int) -> bool:
        """Return whether an operation still has to be carried out, even if its other fields can't be read."""
        query = {"_id": number, "state": {"$in": [state.value for state in UNDER_WAY]}}
        return self._committed.find_one(query, {"_id": True}) is not None

    def at_work(self) -> list[Operation]:
        """Return the active operations whose ranges may be worked on, the oldest first. Index `deadline`."""
        query = {"recoveryTime": {"$exists": True}, "state": {"$in": _ACTIVE}}
        return sorted(readable(Operation, self._committed.find(query)), key=lambda operation: operation.id)

    def last_of(self, who: str) -> Operation | None:
        """Return the newest readable operation that `who` ordered. Walks the operations backwards; there are few."""
        return next(readable(Operation, self._committed.find({"who": who}).sort("_id", -1)), None)

    def overdue(self, limit: int) -> Read[Operation]:
        """Return operations whose deadline is past, the earliest deadline first. Index `deadline`."""
        return read(Operation, self._committed.find(OVERDUE).sort("recoveryTime", 1).limit(limit))

    def save(
        self, operation: Operation, deadline: float | None, *, begins: bool = False, anew: bool = False
    ) -> Operation | None:
        """Save an operation with the next version, if it is still in the version that the decision was made from.

        Sets the times of pausing, ending and planning by the database's clock. The limiter's time and the driver stay.

        Args:
            operation: The changed operation, with the version that was read.
            deadline: Seconds until a scanner looks at it again; None if nobody works at it.
            begins: Its phase begins now.
            anew: Reset the rate limiter, because the rate changed. Waiting workers then ask again.

        Returns:
            The saved operation; None if somebody else changed it first.
        """
        fields = to_document(operation.evolve(version=operation.version + 1, recovery_time=None))
        new: Document = literals(fields)
        if deadline is not None:
            new["recoveryTime"] = after(deadline)
        if begins:
            new["begunAt"] = "$$NOW"
        if operation.state is OperationState.PAUSED and operation.paused_at is None:
            new["pausedAt"] = "$$NOW"
        if operation.state in OVER and operation.ended_at is None:
            new["endedAt"] = "$$NOW"
        if operation.planned is not None and operation.planned_at is None:
            new["plannedAt"] = "$$NOW"
        # These fields change without a version, so they keep their current values. A missing field stays missing.
        unversioned = {field: f"${field}" for field in ("attendedAt", "driver", "drivenUntil")}
        unversioned["freeAt"] = "$$REMOVE" if anew else "$freeAt"
        saved = self._committed.find_one_and_update(
            {"_id": operation.id, "version": operation.version or {"$in": [0, None]}},
            [{"$replaceWith": {**new, **unversioned}}],
            return_document=ReturnDocument.AFTER,
        )
        return from_document(Operation, saved) if saved else None

    def end_damaged(self, number: int, state: OperationState, among: Iterable[OperationState]) -> bool:
        """Pause or cancel an operation that can't be read, if it is in one of the states `among`.

        Compares version and state with the values that were read. The other fields stay, and validators are bypassed.

        Returns:
            False if the operation is not in these states, can be read, or was changed in the meantime.
        """
        document = self._committed.find_one({"_id": number}) if abs(number) <= MAX_NUMBER else None
        if document is None or not read(Operation, [document]).damaged:
            return False
        moment = "endedAt" if state is OperationState.CANCELLED else "pausedAt"
        as_read = {
            "_id": number,
            "version": {"$eq": document.get("version")},
            "state": {"$eq": document.get("state"), "$in": [allowed.value for allowed in among]},
        }
        stages: list[Document] = [{"$set": {"state": state.value, moment: "$$NOW"}}, {"$unset": "recoveryTime"}]
        changed = self._committed.update_one(as_read, stages, bypass_document_validation=True)
        return changed.modified_count == 1

    def wake(self, ahead: float) -> int:
        """Make active operations due now that have no deadline or one more than `ahead` seconds away. Return how many.

        No deadline of ours is further away. Reads all operations, which are few. Not acknowledged by a majority.
        """
        far = {"$expr": {"$gt": ["$recoveryTime", after(ahead)]}}
        query: Document = {"state": {"$in": _ACTIVE}, "$or": [{"recoveryTime": None}, far]}
        now = [{"$set": {"recoveryTime": "$$NOW"}}]
        return self._current.update_many(query, now, bypass_document_validation=True).modified_count

    def postpone(self, number: object, seconds: float) -> None:
        """Move an overdue deadline to `seconds` from now. Works for operations that can't be read, too."""
        stages = [{"$set": {"recoveryTime": after(seconds)}}]
        self._current.update_one({"_id": number, **OVERDUE}, stages, bypass_document_validation=True)

    def attend(self, numbers: Sequence[int]) -> None:
        """Record that a Spark driver is running and that these operations have their turn."""
        self._current.update_many({"_id": {"$in": list(numbers)}}, [{"$set": {"attendedAt": "$$NOW"}}])

    def drive(self, number: int, driver: str, seconds: float) -> bool:
        """Reserve an operation for this driver for `seconds`. Return False if another driver has reserved it.

        An operation is free if it has no driver, this driver, or an expired or impossible (more than LONGEST_DRIVE
        away) expiry.
        """
        driven_until = date_of("$drivenUntil")
        is_expired = {"$or": [{"$lte": [driven_until, "$$NOW"]}, {"$gt": [driven_until, after(LONGEST_DRIVE)]}]}
        free = {"$or": [{"driver": {"$in": [None, driver]}}, {"$expr": is_expired}]}
        fields = {"driver": literal(driver), "drivenUntil": after(seconds), "attendedAt": "$$NOW"}
        return self._committed.update_one({"_id": number, **free}, [{"$set": fields}]).matched_count == 1

    def take_turn(self, number: int, state: OperationState, count: int) -> LimiterTurn | None:
        """Ask the rate limiter to let `count` processes pass; None if the operation is not in this state any more.

        Requests are served in the order in which they arrive. If the rate changes, waiting workers ask again, because
        the limiter is reset (`save` with `anew`).
        """
        has_rate = {"$gt": [{"$ifNull": ["$rate", 0]}, 0]}
        rate_of = {"$max": ["$rate", LOWEST_RATE]}
        latest_possible = {"$add": ["$$NOW", {"$divide": [MAX_WAITING * 1000, rate_of]}]}
        # A time later than all allowed waiters could produce is damage. Trusting it would block everybody.
        free = {
            "$cond": [{"$gt": [date_of("$freeAt"), latest_possible]}, "$$NOW", {"$max": [date_of("$freeAt"), "$$NOW"]}]
        }
        duration = {"$divide": [count * 1000, rate_of]}
        next_free = {"$cond": [has_rate, {"$add": [free, duration]}, "$$REMOVE"]}
        limiter = self._current.find_one_and_update(
            {"_id": number, "state": state.value},
            [{"$set": {"freeAt": next_free}}],
            projection={"rate": True, "ahead": {"$subtract": ["$freeAt", "$$NOW"]}},
            return_document=ReturnDocument.AFTER,
        )
        if limiter is None:
            return None
        rate = limiter.get("rate")
        seconds = (limiter.get("ahead") or 0) / 1000 - count / rate if rate else 0.0
        return LimiterTurn(max(0.0, seconds), rate)

    def of_kinds(self, kinds: Iterable[OperationKind], states: Iterable[OperationState]) -> list[Operation]:
        """Return the readable operations of these kinds in these states, the oldest first."""
        query = {"kind": {"$in": [kind.value for kind in kinds]}, "state": {"$in": [state.value for state in states]}}
        return list(readable(Operation, self._committed.find(query).sort("_id", 1)))
