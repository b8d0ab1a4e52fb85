"""Queries and updates of operation results: what an operation found on a process, and what it did to it.

These records are the plan: `apply` carries out the planned results and nothing else. A result is inserted once as
found, and ends once by a compare-and-set on that state. Therefore the totals of an operation are counted from here and
not from what workers report. A damaged result does not stop the aggregations that count: a damaged map of counts is
counted as empty.

All reads have read concern majority; all writes are acknowledged by a majority.
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
    """A page of a plan, including results that can't be read, so that a reader does not stop at them."""

    read: Read[OperationResult] = field(default_factory=Read)
    last: str | None = None
    """The process id of the page's last result; None if the page is empty."""


@translated
class OperationResults:
    """The collection `operationResults`."""

    def __init__(self, collection: Collection[Document]) -> None:
        self._results = committed(collection)

    def insert(self, results: Sequence[OperationResult]) -> None:
        """Save results as found. Results that exist already, saved by an interrupted worker, are kept.

        A second update sets `savedAt` by the database's clock. A result belongs to the plan only after it.
        """
        if not results:
            return
        insert_missing(self._results, [to_document(result) for result in results])
        unsaved = {"_id": {"$in": [result.id for result in results]}, "savedAt": None}
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
        """Return the next page of results in order of process id. Index `_id`.

        Args:
            number: The operation.
            after: Begin after this process id; None: begin at `start`.
            limit: Maximum number of results.
            start: First process id; None: no lower bound.
            end: End before this process id; None: no upper bound.
            only: Only these process types, if any are given.
            but: All process types except these; ignored if `only` is given.
        """
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
        """Record that these results are about to be applied, if they are still in state found.

        Whoever sees a changed process can then tell by which operation it may have been changed.
        """
        self._results.update_many(
            {"_id": {"$in": [result.id for result in results]}, "state": FOUND}, {"$set": {"begun": True}}, hint="_id_"
        )

    def end(self, results: Sequence[OperationResult]) -> None:
        """Save the outcome of results that are in state found. Results with equal outcomes share one update."""
        groups: dict[str, list[OperationResult]] = defaultdict(list)
        for result in results:
            groups[repr((result.state.value, result.after, result.error, result.repaired))].append(result)
        updates = [
            UpdateMany(
                {"_id": {"$in": [result.id for result in group]}, "state": FOUND}, [_ended(group[0])], hint="_id_"
            )
            for group in groups.values()
        ]
        try:
            if updates:
                self._results.bulk_write(updates, ordered=False)
        except BulkWriteError:  # `update_many` stops at the first result that can't be written
            single_updates = [UpdateOne({"_id": result.id, "state": FOUND}, [_ended(result)]) for result in results]
            self._results.bulk_write(single_updates, ordered=False)

    def end_damaged(self, damaged: Iterable[DamagedRecord]) -> None:
        """End results that can't be read as errors, whatever their state. Ended results are skipped. Repeatable."""
        for damage in damaged:
            fields = {"state": ResultState.ERROR.value, "error": literal(str(damage)[:ERROR_LENGTH])}
            unended = {"_id": damage.record, "endedAt": None}
            ended = [{"$set": {**fields, "endedAt": "$$NOW"}}]
            self._results.update_one(unended, ended, bypass_document_validation=True)

    def walk(self, number: int, step: int) -> list[str]:
        """Return every `step`-th process id of an operation's results, in order. Reads only the keys of index `_id`."""
        process_ids: list[str] = []
        bounds = dict(_of(number)["_id"])
        while True:
            query = self._results.find({"_id": bounds}, {"_id": True}).sort("_id", 1).hint("_id_")
            boundary = next(query.skip(step - 1).limit(1), None)
            if boundary is None:
                return process_ids
            process_ids.append(boundary["_id"].partition(SEPARATOR)[2])
            bounds = {"$gt": boundary["_id"], "$lt": bounds["$lt"]}

    def pages(
        self, number: int, states: Sequence[ResultState] = (), size: int = 1000
    ) -> Iterator[list[OperationResult]]:
        """Yield all readable results of an operation in order of process id, in pages of at most `size`.

        Index `_id`.
        """
        query: Document = _of(number)
        if states:
            query["state"] = {"$in": [state.value for state in states]}
        cursor = self._results.find(query, batch_size=size).sort("_id", 1).hint("_id_")
        while page := cursor.to_list(size):
            if results := list(readable(OperationResult, page)):
                yield results

    def of_process(self, process_id: str) -> list[OperationResult]:
        """Return the last 100 results of any operation for a process, the newest operation first. Index `process`."""
        return list(
            readable(OperationResult, self._results.find({"process": process_id}).sort("operation", -1).limit(100))
        )

    def among(self, number: int, process_ids: Sequence[str], states: Sequence[ResultState]) -> list[str]:
        """Return those of these processes that have a result of the operation in one of these states. Index `_id`."""
        query = {
            "_id": {"$in": [result_id(number, process_id) for process_id in process_ids]},
            "state": {"$in": [state.value for state in states]},
        }
        return [document["process"] for document in self._results.find(query, {"process": True})]

    def totals(self, number: int) -> Totals:
        """Return the totals of an operation by state, rule and type. Reads all of its results.

        The number of processes examined is not known here.
        """
        return totals_of(next(iter(self._results.aggregate(totals_stages(_of(number))))))

    def sums(self, number: int, most: int) -> tuple[Sum, ...]:
        """Return up to `most` sums of findings by type, rule and actor, the largest first. Reads all of its results."""
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
    """Return stages that count the chosen results by state, rule and type."""
    count_maps = {"rulesFound": _of_type("$counts", "object", {}), "repaired": _of_type("$repaired", "object", {})}
    facets: Document = {
        "states": [{"$group": {"_id": "$state", "count": {"$sum": 1}}}],
        "types": [{"$group": {"_id": "$type", "count": {"$sum": 1}}}],
        "rules": _by_name("$rulesFound"),
        "repaired": _by_name("$repaired"),
    }
    group_fields = {"state": _of_type("$state", "string", ""), "type": _of_type("$type", "string", "")}
    return [{"$match": chosen}, {"$project": group_fields | count_maps}, {"$facet": facets}]


