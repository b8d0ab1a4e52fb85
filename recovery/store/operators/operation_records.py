"""Queries and updates of the Operation records: what operators ordered, and how far it is.

Every write names the version that it was decided from: of two who decide at once one writes. All are acknowledged by a
majority, and read as a majority has them: they are told to people, and thousands of processes are changed for what
stands here. There are few of them. The limiter alone moves without a version: it is one moment, only ever moved on.
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
"""Processes that may wait at a limiter together: a thousand pages of a thousand."""
LONGEST_DRIVE = 3600.0
"""Seconds. No driver says for longer that he has an operation, so who has it until then has it by mistake."""
_NUMBERED: Document = {"_id": {"$type": ["int", "long", "double"], "$lt": MAX_NUMBER}}
"""Operations that have a number. Another program may have given one another id."""


@dataclass(frozen=True, slots=True)
class LimiterTurn:
    """What the limiter says: how long to wait, and the rate that holds now."""

    seconds: float
    rate: float | None


@translated
class Operations:
    """The collection `operations`."""

    def __init__(self, collection: Collection[Document]) -> None:
        self._committed, self._current = committed(collection), current(collection)

    def insert(self, wanted: Operation, deadline: float) -> Operation:
        """Save a new operation under the next number, to be looked at within so many seconds; as it was saved. Of one
        for a slot that there is already: that one."""
        while True:
            last = next(iter(self._current.find(_NUMBERED, {"_id": True}).sort("_id", -1).limit(1)), None)
            number = (floor(last["_id"]) if last else 0) + 1
            fields = to_document(wanted.evolve(id=number))
            new = {key: literal(value) for key, value in fields.items() if key != "_id"}
            moments = {"askedAt": "$$NOW", "begunAt": "$$NOW", "recoveryTime": after(deadline)}
            try:
                # An update, since only that knows the database's clock.
                made = self._committed.find_one_and_update(
                    {"_id": number, "kind": None},
                    [{"$set": {**new, **moments}}],
                    upsert=True,
                    return_document=ReturnDocument.AFTER,
                )
            except DuplicateKeyError as error:  # somebody else's
                there = self._of_slot(wanted.slot) if "slot" in (error.details or {}).get("keyPattern", ()) else None
                if there is not None:
                    return there
                continue
            assert made is not None  # it is an upsert
            return from_document(Operation, made)

    def _of_slot(self, slot: str | None) -> Operation | None:
        # Written a moment ago, perhaps; what is written next with a majority has it as well.
        found = self._current.find_one({"slot": slot})
        return from_document(Operation, found) if found else None

    def get(self, number: int) -> Operation | None:
        """The operation of this number. Raises DamagedRecord."""
        if abs(number) > MAX_NUMBER:
            return None
        found = self._committed.find_one({"_id": number})
        return from_document(Operation, found) if found else None

    def newest(self, limit: int, states: Iterable[OperationState] = ()) -> list[Operation]:
        """The last operations, the newest first; in these states, if any are given."""
        found = self.newest_with_damaged(limit, states)
        for damage in found.damaged:
            tell(damage)
        return found.records

    def newest_with_damaged(self, limit: int, states: Iterable[OperationState] = ()) -> Read[Operation]:
        """Return the last operations, the newest first, in these states if any are given, and why others of them can't
        be read."""
        query: Document = {"state": {"$in": [state.value for state in states]}} if states else {}
        return read(Operation, self._committed.find(query).sort("_id", -1).limit(limit))

    def is_under_way(self, number: int) -> bool:
        """Return whether an operation is still to be carried out, also if the rest of it can't be read."""
        query = {"_id": number, "state": {"$in": [state.value for state in UNDER_WAY]}}
        return self._committed.find_one(query, {"_id": True}) is not None

    def at_work(self) -> list[Operation]:
        """Those in whose ranges somebody may work, the oldest first. Index `deadline`."""
        query = {"recoveryTime": {"$exists": True}, "state": {"$in": _ACTIVE}}
        return sorted(readable(Operation, self._committed.find(query)), key=lambda operation: operation.id)

    def last_of(self, who: str) -> Operation | None:
        """The last operation that this one ordered, of those that can be read. Reads operations from the newest on,
        which are few."""
        return next(readable(Operation, self._committed.find({"who": who}).sort("_id", -1)), None)

    def overdue(self, limit: int) -> Read[Operation]:
        """Those whose deadline is past, the longest first. Index `deadline`."""
        return read(Operation, self._committed.find(OVERDUE).sort("recoveryTime", 1).limit(limit))

    def save(
        self, operation: Operation, deadline: float | None, *, begins: bool = False, anew: bool = False
    ) -> Operation | None:
        """Save an operation that was decided from the version it holds, as the next one; None: somebody was first.

        `deadline`: seconds after which it is looked at again; None for one at which nobody works. With `begins` its
        phase begins now. `anew`: who waits at the limiter asks it again, since the rate is another one.
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
        # The limiter's moment, and when somebody was seen, are not of any version. What is not there stays away.
        kept = {field: f"${field}" for field in ("attendedAt", "driver", "drivenUntil")}
        kept["freeAt"] = "$$REMOVE" if anew else "$freeAt"
        saved = self._committed.find_one_and_update(
            {"_id": operation.id, "version": operation.version or {"$in": [0, None]}},
            [{"$replaceWith": {**new, **kept}}],
            return_document=ReturnDocument.AFTER,
        )
        return from_document(Operation, saved) if saved else None

    def end_damaged(self, number: int, state: OperationState, among: Iterable[OperationState]) -> bool:
        """Pause or cancel an operation that can't be read, if it is in one of these states. Return False if it is not,
        if it can be read, or if somebody has changed it meanwhile. Its other fields stay as they are."""
        found = self._committed.find_one({"_id": number}) if abs(number) <= MAX_NUMBER else None
        if found is None or not read(Operation, [found]).damaged:
            return False
        moment = "endedAt" if state is OperationState.CANCELLED else "pausedAt"
        as_read = {
            "_id": number,
            "version": {"$eq": found.get("version")},
            "state": {"$eq": found.get("state"), "$in": [one.value for one in among]},
        }
        stages: list[Document] = [{"$set": {"state": state.value, moment: "$$NOW"}}, {"$unset": "recoveryTime"}]
        changed = self._committed.update_one(as_read, stages, bypass_document_validation=True)
        return changed.modified_count == 1

    def wake(self, ahead: float) -> int:
        """Have operations looked at now that are at work and have no deadline, or one that is further off than any is
        written. Return how many. Reads all operations, which are few."""
        far = {"$expr": {"$gt": ["$recoveryTime", after(ahead)]}}
        query: Document = {"state": {"$in": _ACTIVE}, "$or": [{"recoveryTime": None}, far]}
        now = [{"$set": {"recoveryTime": "$$NOW"}}]
        return self._current.update_many(query, now, bypass_document_validation=True).modified_count

    def postpone(self, number: object, seconds: float) -> None:
        """Look at an operation after so many seconds, which may be one that can't be read."""
        later = [{"$set": {"recoveryTime": after(seconds)}}]
        self._current.update_one({"_id": number, **OVERDUE}, later, bypass_document_validation=True)

    def attend(self, numbers: Sequence[int]) -> None:
        """Note down that somebody is at work in Spark, and that these have their turn."""
        self._current.update_many({"_id": {"$in": list(numbers)}}, [{"$set": {"attendedAt": "$$NOW"}}])

    def drive(self, number: int, driver: str, seconds: float) -> bool:
        """Have it driven by this driver for so many seconds; False: another one drives it. With none it is free."""
        until = date_of("$drivenUntil")
        over = {"$or": [{"$lte": [until, "$$NOW"]}, {"$gt": [until, after(LONGEST_DRIVE)]}]}
        free = {"$or": [{"driver": {"$in": [None, driver]}}, {"$expr": over}]}
        fields = {"driver": literal(driver), "drivenUntil": after(seconds), "attendedAt": "$$NOW"}
        return self._committed.update_one({"_id": number, **free}, [{"$set": fields}]).matched_count == 1

    def take_turn(self, number: int, state: OperationState, count: int) -> LimiterTurn | None:
        """Ask the limiter to let so many processes pass; None: nothing may be done in this state any more. Who asks
        later waits behind. With another rate those who wait ask again: what they were told is forgotten by then."""
        rated = {"$gt": [{"$ifNull": ["$rate", 0]}, 0]}
        rate_of = {"$max": ["$rate", LOWEST_RATE]}
        longest = {"$add": ["$$NOW", {"$divide": [MAX_WAITING * 1000, rate_of]}]}
        # Later than all who may wait could have made it, it is damage, and nobody would ever be let pass.
        free = {"$cond": [{"$gt": [date_of("$freeAt"), longest]}, "$$NOW", {"$max": [date_of("$freeAt"), "$$NOW"]}]}
        taken = {"$divide": [count * 1000, rate_of]}
        moved = {"$cond": [rated, {"$add": [free, taken]}, "$$REMOVE"]}
        seen = self._current.find_one_and_update(
            {"_id": number, "state": state.value},
            [{"$set": {"freeAt": moved}}],
            projection={"rate": True, "ahead": {"$subtract": ["$freeAt", "$$NOW"]}},
            return_document=ReturnDocument.AFTER,
        )
        if seen is None:
            return None
        rate = seen.get("rate")
        seconds = (seen.get("ahead") or 0) / 1000 - count / rate if rate else 0.0
        return LimiterTurn(max(0.0, seconds), rate)

    def of_kinds(self, kinds: Iterable[OperationKind], states: Iterable[OperationState]) -> list[Operation]:
        """Operations of these kinds in these states, the oldest first."""
        query = {"kind": {"$in": [kind.value for kind in kinds]}, "state": {"$in": [state.value for state in states]}}
        return list(readable(Operation, self._committed.find(query).sort("_id", 1)))
