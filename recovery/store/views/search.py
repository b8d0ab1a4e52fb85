"""Processes by what is asked for, in order of id, a page at a time.

A search is answered in two steps. Candidates come in order of id, from a collection that has few of them if there is
one: all that is broken, what an operation found, or else the processes that match what is asked of Process records.
Then each term is asked of a batch of candidates, one query each, and the answers are combined as sets. So any search
needs memory for one batch, and nothing is answered that its terms do not say.
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
from recovery.store.expressions import record_range
from recovery.store.views.ranges import KEY, Range
from recovery.store.views.search_terms import Source, sources

BATCH = 200
"""Candidates that are asked about at once: each has a range of its own where records of tasks are asked for."""
EVERYTHING: Document = {}
SLOW_FROM = 50_000
"""Processes that are gone through in a second or so, which nobody has to be asked about."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How a search is answered."""

    candidates: tuple[Source, ...]
    exact: bool
    """Whether candidates are the answer, and nothing else is asked."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What a search costs."""

    candidates: tuple[str, ...]
    exact: bool
    slow: bool
    """Whether all processes may have to be gone through, and there are many."""
    processes: int


@translated
class Search:
    """Searches, as a majority has what they find."""

    def __init__(self, database: Database[Document]) -> None:
        self._told = {name: committed(database[name]) for name in schema.VALIDATORS}

    def page(self, query: Query, after: str | None, limit: int, part: Range | None = None) -> list[str]:
        """Up to `limit` ids of processes that match, in order, after this one; of a range, if one is given. As a
        majority has them."""
        plan, found = plan_of(query.tree), list[str]()
        for batch in self._candidates(plan, after, limit if plan.exact else BATCH, part or Range()):
            found += batch if plan.exact else self._matching(query.tree, batch)
            if len(found) >= limit:
                break
        return found[:limit]

    def newest(self, limit: int, state: str | None = None, process_type: str | None = None) -> list[str]:
        """Up to `limit` ids of processes in this state and of this type, the newest first, as a majority has them. Ids
        are in order of time: index `_id`, or that of what is broken or aborted."""
        wanted = {name: value for name, value in (("state", state), ("type", process_type)) if value is not None}
        query = {"_id": {"$gte": ""}, **wanted}
        found = self._told[schema.PROCESSES].find(query, KEY).sort("_id", -1).limit(limit)
        return [document["_id"] for document in found]

    def cost(self, query: Query) -> Cost:
        """What a search costs: the indexes that its candidates come from, and whether all processes may be gone through
        for a page of it."""
        plan, steps = plan_of(query.tree), list[str]()
        slow = False
        for source in plan.candidates:
            bounds: Document = {source.key: {"$gte": ""}}
            asked = {"$and": [bounds, source.filter]} if source.filter else bounds
            told = self._told[source.collection].find(asked, KEY).sort(source.key, 1).limit(1).explain()
            index = _index_of(told["queryPlanner"]["winningPlan"])
            steps.append(f"{source.collection} by {f'index {index}' if index else 'reading all of it'}")
            passes_over = bool(source.filter) or not plan.exact
            slow |= not index or (index == "_id_" and passes_over and not _names_id(source.filter))
        volume = self._told[schema.PROCESSES].estimated_document_count()
        return Cost(tuple(steps), plan.exact, slow and volume > SLOW_FROM, volume)

    def _candidates(self, plan: Plan, after: str | None, size: int, part: Range) -> Iterator[list[str]]:
        while True:
            pages = [self._of_source(source, after, size, part) for source in plan.candidates]
            # A source that was cut off may have more before the last id of another.
            ends = [ids[-1] for ids, more in pages if more]
            until = min(ends) if ends else None
            batch = sorted({one for ids, _ in pages for one in ids if until is None or one <= until})
            if batch:
                yield batch
            if until is None:
                return
            after = until

    def _of_source(self, source: Source, after: str | None, size: int, part: Range) -> tuple[list[str], bool]:
        """Ids of processes with a record of this source, in order, and whether there are more."""
        bounds = _bounds(after, part)
        own_ids = source.key == "_id"
        query = {"$and": [{source.key: bounds}, source.filter]} if source.filter else {source.key: bounds}
        found = self._told[source.collection].find(query, KEY if own_ids else {source.key: True})
        ids, read = dict[str, None](), 0
        for document in found.sort(source.key, 1).limit(size):
            read += 1
            key = document.get(source.key)
            if isinstance(key, str):
                ids[split_record_id(key)[0]] = None
        return list(ids), read >= size

    def _matching(self, tree: Node, batch: Sequence[str]) -> list[str]:
        found = self._there(self._set(tree, frozenset(batch)))
        return [one for one in batch if one in found]

    def _set(self, node: Node, among: frozenset[str]) -> frozenset[str]:
        """Which of these processes match."""
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

    def _true(self, source: Source, among: Iterable[str]) -> Iterator[str]:
        """Those of these processes that have a record of this source."""
        if source.collection in (schema.DECISIONS, schema.INTERRUPTIONS):
            those: Document = {"$or": [record_range(one) for one in sorted(among)]}
        else:
            those = {source.key: {"$in": sorted(among)}}
        found = self._told[source.collection].find({"$and": [those, source.filter]}, {source.key: True, "_id": True})
        if source.key == "_id":
            found.hint("_id_")
        for document in found:
            yield split_record_id(document[source.key])[0]

    def _there(self, among: frozenset[str]) -> frozenset[str]:
        """Those of these that have a Process record."""
        found = self._told[schema.PROCESSES].find({"_id": {"$in": sorted(among)}}, KEY).hint("_id_")
        return frozenset(document["_id"] for document in found)


