"""Plans of searches.

`plan_of` chooses the collection for the candidates and the remaining conditions. `sources` translates a term of the
search language into collections and filters.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from recovery.records import UNSUCCESSFUL_PROCESSES, UNTAKEN_DECISIONS, DecisionState
from recovery.records.search_names import label_text
from recovery.search import All, And, Node, Not, Or, Term
from recovery.search.query import Comparison
from recovery.store import schema
from recovery.store.client import Document
from recovery.store.expressions import OVERDUE, after

_SIGNS = {
    Comparison.ABOVE: "$gt",
    Comparison.BELOW: "$lt",
    Comparison.AT_LEAST: "$gte",
    Comparison.AT_MOST: "$lte",
    Comparison.IS: "$eq",
}
EVERYTHING: Document = {}
UNSUCCESSFUL = [state.value for state in UNSUCCESSFUL_PROCESSES]
_OPEN = [state.value for state in UNTAKEN_DECISIONS]

_PROCESS = {"type": "type", "state": "state", "id": "_id", "key": "key"}


@dataclass(frozen=True, slots=True)
class SearchSource:
    """A filter of one collection. A term is true for the processes of the matching records."""

    collection: str
    filter: Document
    key: str = "_id"
    """The field with the process id, alone or as `P/T`."""
    few: bool = False
    """Whether only exceptional records match, so that they are found without examining all processes."""
    index: str | None = None
    """The index to use, whose few matches are then sorted; None: MongoDB chooses."""


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """A plan of a search."""

    candidates: tuple[SearchSource, ...]
    rest: Node
    """The conditions that candidates must still be checked for."""

    @property
    def exact(self) -> bool:
        """Whether all candidates with a Process record match."""
        return self.rest == All()


def plan_of(tree: Node) -> SearchPlan:
    """Return the plan of a search."""
    filter_, exact = _plain(tree)
    rest = All() if exact else tree
    few, rest_of_few = _few(tree)
    if few is None or (exact and all(source.collection == schema.PROCESSES for source in few)):
        return SearchPlan((SearchSource(schema.PROCESSES, filter_, few=few is not None),), rest)
    return SearchPlan(tuple(few), rest_of_few)


def _few(node: Node) -> tuple[list[SearchSource] | None, Node]:
    """Return sources that together contain every match, and the conditions that are still to be checked.

    With such sources not every process has to be examined. The first value is None if the search has no such sources.
    """
    match node:
        case Term():
            own = sources(node)
            return (own, All()) if all(source.few for source in own) else (None, node)
        case And(parts):
            choices = [
                (few, remaining, position)
                for position, part in enumerate(parts)
                for few, remaining in [_few(part)]
                if few
            ]
            if not choices:
                return None, node
            few, remaining, position = min(choices, key=lambda choice: len(choice[0]))
            others = [*parts[:position], *parts[position + 1 :]]
            return few, And((remaining, *others) if remaining != All() else tuple(others))
        case Or(parts):
            part_results = [_few(part) for part in parts]
            if not all(few for few, _ in part_results):
                return None, node
            return [source for few, _ in part_results for source in few or ()], All() if all(
                remaining == All() for _, remaining in part_results
            ) else node
    return None, node


def _plain(node: Node) -> tuple[Document, bool]:
    """Return a filter of Process records that excludes no match, and whether it is exact."""
    match node:
        case All():
            return EVERYTHING, True
        case Term():
            own = sources(node)
            if len(own) == 1 and own[0].collection == schema.PROCESSES:
                return own[0].filter, True
            return EVERYTHING, False
        case And(parts):
            parts_filters = [_plain(part) for part in parts]
            filters = [filter_ for filter_, _ in parts_filters if filter_]
            return ({"$and": filters} if filters else EVERYTHING), all(exact for _, exact in parts_filters)
        case Or(parts):
            parts_filters = [_plain(part) for part in parts]
            if all(filter_ for filter_, _ in parts_filters):
                return {"$or": [filter_ for filter_, _ in parts_filters]}, all(exact for _, exact in parts_filters)
            return EVERYTHING, False
        case Not(part):
            filter_, exact = _plain(part)
            return ({"$nor": [filter_]}, True) if exact and filter_ else (EVERYTHING, False)


def sources(term: Term) -> list[SearchSource]:
    """Return the sources of a term: it is true for processes that have a record in any of them.

    A single source in `processes` is a plain filter.
    """
    return _SOURCES[term.field](term)


def _of_process(term: Term) -> list[SearchSource]:
    return [SearchSource(schema.PROCESSES, {_PROCESS[term.field]: _text(term)})]


def _of_custom_id(term: Term) -> list[SearchSource]:
    if term.comparison is not Comparison.IS:
        either = [{name: _text(term)} for name in ("customId", "formerCustomId")]
        return [SearchSource(schema.PROCESSES, {"$or": either})]
    # With a condition on type, the first field of the index, MongoDB seeks once per type.
    current: Document = {"type": {"$gte": ""}, "customId": term.value}
    return [
        SearchSource(schema.PROCESSES, current, few=True),
        SearchSource(schema.PROCESSES, {"formerCustomId": term.value}, few=True),
    ]


def _of_label(term: Term) -> list[SearchSource]:
    labels = _text(Term(term.field, term.comparison, label_text(term.name, str(term.value))))
    # Entries of the index that match a prefix are not in order of id.
    return [SearchSource(schema.PROCESSES, {"labels": labels}, few=term.comparison is Comparison.IS)]


def _of_time(term: Term) -> list[SearchSource]:
    return [SearchSource(schema.PROCESSES, {f"{term.field}At": _compared(term)})]


def _of_idle_time(term: Term) -> list[SearchSource]:
    """Return the source of incomplete graphs by idle time. A longer idle time means an earlier `touchedAt`."""
    assert isinstance(term.value, int | float)
    inverse = {"$gt": "$lt", "$lt": "$gt", "$gte": "$lte", "$lte": "$gte"}[_SIGNS[term.comparison]]
    idle: Document = {
        "touchedAt": {"$type": "date"},
        "notFinished": {"$ne": {}},
        "$expr": {inverse: ["$touchedAt", after(-term.value)]},
    }
    return [SearchSource(schema.GRAPHS, idle)]


def _of_overdue(_: Term) -> list[SearchSource]:
    return [SearchSource(name, dict(OVERDUE)) for name in (schema.PROCESSES, schema.GRAPHS, schema.DECISIONS)]


def _of_refused(_: Term) -> list[SearchSource]:
    # The index `refused` holds exactly these decisions.
    return [SearchSource(schema.DECISIONS, schema.WAITS_FOR_NEWER_WORKER, few=True, index="refused")]


def _of_error(term: Term) -> list[SearchSource]:
    name = {"error": "kind"}.get(term.field, term.field)
    condition, names = _text(term), [name]
    if term.field == "code":
        condition, names = _compared(term), [name, "exhausted"]
    # Only unsuccessful processes have an error, and an index holds them.
    return [
        source
        for name in names
        for source in (
            SearchSource(schema.PROCESSES, {"state": {"$in": UNSUCCESSFUL}, f"error.{name}": condition}, few=True),
            SearchSource(schema.INTERRUPTIONS, {name: condition}, few=True),
        )
    ]


def _of_actor(term: Term) -> list[SearchSource]:
    live = [*_OPEN, DecisionState.WORKING.value]
    return [
        SearchSource(schema.DECISIONS, {"state": {"$in": live}, "actor": _text(term)}),
        SearchSource(schema.INTERRUPTIONS, {"actor": _text(term)}),
    ]


def _of_version(term: Term) -> list[SearchSource]:
    return [SearchSource(name, {"version": _text(term)}) for name in (schema.PROCESSES, schema.DECISIONS)]


def _of_pinned(term: Term) -> list[SearchSource]:
    return [SearchSource(schema.PROCESSES, {"pinned": True, "version": _text(term)})]


def _of_timeouts(term: Term) -> list[SearchSource]:
    return [SearchSource(schema.DECISIONS, {"timeouts": _compared(term)})]


def _of_rule(term: Term) -> list[SearchSource]:
    return [
        SearchSource(schema.OPERATION_RESULTS, {"rules": term.value}, "process", few=True),
        SearchSource(schema.GRAPHS, {"repaired.rule": term.value}, few=True, index="repaired"),
    ]


_SOURCES: dict[str, Callable[[Term], list[SearchSource]]] = {
    **dict.fromkeys(_PROCESS, _of_process),
    "custom": _of_custom_id,
    "label": _of_label,
    "started": _of_time,
    "ended": _of_time,
    "idle": _of_idle_time,
    "overdue": _of_overdue,
    "refused": _of_refused,
    "error": _of_error,
    "message": _of_error,
    "fingerprint": _of_error,
    "code": _of_error,
    "actor": _of_actor,
    "timeouts": _of_timeouts,
    "version": _of_version,
    "pinned": _of_pinned,
    "rule": _of_rule,
}
"""For each field of the search language, the function that returns its sources."""


def _text(term: Term) -> Any:
    if term.comparison is Comparison.CONTAINS:
        return {"$regex": re.escape(str(term.value)), "$options": "i"}
    if term.comparison is Comparison.STARTS:
        return {"$regex": f"^{re.escape(str(term.value))}"}
    return term.value


def _compared(term: Term) -> Document:
    return {_SIGNS[term.comparison]: term.value}
