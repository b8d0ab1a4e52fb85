"""Search for processes, in order of id, a page at a time.

A search has two steps. First, candidates are read in order of id, if possible from a collection with few of them:
broken processes, results of operations, otherwise processes that match the conditions on Process records. Second, each
term that the candidates do not answer already is queried for a batch of candidates, one query per term, and the results
are combined as sets. Therefore any search needs memory for one batch only.

All queries have read concern majority.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from pymongo.database import Database

from recovery.records.ids import AFTER_SEPARATOR, split_record_id
from recovery.search import All, And, Node, Not, Or, Query, Term
from recovery.store import schema
from recovery.store.client import Document
from recovery.store.concerns import committed
from recovery.store.driver_errors import translated
from recovery.store.expressions import record_ranges
from recovery.store.views.ranges import KEY, Range
from recovery.store.views.search_plans import SearchPlan, SearchSource, plan_of, sources

BATCH = 200
"""Maximum number of candidates per query. A query of task records has one range per candidate."""
SLOW_FROM = 50_000
"""Number of processes that can be examined in about a second. Above it, a search counts as slow."""

_KEYS = {"type": frozenset({"type"}), "running": frozenset({"state", "type"})}
"""Indexes that may match many processes, and the fields that each of them answers."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The expected cost of a search."""

    candidates: tuple[str, ...]
    exact: bool
    slow: bool
    """Whether a page may have to examine more than SLOW_FROM processes."""
    indexed: bool
    """Whether candidates come from an index and not from a scan of the whole collection."""
    processes: int
    """Approximate number of all processes."""


@translated
class Search:
    """Searches for processes. Read concern majority."""

    def __init__(self, database: Database[Document]) -> None:
        self._collections = {name: committed(database[name]) for name in schema.ALL}

    def page(self, query: Query, after: str | None, limit: int, part: Range | None = None) -> list[str]:
        """Return up to `limit` ids of matching processes in order.

        Args:
            query: The parsed search.
            after: Begin after this process id; None: from the beginning.
            limit: Maximum number of ids.
            part: Only processes of this range.
        """
        plan, matches = plan_of(query.tree), list[str]()
        for batch, existing in self._candidates(plan, after, limit if plan.exact else BATCH, part or Range()):
            matches += (
                batch if plan.exact and len(existing) == len(batch) else self._matching(plan.rest, batch, existing)
            )
            if len(matches) >= limit:
                break
        return matches[:limit]

    def newest(self, limit: int, state: str | None = None, process_type: str | None = None) -> list[str]:
        """Return up to `limit` ids of processes in this state and of this type, the newest first.

        Ids are in order of time. Index `type`, `running`, `unsuccessful` or `_id`.
        """
        conditions = {name: value for name, value in (("state", state), ("type", process_type)) if value is not None}
        query = {"_id": {"$gte": ""}, **conditions}
        documents = self._collections[schema.PROCESSES].find(query, KEY).sort("_id", -1).limit(limit)
        return [document["_id"] for document in documents]

    def cost(self, query: Query) -> Cost:
        """Return the expected cost of a search, by MongoDB's plan for the candidates.

        Counts up to SLOW_FROM keys of an index.
        """
        plan, steps = plan_of(query.tree), list[str]()
        slow, indexed = False, True
        volume = self._collections[schema.PROCESSES].estimated_document_count()
        for source in plan.candidates:
            bounds: Document = {source.key: {"$gte": ""}}
            candidate_filter = {"$and": [bounds, source.filter]} if source.filter else bounds
            first = self._collections[source.collection].find(candidate_filter, KEY).sort(source.key, 1).limit(1)
            explanation = (first if source.index is None else first.hint(source.index)).explain()
            index = _index_of(explanation["queryPlanner"]["winningPlan"])
            steps.append(f"{source.collection} by {f'index {index}' if index else 'reading all of it'}")
            skips_some = bool(source.filter) or not plan.exact
            if source.few:
                continue
            if not index or (index == "_id_" and skips_some and not _names_id(source.filter)):
                slow, indexed = slow or volume > SLOW_FROM, False
            elif keys := _KEYS.get(index):
                has_more_conditions = not plan.exact or _conditions(source.filter).keys() - keys
                slow = slow or (bool(has_more_conditions) and self._has_many(source.filter, keys))
        return Cost(tuple(steps), plan.exact, slow, indexed, volume)

    def _has_many(self, filter_: Document, keys: frozenset[str]) -> bool:
        """Return whether more than SLOW_FROM processes match the conditions on fields that the index answers."""
        index_conditions = {name: value for name, value in _conditions(filter_).items() if name in keys}
        return self._collections[schema.PROCESSES].count_documents(index_conditions, limit=SLOW_FROM + 1) > SLOW_FROM

    def _candidates(
        self, plan: SearchPlan, after: str | None, size: int, part: Range
    ) -> Iterator[tuple[list[str], frozenset[str]]]:
        """Yield batches of up to `size` candidates in order, and the set of those known to have a Process record."""
        while True:
            pages = [self._of_source(source, after, size, part) for source in plan.candidates]
            # A source whose page is full may have more ids below the last id of another source.
            ends = [ids[-1] for ids, has_more in pages if has_more]
            last_complete = min(ends) if ends else None
            batch = sorted(
                {
                    process_id
                    for ids, _ in pages
                    for process_id in ids
                    if last_complete is None or process_id <= last_complete
                }
            )
            if len(batch) > size:
                batch = batch[:size]
                last_complete = batch[-1]
            if batch:
                pages_by_source = zip(plan.candidates, pages, strict=True)
                existing = {
                    process_id
                    for source, (ids, _) in pages_by_source
                    if source.collection == schema.PROCESSES
                    for process_id in ids
                }
                yield batch, frozenset(existing.intersection(batch))
            if last_complete is None:
                return
            after = last_complete

    def _of_source(self, source: SearchSource, after: str | None, size: int, part: Range) -> tuple[list[str], bool]:
        """Return the process ids of the source's next records, in order, and whether the page was full.

        After a full page more records may follow.
        """
        bounds = _bounds(after, part)
        own_ids = source.key == "_id"
        query: Document = {source.key: bounds}
        if source.filter:
            query = {"$and": [query, source.filter, *_apart(source.filter)]}
        cursor = self._collections[source.collection].find(query, KEY if own_ids else {source.key: True})
        ids, count = dict[str, None](), 0
        if source.index is not None:
            cursor.hint(source.index)
        for document in cursor.sort(source.key, 1).limit(size):
            count += 1
            key = document.get(source.key)
            if isinstance(key, str):
                ids[split_record_id(key)[0]] = None
        return list(ids), count >= size

    def _matching(self, tree: Node, batch: Sequence[str], existing: frozenset[str]) -> list[str]:
        matches = self._set(tree, frozenset(batch))
        matches = (matches & existing) | self._existing(matches - existing)
        return [process_id for process_id in batch if process_id in matches]

    def _set(self, node: Node, process_ids: frozenset[str]) -> frozenset[str]:
        """Return those of these processes that match."""
        if not process_ids:
            return process_ids
        match node:
            case All():
                return process_ids
            case Not(part):
                return process_ids - self._set(part, process_ids)
            case And(parts):
                for part in parts:
                    process_ids = self._set(part, process_ids)
                return process_ids
            case Or(parts):
                matches = frozenset[str]()
                for part in parts:
                    matches |= self._set(part, process_ids - matches)
                return matches
            case Term():
                return frozenset(
                    process_id for source in sources(node) for process_id in self._true(source, process_ids)
                )

    def _true(self, source: SearchSource, process_ids: Iterable[str]) -> Iterator[str]:
        """Yield those of these processes that have a record of this source."""
        if source.collection in (schema.DECISIONS, schema.INTERRUPTIONS):
            keys: Document = record_ranges(sorted(process_ids))
        else:
            keys = {source.key: {"$in": sorted(process_ids)}}
        cursor = self._collections[source.collection].find(
            {"$and": [keys, source.filter]}, {source.key: True, "_id": True}
        )
        if source.key == "_id":
            cursor.hint("_id_")
        for document in cursor:
            yield split_record_id(document[source.key])[0]

    def _existing(self, process_ids: frozenset[str]) -> frozenset[str]:
        """Return those of these processes that have a Process record. Index `_id_`."""
        if not process_ids:
            return process_ids
        documents = self._collections[schema.PROCESSES].find({"_id": {"$in": sorted(process_ids)}}, KEY).hint("_id_")
        return frozenset(document["_id"] for document in documents)