def totals_of(found: Document) -> Totals:
    """Return the totals from the result of `totals_stages`."""
    counts = {name: {row["_id"]: int(row["count"]) for row in rows} for name, rows in found.items()}
    states = counts["states"]
    return Totals(
        found=sum(states.values()),
        **{name: states.get(state.value, 0) for name, state in _COUNTED.items()},
        rules=counts["rules"],
        repaired=counts["repaired"],
        types=counts["types"],
    )


def sums_stages(chosen: Document, most: int) -> list[Document]:
    """Return stages that count the findings of the chosen results by type, rule and actor, the largest first."""
    group_key = {
        "type": _of_type("$type", "string", ""),
        "rule": "$tally.rule",
        "actor": _of_type("$tally.actor", "string", None),
    }
    return [
        {"$match": chosen},
        {"$project": {"type": True, "tally": _of_type("$tally", "array", [])}},
        {"$unwind": "$tally"},
        {"$match": {"tally.rule": {"$type": "string"}, "tally.count": _WHOLE}},
        {"$group": {"_id": group_key, "count": {"$sum": "$tally.count"}}},
        {"$sort": {"count": -1, "_id": 1}},
        {"$limit": most},
    ]


def sums_of(rows: Iterable[Document]) -> tuple[Sum, ...]:
    """Return the sums from the result of `sums_stages`."""
    return tuple(
        Sum(type=group["type"], rule=group["rule"], actor=group.get("actor"), count=int(row["count"]))
        for row in rows
        for group in [row["_id"]]
    )


def _by_name(field: str) -> list[Document]:
    """Return stages that sum maps {name: count} over all results. Ignores counts that are not whole numbers."""
    return [
        {"$project": {"pairs": {"$objectToArray": field}}},
        {"$unwind": "$pairs"},
        {"$match": {"pairs.v": _WHOLE}},
        {"$group": {"_id": "$pairs.k", "count": {"$sum": "$pairs.v"}}},
        {"$sort": {"count": -1, "_id": 1}},
    ]


def _of_type(field: str, kind: str, otherwise: object) -> Document:
    return {"$cond": [{"$eq": [{"$type": field}, kind]}, field, otherwise]}
