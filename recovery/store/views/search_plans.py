"""How a search is answered: from which collection its candidates come, what is to be asked of them (`plan_of`), and
what the terms of the search language mean, each in which collections and by which filters (`sources`)."""

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
    """Records of one collection that make a term true for their processes."""

    collection: str
    filter: Document
    key: str = "_id"
    """The field with the process's id, alone or as `P/T`."""
    few: bool = False
    """Whether it is of what is wrong, and not of what exists: found without going through all processes."""
    index: str | None = None
    """The index to find it by, whose few matches are then sorted; None: MongoDB chooses."""


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """How a search is answered."""

    candidates: tuple[SearchSource, ...]
    rest: Node
    """What is to be asked of the candidates."""

    @property
    def exact(self) -> bool:
        """Whether candidates are the answer, but for those that have no Process record."""
        return self.rest == All()


def plan_of(tree: Node) -> SearchPlan:
    """How a search is answered."""
    plain, exact = _plain(tree)
    rest = All() if exact else tree
    few, left = _few(tree)
    if few is None or (exact and all(source.collection == schema.PROCESSES for source in few)):
        return SearchPlan((SearchSource(schema.PROCESSES, plain, few=few is not None),), rest)
    return SearchPlan(tuple(few), left)


def _few(node: Node) -> tuple[list[SearchSource] | None, Node]:
    """Sources of what is wrong, outside of which nothing can match, and what is to be asked of theirs; None if there
    are none."""
    match node:
        case Term():
            own = sources(node)
            return (own, All()) if all(source.few for source in own) else (None, node)
        case And(parts):
            each = [(few, left, place) for place, part in enumerate(parts) for few, left in [_few(part)] if few]
            if not each:
                return None, node
            few, left, place = min(each, key=lambda found: len(found[0]))
            others = [*parts[:place], *parts[place + 1 :]]
            return few, And((left, *others) if left != All() else tuple(others))
        case Or(parts):
            found = [_few(part) for part in parts]
            if not all(few for few, _ in found):
                return None, node
            return [one for few, _ in found for one in few or ()], All() if all(
                left == All() for _, left in found
            ) else node
    return None, node


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


def sources(term: Term) -> list[SearchSource]:
    """Where a term is true: for the processes of any of these. One source in `processes` alone is a plain filter."""
    return _SOURCES[term.field](term)


def _of_process(term: Term) -> list[SearchSource]:
    return [SearchSource(schema.PROCESSES, {_PROCESS[term.field]: _text(term)})]


def _of_custom_id(term: Term) -> list[SearchSource]:
    if term.comparison is not Comparison.IS:
        either = [{name: _text(term)} for name in ("customId", "formerCustomId")]
        return [SearchSource(schema.PROCESSES, {"$or": either})]
    # With any type, which its index has first: a seek for each type.
    now: Document = {"type": {"$gte": ""}, "customId": term.value}
    return [
        SearchSource(schema.PROCESSES, now, few=True),
        SearchSource(schema.PROCESSES, {"formerCustomId": term.value}, few=True),
    ]


def _of_label(term: Term) -> list[SearchSource]:
    labels = _text(Term(term.field, term.comparison, label_text(term.name, str(term.value))))
    # Of what begins so the index is not in order of id.
    return [SearchSource(schema.PROCESSES, {"labels": labels}, few=term.comparison is Comparison.IS)]


def _of_time(term: Term) -> list[SearchSource]:
    return [SearchSource(schema.PROCESSES, {f"{term.field}At": _compared(term)})]


def _of_idle_time(term: Term) -> list[SearchSource]:
    """Match graphs that are not complete. A longer idle time means an earlier `touchedAt`."""
    assert isinstance(term.value, int | float)
    turned = {"$gt": "$lt", "$lt": "$gt", "$gte": "$lte", "$lte": "$gte"}[_SIGNS[term.comparison]]
    idle: Document = {
        "touchedAt": {"$type": "date"},
        "notFinished": {"$ne": {}},
        "$expr": {turned: ["$touchedAt", after(-term.value)]},
    }
    return [SearchSource(schema.GRAPHS, idle)]


def _of_overdue(_: Term) -> list[SearchSource]:
    return [SearchSource(name, dict(OVERDUE)) for name in (schema.PROCESSES, schema.GRAPHS, schema.DECISIONS)]


def _of_refused(_: Term) -> list[SearchSource]:
    # Of these there is an index.
    return [SearchSource(schema.DECISIONS, schema.WAITS_FOR_NEWER_WORKER, few=True, index="refused")]


def _of_error(term: Term) -> list[SearchSource]:
    name = {"error": "kind"}.get(term.field, term.field)
    wanted, names = _text(term), [name]
    if term.field == "code":
        wanted, names = _compared(term), [name, "exhausted"]
    # Others have no error; and of these there is an index.
    return [
        source
        for name in names
        for source in (
            SearchSource(schema.PROCESSES, {"state": {"$in": UNSUCCESSFUL}, f"error.{name}": wanted}, few=True),
            SearchSource(schema.INTERRUPTIONS, {name: wanted}, few=True),
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
