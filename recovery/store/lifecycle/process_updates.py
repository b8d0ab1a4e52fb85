"""What the updates of processes ask for and set: conditions and stages, without a collection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from recovery.records import Process, ProcessState, field_name
from recovery.store.client import Document
from recovery.store.expressions import date_of, literal, past_of, size_of

RUNNING = ProcessState.RUNNING.value
STARTED_BY_NOW: Document = past_of({"$ifNull": ["$restartedAt", "$startedAt"]})


class MarkerDue(NamedTuple):
    """A process that breaks leaves a marker, by the order of this key; looked at in so many seconds, if it was not
    written by then."""

    key: str
    within: float


ENDING: Document = {
    **dict.fromkeys(("type", "key", "startTask", "state", "epoch", "reopened", "markerDue", "order"), True),
    # For its duration alone, for which no end is to fail: what is no date is left out.
    **{name: date_of(f"${name}", None) for name in ("startedAt", "restartedAt")},
    "bytes": size_of("args"),
}


def shown(length: int) -> Document:
    """The document without its arguments, and the start of its result."""
    names = (field_name(name) for name in Process.__dataclass_fields__ if name not in ("args", "result"))
    # A record of which somebody made something else than a text is shown without.
    text: Document = {"$cond": [{"$eq": [{"$type": "$result"}, "string"]}, "$result", ""]}
    start: Document = {"$cond": [{"$eq": [text, ""]}, "$$REMOVE", {"$substrCP": [text, 0, length]}]}
    return {**dict.fromkeys(names, True), "result": start, "characters": {"$strLenCP": text}}


def late(process_type: str, seconds: float) -> Document:
    """Running processes of a type that have run for so long and are not marked."""
    over = {"$add": [STARTED_BY_NOW, round(seconds * 1000)]}
    among = {"type": process_type, "state": RUNNING, "timedOutAt": None}
    return {**among, "startedAt": {"$exists": True}, "$expr": {"$lte": [over, "$$NOW"]}}


def end_by_type(timeouts: Mapping[str, float]) -> Document:
    """When a process's time is over; null for a type that is not among {type: seconds}."""
    times = [round(one * 1000) for one in timeouts.values()]
    # A type that is not found has the place -1, which is the last.
    found = {"$arrayElemAt": [literal([*times, None]), {"$indexOfArray": [literal(list(timeouts)), "$type"]}]}
    return {"$add": [STARTED_BY_NOW, found]}


def existing() -> Document:
    """The document itself if it was there before the upsert, else null."""
    return {"$cond": [{"$gt": ["$startedAt", None]}, "$$ROOT", None]}