def _index_of(plan: Document) -> str:
    """The index that a plan uses, of any stage; none if it reads the collection."""
    if "indexName" in plan:
        return str(plan["indexName"])
    inner = [plan[name] for name in ("inputStage", "queryPlan") if name in plan] + list(plan.get("inputStages", ()))
    return next((index for stage in inner if (index := _index_of(stage))), "")


def _names_id(wanted: Document) -> bool:
    """Whether a filter is about ids, whose index then passes over nothing."""
    return "_id" in wanted or any("_id" in part for part in wanted.get("$and", ()))


def plan_of(tree: Node) -> Plan:
    """How a search is answered."""
    few = _few(tree)
    if few is not None:
        return Plan(tuple(few), exact=False)
    plain, exact = _plain(tree)
    return Plan((Source(schema.PROCESSES, plain),), exact)


def _few(node: Node) -> list[Source] | None:
    """Sources of what is wrong, outside of which nothing can match; None if there are none."""
    match node:
        case Term():
            own = sources(node)
            return own if all(source.few for source in own) else None
        case And(parts):
            found = [few for part in parts if (few := _few(part)) is not None]
            return min(found, key=len) if found else None
        case Or(parts):
            each = [_few(part) for part in parts]
            return [source for few in each for source in few or ()] if all(few is not None for few in each) else None
    return None


def _plain(node: Node) -> tuple[Document, bool]:
    """A filter of Process records that everything that matches passes, and whether nothing else does."""
    match node:
        case All():
            return EVERYTHING, True
        case Term():
            own = sources(node)
            if len(own) == 1 and own[0].collection == schema.PROCESSES:
                return own[0].filter, True
            return EVERYTHING, False
        case And(parts):
            each = [_plain(part) for part in parts]
            filters = [plain for plain, _ in each if plain]
            return ({"$and": filters} if filters else EVERYTHING), all(exact for _, exact in each)
        case Or(parts):
            each = [_plain(part) for part in parts]
            if all(plain for plain, _ in each):
                return {"$or": [plain for plain, _ in each]}, all(exact for _, exact in each)
            return EVERYTHING, False
        case Not(part):
            plain, exact = _plain(part)
            return ({"$nor": [plain]}, True) if exact and plain else (EVERYTHING, False)


def _bounds(after: str | None, part: Range) -> Document:
    """The keys of records, `P` or `P/T`, of the processes of a range after this one."""
    bounds: Document = {"$gte": part.start or ""}
    if after is not None:
        bounds = {"$gte": max(part.start or "", after + AFTER_SEPARATOR)}
    if part.end is not None:
        bounds["$lt"] = part.end
    return bounds
