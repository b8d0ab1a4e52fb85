"""Processes by what is asked for, in order of id, a page at a time.

A search is answered in two steps. Candidates come in order of id, from a collection that has few of them if there is
one: all that is broken, what an operation found, or else the processes that match what is asked of Process records.
Then each term that they do not answer already is asked of a batch of candidates, one query each, and the answers are
combined as sets. So any search needs memory for one batch, and nothing is answered that its terms do not say.
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
"""Candidates that are asked about at once: each has a range of its own where records of tasks are asked for."""
SLOW_FROM = 50_000
"""Processes that are gone through in a second or so, which nobody has to be asked about."""

_KEYS = {"type": frozenset({"type"}), "running": frozenset({"state", "type"})}
"""Of the indexes in which there may be many: the fields that they answer."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What a search costs."""

    candidates: tuple[str, ...]
    exact: bool
    slow: bool
    """Whether more than SLOW_FROM processes may have to be gone through for a page."""
    indexed: bool
    """Whether they come from an index, and not from all that exists."""
    processes: int
    """All that exist, about."""


@translated
class Search:
    """Searches, as a majority has what they find."""

    def __init__(self, database: Database[Document]) -> None:
        self._told = {name: committed(database[name]) for name in schema.ALL}

    def page(self, query: Query, after: str | None, limit: int, part: Range | None = None) -> list[str]:
        """Up to `limit` ids of processes that match, in order, after this one; of a range, if one is given. As a
        majority has them."""
        plan, found = plan_of(query.tree), list[str]()
        for batch, there in self._candidates(plan, after, limit if plan.exact else BATCH, part or Range()):
            found += batch if plan.exact and len(there) == len(batch) else self._matching(plan.rest, batch, there)
            if len(found) >= limit:
                break
        return found[:limit]

    def newest(self, limit: int, state: str | None = None, process_type: str | None = None) -> list[str]:
        """Up to `limit` ids of processes in this state and of this type, the newest first, as a majority has them. Ids
        are in order of time: index `type`, `running`, `unsuccessful`, or `_id`."""
        wanted = {name: value for name, value in (("state", state), ("type", process_type)) if value is not None}
        query = {"_id": {"$gte": ""}, **wanted}
        found = self._told[schema.PROCESSES].find(query, KEY).sort("_id", -1).limit(limit)
        return [document["_id"] for document in found]

    def cost(self, query: Query) -> Cost:
        """What a search costs: the indexes that its candidates come from, and whether many processes may be gone
        through for a page of it. Up to SLOW_FROM keys of an index are counted for that."""
        plan, steps = plan_of(query.tree), list[str]()
        slow, indexed = False, True
        volume = self._told[schema.PROCESSES].estimated_document_count()
        for source in plan.candidates:
            bounds: Document = {source.key: {"$gte": ""}}
            asked = {"$and": [bounds, source.filter]} if source.filter else bounds
            first = self._told[source.collection].find(asked, KEY).sort(source.key, 1).limit(1)
            told = (first if source.index is None else first.hint(source.index)).explain()
            index = _index_of(told["queryPlanner"]["winningPlan"])
            steps.append(f"{source.collection} by {f'index {index}' if index else 'reading all of it'}")
            passes_over = bool(source.filter) or not plan.exact
            if source.few:
                continue
            if not index or (index == "_id_" and passes_over and not _names_id(source.filter)):
                slow, indexed = slow or volume > SLOW_FROM, False
            elif keys := _KEYS.get(index):
                asked_more = not plan.exact or _conditions(source.filter).keys() - keys
                slow = slow or (bool(asked_more) and self._has_many(source.filter, keys))
        return Cost(tuple(steps), plan.exact, slow, indexed, volume)

    def _has_many(self, wanted: Document, keys: frozenset[str]) -> bool:
        """Whether more than SLOW_FROM processes have what is wanted of these fields, which an index has."""
        among = {name: value for name, value in _conditions(wanted).items() if name in keys}
        return self._told[schema.PROCESSES].count_documents(among, limit=SLOW_FROM + 1) > SLOW_FROM

    def _candidates(
        self, plan: SearchPlan, after: str | None, size: int, part: Range
    ) -> Iterator[tuple[list[str], frozenset[str]]]:
        """Up to `size` candidates, in order, and those of them that are known to have a Process record."""
        while True:
            pages = [self._of_source(source, after, size, part) for source in plan.candidates]
            # A source that was cut off may have more before the last id of another.
            ends = [ids[-1] for ids, more in pages if more]
            until = min(ends) if ends else None
            batch = sorted({one for ids, _ in pages for one in ids if until is None or one <= until})
            if len(batch) > size:
                batch = batch[:size]
                until = batch[-1]
            if batch:
                those = zip(plan.candidates, pages, strict=True)
                there = {one for source, (ids, _) in those if source.collection == schema.PROCESSES for one in ids}
                yield batch, frozenset(there.intersection(batch))
            if until is None:
                return
            after = until

    def _of_source(self, source: SearchSource, after: str | None, size: int, part: Range) -> tuple[list[str], bool]:
        """Ids of processes with a record of this source, in order, and whether there are more."""
        bounds = _bounds(after, part)
        own_ids = source.key == "_id"
        query: Document = {source.key: bounds}
        if source.filter:
            query = {"$and": [query, source.filter, *_apart(source.filter)]}
        found = self._told[source.collection].find(query, KEY if own_ids else {source.key: True})
        ids, read = dict[str, None](), 0
        if source.index is not None:
            found.hint(source.index)
        for document in found.sort(source.key, 1).limit(size):
            read += 1
            key = document.get(source.key)
            if isinstance(key, str):
                ids[split_record_id(key)[0]] = None
        return list(ids), read >= size

    def _matching(self, tree: Node, batch: Sequence[str], there: frozenset[str]) -> list[str]:
        found = self._set(tree, frozenset(batch))
        found = (found & there) | self._there(found - there)
        return [one for one in batch if one in found]

    def _set(self, node: Node, among: frozenset[str]) -> frozenset[str]:
        """Return which of these processes match."""
        if not among:
            return among
        match node:
            case All():
                return among
            case Not(part):
                return among - self._set(part, among)
            case And(parts):
                for part in parts:
                    among = self._set(part, among)
                return among
            case Or(parts):
                found = frozenset[str]()
                for part in parts:
                    found |= self._set(part, among - found)
                return found
            case Term():
                return frozenset(one for source in sources(node) for one in self._true(source, among))

    def _true(self, source: SearchSource, among: Iterable[str]) -> Iterator[str]:
        """Those of these processes that have a record of this source."""
        if source.collection in (schema.DECISIONS, schema.INTERRUPTIONS):
            those: Document = record_ranges(sorted(among))
        else:
            those = {source.key: {"$in": sorted(among)}}
        found = self._told[source.collection].find({"$and": [those, source.filter]}, {source.key: True, "_id": True})
        if source.key == "_id":
            found.hint("_id_")
        for document in found:
            yield split_record_id(document[source.key])[0]

    def _there(self, among: frozenset[str]) -> frozenset[str]:
        """Return those of these processes that have a Process record."""
        if not among:
            return among
        found = self._told[schema.PROCESSES].find({"_id": {"$in": sorted(among)}}, KEY).hint("_id_")
        return frozenset(document["_id"] for document in found)


