"""Queries and updates of what operations found on, and did to, single processes.

A plan is these records: `apply` runs what stands here, and nothing else. Each is written once as found, and then ends
once, by a compare-and-set on `found`; so the totals of an operation are counted from here, and not from who did what.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pymongo import UpdateOne
from pymongo.collection import Collection
from pymongo.errors import BulkWriteError

from recovery.records import OperationResult, ResultState, Sum, Totals, to_document
from recovery.records.operation import SEPARATOR, result_id
from recovery.store.client import Document
from recovery.store.concerns import committed
from recovery.store.driver_errors import translated
from recovery.store.expressions import literal
from recovery.store.reading import readable

DUPLICATE = 11000
_AFTER_SEPARATOR = chr(ord(SEPARATOR) + 1)
FOUND = ResultState.FOUND.value


@translated
class OperationResults:
    """The collection `operationResults`."""

    def __init__(self, collection: Collection[Document]) -> None:
        self._results = committed(collection)

    def insert(self, results: Sequence[OperationResult]) -> None:
        """Save what was found; what was saved before, by somebody who was cut off, stays."""
        if not results:
            return
        try:
            self._results.insert_many([to_document(one) for one in results], ordered=False)
        except BulkWriteError as error:
            if any(one["code"] != DUPLICATE for one in error.details["writeErrors"]):
                raise

    def planned(
        self,
        number: int,
        after: str | None,
        limit: int,
        start: str | None,
        end: str | None,
        only: Sequence[str],
        but: Sequence[str],
    ) -> list[OperationResult]:
        """Results in order of process id: after one, from `start` up to, not including, `end`; of the types `only`, or
        of all but some. Index `_id`."""
        prefix = str(number) + SEPARATOR
        bounds: Document = {"$gt": prefix + after} if after is not None else {"$gte": prefix + (start or "")}
        bounds["$lt"] = prefix + end if end is not None else str(number) + _AFTER_SEPARATOR
        query: Document = {"_id": bounds}
        if only or but:
            query["type"] = {"$in": list(only)} if only else {"$nin": list(but)}
        found = self._results.find(query).sort("_id", 1).hint("_id_").limit(limit)
        return list(readable(OperationResult, found))

    def begin(self, results: Iterable[OperationResult]) -> None:
        """Write down that what is planned is about to be done: whoever finds it changed knows by whom it may be."""
        self._results.update_many(
            {"_id": {"$in": [one.id for one in results]}, "state": FOUND}, {"$set": {"begun": True}}
        )

    def end(self, results: Sequence[OperationResult]) -> None:
        """found → what became of it, of each that has not ended."""
        updates = [UpdateOne({"_id": one.id, "state": FOUND}, [_ended(one)]) for one in results]
        if updates:
            self._results.bulk_write(updates, ordered=False)

    def walk(self, number: int, step: int) -> list[str]:
        """Every `step`-th process of an operation's results, in order. Index `_id`, whose keys alone are read."""
        found: list[str] = []
        bounds = dict(_of(number)["_id"])
        while True:
            query = self._results.find({"_id": bounds}, {"_id": True}).sort("_id", 1).hint("_id_")
            reached = next(query.skip(step - 1).limit(1), None)
            if reached is None:
                return found
            found.append(reached["_id"].partition(SEPARATOR)[2])
            bounds = {"$gt": reached["_id"], "$lt": bounds["$lt"]}

    def pages(
        self, number: int, states: Sequence[ResultState] = (), size: int = 1000
    ) -> Iterator[list[OperationResult]]:
        """All results of an operation in order of process id, a page at a time. Index `_id`."""
        query: Document = _of(number)
        if states:
            query["state"] = {"$in": [state.value for state in states]}
        found = self._results.find(query, batch_size=size).sort("_id", 1).hint("_id_")
        while page := found.to_list(size):
            if some := list(readable(OperationResult, page)):
                yield some

    def of_process(self, process_id: str) -> list[OperationResult]:
        """What any operation found on a process, the last one first. Index `process`."""
        return list(
            readable(OperationResult, self._results.find({"process": process_id}).sort("operation", -1).limit(100))
        )

    def among(self, number: int, process_ids: Sequence[str], states: Sequence[ResultState]) -> list[str]:
        """Those of these processes that are in an operation's plan, in these states. Index `_id`."""
        query = {
            "_id": {"$in": [result_id(number, one) for one in process_ids]},
            "state": {"$in": [state.value for state in states]},
        }
        return [found["process"] for found in self._results.find(query, {"process": True})]

    def totals(self, number: int) -> Totals:
        """Results counted by state, rule and type. Reads all of the operation; what it looked at is not known here."""
        facets: Document = {
            "states": [{"$group": {"_id": "$state", "count": {"$sum": 1}}}],
            "types": [{"$group": {"_id": "$type", "count": {"$sum": 1}}}],
            "rules": _sums("$rulesFound"),
            "repaired": _sums("$repaired"),
        }
        rules = {"rulesFound": {"$ifNull": ["$counts", {}]}, "repaired": {"$ifNull": ["$repaired", {}]}}
        stages: list[Document] = [
            {"$match": _of(number)},
            {"$project": {"state": True, "type": True, **rules}},
            {"$facet": facets},
        ]
        found = next(iter(self._results.aggregate(stages)))
        by = {name: {row["_id"]: row["count"] for row in rows} for name, rows in found.items()}
        states = by["states"]
        return Totals(
            found=sum(states.values()),
            done=states.get(ResultState.DONE.value, 0),
            nothing=states.get(ResultState.NOTHING.value, 0),
            changed=states.get(ResultState.CHANGED.value, 0),
            errors=states.get(ResultState.ERROR.value, 0),
            rules=by["rules"],
            repaired=by["repaired"],
            types=by["types"],
        )

    def sums(self, number: int, most: int) -> tuple[Sum, ...]:
        """Findings by type, rule and actor, the largest first. Reads all of the operation."""
        stages: list[Document] = [
            {"$match": _of(number)},
            {"$project": {"type": True, "tally": True}},
            {"$unwind": "$tally"},
            {
                "$group": {
                    "_id": {"type": "$type", "rule": "$tally.rule", "actor": "$tally.actor"},
                    "count": {"$sum": "$tally.count"},
                }
            },
            {"$sort": {"count": -1, "_id": 1}},
            {"$limit": most},
        ]
        return tuple(_sum(row) for row in self._results.aggregate(stages))


def _sum(row: Document) -> Sum:
    of = row["_id"]
    return Sum(type=of.get("type", ""), rule=of["rule"], actor=of.get("actor"), count=row["count"])


def _sums(field: str) -> list[Document]:
    """Sums of maps {name: count} over all results."""
    return [
        {"$project": {"pairs": {"$objectToArray": field}}},
        {"$unwind": "$pairs"},
        {"$group": {"_id": "$pairs.k", "count": {"$sum": "$pairs.v"}}},
        {"$sort": {"count": -1, "_id": 1}},
    ]


def _ended(result: OperationResult) -> Document:
    fields: dict[str, Any] = {"state": result.state.value}
    fields |= {"after": result.after, "error": result.error}
    fields |= {"repaired": result.repaired or None}
    return {
        "$set": {**{name: literal(value) for name, value in fields.items() if value is not None}, "endedAt": "$$NOW"}
    }


def _of(number: int) -> Document:
    return {"_id": {"$gte": str(number) + SEPARATOR, "$lt": str(number) + _AFTER_SEPARATOR}}
