"""What the terms of the search language mean: for each, in which collections, by which filters."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from recovery.records import DecisionState, ProcessState
from recovery.records.labels import label_text
from recovery.search import Term
from recovery.search.tree import Comparison
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
UNSUCCESSFUL = [ProcessState.BROKEN.value, ProcessState.ABORTED.value]
_OPEN = [state.value for state in (DecisionState.WAITING, DecisionState.DELAYED, DecisionState.QUEUED)]


@dataclass(frozen=True, slots=True)
class Source:
    """Records of one collection that make a term true for their processes."""

    collection: str
    filter: Document
    key: str = "_id"
    """The field with the process's id, alone or as `P/T`."""
    few: bool = False
    """Whether it is of what is wrong, and not of what exists: found without going through all processes."""


def sources(term: Term) -> list[Source]:
    """Where a term is true: for the processes of any of these. One source in `processes` alone is a plain filter."""
    match term.field:
        case "type" | "state" | "id" | "key":
            return [Source(schema.PROCESSES, {_PROCESS[term.field]: _text(term)})]
        case "custom" if term.comparison is Comparison.IS:
            # With any type, which its index has first: a seek for each type.
            now: Document = {"type": {"$gte": ""}, "customId": term.value}
            return [
                Source(schema.PROCESSES, now, few=True),
                Source(schema.PROCESSES, {"formerCustomId": term.value}, few=True),
            ]
        case "custom":
            either = [{name: _text(term)} for name in ("customId", "formerCustomId")]
            return [Source(schema.PROCESSES, {"$or": either})]
        case "label":
            labels = _text(Term(term.field, term.comparison, label_text(term.name, str(term.value))))
            # Of what begins so the index is not in order of id.
            return [Source(schema.PROCESSES, {"labels": labels}, few=term.comparison is Comparison.IS)]
        case "started" | "ended":
            return [Source(schema.PROCESSES, {f"{term.field}At": {_SIGNS[term.comparison]: term.value}})]
        case "idle":
            return [Source(schema.GRAPHS, _idle(term))]
        case "overdue":
            return [Source(name, dict(OVERDUE)) for name in (schema.PROCESSES, schema.GRAPHS, schema.DECISIONS)]
        case "error" | "fingerprint" | "code":
            name = {"error": "kind"}.get(term.field, term.field)
            wanted = {_SIGNS[term.comparison]: term.value} if term.field == "code" else _text(term)
            return [
                # Others have no error; and of these there is an index.
                Source(schema.PROCESSES, {"state": {"$in": UNSUCCESSFUL}, f"error.{name}": wanted}, few=True),
                Source(schema.INTERRUPTIONS, {name: wanted}, few=True),
            ]
        case "actor":
            live = [*_OPEN, DecisionState.WORKING.value]
            return [
                Source(schema.DECISIONS, {"state": {"$in": live}, "actor": _text(term)}),
                Source(schema.INTERRUPTIONS, {"actor": _text(term)}),
            ]
        case "timeouts":
            return [Source(schema.DECISIONS, {"timeouts": {_SIGNS[term.comparison]: term.value}})]
        case "rule":
            return [Source(schema.OPERATION_RESULTS, {"rules": term.value}, "process", few=True)]
    raise AssertionError(f"no term is called {term.field}")  # the language knows no other


_PROCESS = {"type": "type", "state": "state", "id": "_id", "key": "key"}


def _text(term: Term) -> Any:
    if term.comparison is Comparison.STARTS:
        return {"$regex": f"^{re.escape(str(term.value))}"}
    return term.value


def _idle(term: Term) -> Document:
    """Of graphs that are not complete. Longer ago is earlier."""
    assert isinstance(term.value, int | float)
    turned = {"$gt": "$lt", "$lt": "$gt", "$gte": "$lte", "$lte": "$gte"}[_SIGNS[term.comparison]]
    return {
        "touchedAt": {"$type": "date"},
        "notFinished": {"$ne": {}},
        "$expr": {turned: ["$touchedAt", after(-term.value)]},
    }
