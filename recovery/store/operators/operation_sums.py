"""How the results of an operation are counted: aggregations, which one result that another program spoilt can't stop.

Of what is spoilt, that which can be counted is: a map of counts that is none counts nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from recovery.records import ResultState, Sum, Totals
from recovery.store.client import Document

_COUNTED = {
    "done": ResultState.DONE,
    "nothing": ResultState.NOTHING,
    "changed": ResultState.CHANGED,
    "errors": ResultState.ERROR,
}

_WHOLE = {"$type": ["int", "long"]}


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
    """What `totals_stages` give."""
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
    """What `sums_stages` give."""
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
