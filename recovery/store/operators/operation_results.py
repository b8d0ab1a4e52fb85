"""Queries and updates of what operations found on, and did to, single processes.

A plan is these records: `apply` runs what stands here, and nothing else. Each is written once as found, and then ends
once, by a compare-and-set on `found`; so the totals of an operation are counted from here, and not from who did what.
They are counted by aggregations, which no spoilt result stops: a map of counts that is none counts nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from pymongo import UpdateMany, UpdateOne
from pymongo.collection import Collection
from pymongo.errors import BulkWriteError

from recovery.errors import DamagedRecord
from recovery.records import OperationResult, ResultState, Sum, Totals, to_document
from recovery.records.ids import AFTER_SEPARATOR, SEPARATOR
from recovery.records.operation_parts import result_id
from recovery.store.client import Document
from recovery.store.concerns import committed
from recovery.store.driver_errors import translated
from recovery.store.expressions import literal
from recovery.store.lifecycle.tasks import insert_missing
from recovery.store.record_reading import Read, read, readable

FOUND = ResultState.FOUND.value
ERROR_LENGTH = 500

_COUNTED = {
    "done": ResultState.DONE,
    "nothing": ResultState.NOTHING,
    "changed": ResultState.CHANGED,
    "errors": ResultState.ERROR,
}
_WHOLE = {"$type": ["int", "long"]}


@dataclass(frozen=True, slots=True)
class PlannedPage:
    """A page of a plan. What can't be read is on it as well, or whoever reads page after page would end with it."""

    read: Read[OperationResult] = field(default_factory=Read)
    last: str | None = None
    """The process of its last result."""


@translated
class OperationResults:
    """The collection `operationResults`."""

    def __init__(self, collection: Collection[Document]) -> None:
        self._results = committed(collection)

    def insert(self, results: Sequence[OperationResult]) -> None:
        """Save what was found; what was saved before, by somebody who was cut off, stays. In the plan it is with the
        second step: MongoDB's own clock says when."""
        if not results:
            return
        insert_missing(self._results, [to_document(one) for one in results])
        unsaved = {"_id": {"$in": [one.id for one in results]}, "savedAt": None}
        self._results.update_many(unsaved, [{"$set": {"savedAt": "$$NOW"}}], hint="_id_")

    def planned(
        self,
        number: int,
        after: str | None,
        limit: int,
        start: str | None,
        end: str | None,
        only: Sequence[str],
        but: Sequence[str],
    ) -> PlannedPage:
        """Results in order of process id: after one, from `start` up to, not including, `end`; of the types `only`, or
        of all but some. Index `_id`."""
        prefix = str(number) + SEPARATOR
        bounds: Document = {"$gt": prefix + after} if after is not None else {"$gte": prefix + (start or "")}
        bounds["$lt"] = prefix + end if end is not None else str(number) + AFTER_SEPARATOR
        query: Document = {"_id": bounds}
        if only or but:
            query["type"] = {"$in": list(only)} if only else {"$nin": list(but)}
        page = self._results.find(query).sort("_id", 1).hint("_id_").limit(limit).to_list()
        last = page[-1]["_id"].partition(SEPARATOR)[2] if page else None
        return PlannedPage(read(OperationResult, page), last)

    def begin(self, results: Iterable[OperationResult]) -> None:
        """Write down that what is planned is about to be done: whoever finds it changed knows by whom it may be."""
        self._results.update_many(
            {"_id": {"$in": [one.id for one in results]}, "state": FOUND}, {"$set": {"begun": True}}, hint="_id_"
        )

    def end(self, results: Sequence[OperationResult]) -> None:
        """found → what became of it, of each that has not ended. Those that ended alike, as most do, by one update."""
        alike: dict[str, list[OperationResult]] = defaultdict(list)
        for one in results:
            alike[repr((one.state.value, one.after, one.error, one.repaired))].append(one)
        updates = [
            UpdateMany({"_id": {"$in": [one.id for one in some]}, "state": FOUND}, [_ended(some[0])], hint="_id_")
            for some in alike.values()
        ]
        try:
            if updates:
                self._results.bulk_write(updates, ordered=False)
        except BulkWriteError:  # an update of many ends at the first that can't be written; one by one that one does
            each = [UpdateOne({"_id": one.id, "state": FOUND}, [_ended(one)]) for one in results]
            self._results.bulk_write(each, ordered=False)

    def end_damaged(self, damaged: Iterable[DamagedRecord]) -> None:
        """What can't be read can't be carried out: it ends as an error, whatever its state is. May be run again."""
        for damage in damaged:
            fields = {"state": ResultState.ERROR.value, "error": literal(str(damage)[:ERROR_LENGTH])}
            unended = {"_id": damage.record, "endedAt": None}
            ended = [{"$set": {**fields, "endedAt": "$$NOW"}}]
            self._results.update_one(unended, ended, bypass_document_validation=True)

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
        return totals_of(next(iter(self._results.aggregate(totals_stages(_of(number))))))

    def sums(self, number: int, most: int) -> tuple[Sum, ...]:
        """Findings by type, rule and actor, the largest first. Reads all of the operation."""
        return sums_of(self._results.aggregate(sums_stages(_of(number), most)))