def _index_of(plan: Document) -> str:
    """Return the index that any stage of a plan uses; empty if the plan reads the collection."""
    if "indexName" in plan:
        return str(plan["indexName"])
    inner = [plan[name] for name in ("inputStage", "queryPlan") if name in plan] + list(plan.get("inputStages", ()))
    return next((index for stage in inner if (index := _index_of(stage))), "")


def _conditions(filter_: Document) -> Document:
    """Return the conditions of a filter that all must hold, by field."""
    conditions = {name: value for name, value in filter_.items() if name != "$and"}
    for part in filter_.get("$and", ()):
        conditions |= _conditions(part)
    return conditions


def _names_id(filter_: Document) -> bool:
    """Return whether a filter has a condition on ids, so that index `_id_` skips nothing."""
    return "_id" in filter_ or any("_id" in part for part in filter_.get("$and", ()))


def _apart(filter_: Document) -> list[Document]:
    """Return a condition that is always true, to keep the cached plans of filters on different states apart.

    MongoDB uses a cached plan for every query of the same shape, and values are not part of the shape. If a state is
    below `$or` or `$nor`, MongoDB does not check whether the plan's partial index covers the other value: a plan for
    running processes would find no broken ones.
    """
    below = [part for name in ("$or", "$nor") for part in filter_.get(name, ())]
    states = sorted({state for part in below for state in _states_in(part)})
    inner = [condition for part in filter_.get("$and", ()) for condition in _apart(part)]
    return [*([{f"never.{'_'.join(states)}": None}] if states else []), *inner]


def _states_in(filter_: Document) -> Iterator[str]:
    """Yield the states that a filter names, at any depth."""
    for name, condition in filter_.items():
        if name == "state":
            values = condition.get("$in", ()) if isinstance(condition, dict) else [condition]
            yield from map(str, values)
        elif name in ("$and", "$or", "$nor"):
            for part in condition:
                yield from _states_in(part)


def _bounds(after: str | None, part: Range) -> Document:
    """Return the bounds for keys of records, `P` or `P/T`, of the processes in a range after this id."""
    bounds: Document = {"$gte": part.start or ""}
    if after is not None:
        bounds = {"$gte": max(part.start or "", after + AFTER_SEPARATOR)}
    if part.end is not None:
        bounds["$lt"] = part.end
    return bounds