def _index_of(plan: Document) -> str:
    """The index that a plan uses, of any stage; none if it reads the collection."""
    if "indexName" in plan:
        return str(plan["indexName"])
    inner = [plan[name] for name in ("inputStage", "queryPlan") if name in plan] + list(plan.get("inputStages", ()))
    return next((index for stage in inner if (index := _index_of(stage))), "")


def _conditions(wanted: Document) -> Document:
    """The conditions of a filter that all must hold, by field."""
    found = {name: value for name, value in wanted.items() if name != "$and"}
    for part in wanted.get("$and", ()):
        found |= _conditions(part)
    return found


def _names_id(wanted: Document) -> bool:
    """Whether a filter is about ids, whose index then passes over nothing."""
    return "_id" in wanted or any("_id" in part for part in wanted.get("$and", ()))


def _apart(wanted: Document) -> list[Document]:
    """Return a condition that is always true, to keep the cached plans of filters on different states apart.

    MongoDB takes a cached plan for every query of the same shape, and the values are not part of the shape. Where a
    state stands below an `$or` or `$nor`, it does not look whether the plan's partial index covers the other value:
    a plan for what runs then finds nothing of what is broken.
    """
    below = [part for name in ("$or", "$nor") for part in wanted.get(name, ())]
    states = sorted({state for part in below for state in _states_in(part)})
    inner = [one for part in wanted.get("$and", ()) for one in _apart(part)]
    return [*([{f"never.{'_'.join(states)}": None}] if states else []), *inner]


def _states_in(wanted: Document) -> Iterator[str]:
    """Yield the states that a filter names, at any depth."""
    for name, condition in wanted.items():
        if name == "state":
            among = condition.get("$in", ()) if isinstance(condition, dict) else [condition]
            yield from map(str, among)
        elif name in ("$and", "$or", "$nor"):
            for part in condition:
                yield from _states_in(part)


def _bounds(after: str | None, part: Range) -> Document:
    """The keys of records, `P` or `P/T`, of the processes of a range after this one."""
    bounds: Document = {"$gte": part.start or ""}
    if after is not None:
        bounds = {"$gte": max(part.start or "", after + AFTER_SEPARATOR)}
    if part.end is not None:
        bounds["$lt"] = part.end
    return bounds