def _ended(result: OperationResult) -> Document:
    fields: dict[str, Any] = {"state": result.state.value}
    fields |= {"after": result.after, "error": result.error}
    fields |= {"repaired": result.repaired or None}
    return {
        "$set": {**{name: literal(value) for name, value in fields.items() if value is not None}, "endedAt": "$$NOW"}
    }


def _of(number: int) -> Document:
    return {"_id": {"$gte": str(number) + SEPARATOR, "$lt": str(number) + AFTER_SEPARATOR}}


def totals_stages(chosen: Document) -> list[Document]:
    """Count the results chosen by state, rule and type."""
    of = {"rulesFound": _of_type("$counts", "object", {}), "repaired": _of_type("$repaired", "object", {})}
    facets: Document = {
        "states": [{"$group": {"_id": "$state", "count": {"$sum": 1}}}],
        "types": [{"$group": {"_id": "$type", "count": {"$sum": 1}}}],
        "rules": _by_name("$rulesFound"),
        "repaired": _by_name("$repaired"),
    }
    read = {"state": _of_type("$state", "string", ""), "type": _of_type("$type", "string", "")}
    return [{"$match": chosen}, {"$project": read | of}, {"$facet": facets}]


def totals_of(found: Document) -> Totals:
    """Return the totals in the answer to `totals_stages`."""
    by = {name: {row["_id"]: int(row["count"]) for row in rows} for name, rows in found.items()}
    states = by["states"]
    return Totals(
        found=sum(states.values()),
        **{name: states.get(state.value, 0) for name, state in _COUNTED.items()},
        rules=by["rules"],
        repaired=by["repaired"],
        types=by["types"],
    )


def sums_stages(chosen: Document, most: int) -> list[Document]:
    """Count the findings of the results chosen by type, rule and actor, the largest first."""
    by = {
        "type": _of_type("$type", "string", ""),
        "rule": "$tally.rule",
        "actor": _of_type("$tally.actor", "string", None),
    }
    return [
        {"$match": chosen},
        {"$project": {"type": True, "tally": _of_type("$tally", "array", [])}},
        {"$unwind": "$tally"},
        {"$match": {"tally.rule": {"$type": "string"}, "tally.count": _WHOLE}},
        {"$group": {"_id": by, "count": {"$sum": "$tally.count"}}},
        {"$sort": {"count": -1, "_id": 1}},
        {"$limit": most},
    ]


def sums_of(rows: Iterable[Document]) -> tuple[Sum, ...]:
    """Return the sums in the answer to `sums_stages`."""
    return tuple(
        Sum(type=of["type"], rule=of["rule"], actor=of.get("actor"), count=int(row["count"]))
        for row in rows
        for of in [row["_id"]]
    )


def _by_name(field: str) -> list[Document]:
    """Sums of maps {name: count} over all results."""
    return [
        {"$project": {"pairs": {"$objectToArray": field}}},
        {"$unwind": "$pairs"},
        {"$match": {"pairs.v": _WHOLE}},
        {"$group": {"_id": "$pairs.k", "count": {"$sum": "$pairs.v"}}},
        {"$sort": {"count": -1, "_id": 1}},
    ]


def _of_type(field: str, kind: str, otherwise: object) -> Document:
    return {"$cond": [{"$eq": [{"$type": field}, kind]}, field, otherwise]}
