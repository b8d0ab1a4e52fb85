"""What the terms of the search language mean: for each, in which collections, by which filters."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from recovery.records import DecisionState, ProcessState
from recovery.records.search_names import label_text
from recovery.search import Term
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
    index: str | None = None
    """The index to find it by, whose few matches are then sorted; None: MongoDB chooses."""


def sources(term: Term) -> list[Source]:
    """Where a term is true: for the processes of any of these. One source in `processes` alone is a plain filter."""
    return _SOURCES[term.field](term)


def _of_process(term: Term) -> list[Source]:
    return [Source(schema.PROCESSES, {_PROCESS[term.field]: _text(term)})]


def _of_custom_id(term: Term) -> list[Source]:
    if term.comparison is not Comparison.IS:
        either = [{name: _text(term)} for name in ("customId", "formerCustomId")]
        return [Source(schema.PROCESSES, {"$or": either})]
    # With any type, which its index has first: a seek for each type.
    now: Document = {"type": {"$gte": ""}, "customId": term.value}
    return [
        Source(schema.PROCESSES, now, few=True),
        Source(schema.PROCESSES, {"formerCustomId": term.value}, few=True),
    ]


def _of_label(term: Term) -> list[Source]:
    labels = _text(Term(term.field, term.comparison, label_text(term.name, str(term.value))))
    # Of what begins so the index is not in order of id.
    return [Source(schema.PROCESSES, {"labels": labels}, few=term.comparison is Comparison.IS)]


def _of_time(term: Term) -> list[Source]:
    return [Source(schema.PROCESSES, {f"{term.field}At": _compared(term)})]


def _of_idle_time(term: Term) -> list[Source]:
    """Match graphs that are not complete. A longer idle time means an earlier `touchedAt`."""
    assert isinstance(term.value, int | float)
    turned = {"$gt": "$lt", "$lt": "$gt", "$gte": "$lte", "$lte": "$gte"}[_SIGNS[term.comparison]]
    idle: Document = {
        "touchedAt": {"$type": "date"},
        "notFinished": {"$ne": {}},
        "$expr": {turned: ["$touchedAt", after(-term.value)]},
    }
    return [Source(schema.GRAPHS, idle)]


def _of_overdue(_: Term) -> list[Source]:
    return [Source(name, dict(OVERDUE)) for name in (schema.PROCESSES, schema.GRAPHS, schema.DECISIONS)]


def _of_refused(_: Term) -> list[Source]:
    # Of these there is an index.
    return [Source(schema.DECISIONS, schema.WAITS_FOR_NEWER_WORKER, few=True, index="refused")]


def _of_error(term: Term) -> list[Source]:
    name = {"error": "kind"}.get(term.field, term.field)
    wanted = _compared(term) if term.field == "code" else _text(term)
    return [
        # Others have no error; and of these there is an index.
        Source(schema.PROCESSES, {"state": {"$in": UNSUCCESSFUL}, f"error.{name}": wanted}, few=True),
        Source(schema.INTERRUPTIONS, {name: wanted}, few=True),
    ]


def _of_actor(term: Term) -> list[Source]:
    live = [*_OPEN, DecisionState.WORKING.value]
    return [
        Source(schema.DECISIONS, {"state": {"$in": live}, "actor": _text(term)}),
        Source(schema.INTERRUPTIONS, {"actor": _text(term)}),
    ]


def _of_version(term: Term) -> list[Source]:
    return [Source(name, {"version": _text(term)}) for name in (schema.PROCESSES, schema.DECISIONS)]


def _of_pinned(term: Term) -> list[Source]:
    return [Source(schema.PROCESSES, {"pinned": True, "version": _text(term)})]


def _of_timeouts(term: Term) -> list[Source]:
    return [Source(schema.DECISIONS, {"timeouts": _compared(term)})]


def _of_rule(term: Term) -> list[Source]:
    return [Source(schema.OPERATION_RESULTS, {"rules": term.value}, "process", few=True)]


_PROCESS = {"type": "type", "state": "state", "id": "_id", "key": "key"}
_SOURCES: dict[str, Callable[[Term], list[Source]]] = {
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
