"""Queries and updates of the Marker records: what is not to be started again.

Everything here is told to somebody, or keeps somebody from a start: written with majority and journal, and read as a
majority has it. A record holds the marker while it has no `clearedAt`. Once cleared it stays for a while
(`schema.KEPT_MARKERS`), in which no process that broke before it was cleared writes it anew; then MongoDB removes it.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pymongo.collection import Collection
from pymongo.errors import DuplicateKeyError

from recovery.records import Marker, from_document, to_document
from recovery.store.client import Document
from recovery.store.concerns import committed
from recovery.store.driver_errors import translated
from recovery.store.expressions import literal
from recovery.store.record_reading import readable

CLEARINGS = 10
"""Of one type and key, at most: what is cleared more often than that is not looked into one by one."""

_THERE: Document = {"clearedAt": None}
_CLEARED: Document = {"clearedAt": {"$ne": None}}
_TEXTS = ("type", "kind", "message", "process")
_OPTIONAL_TEXTS = ("key", "reason", "stack", "fingerprint", "actor", "task")


@translated
class Markers:
    """The collection `markers`."""

    def __init__(self, collection: Collection[Document]) -> None:
        self._markers = committed(collection)

    def write(self, marker: Marker, failed_at: datetime) -> bool:
        """Save a marker of a process that broke then; False if one of its type and key is there, or was cleared since
        that process broke: whoever cleared it meant what had failed until then."""
        fields = {key: literal(value) for key, value in to_document(marker).items() if key != "clearings"}
        new = {**fields, "writtenAt": "$$NOW", "clearings": {"$ifNull": ["$clearings", []]}}
        query = {"_id": marker.id, "clearedAt": {"$lt": failed_at}}
        try:
            self._markers.update_one(query, [{"$replaceWith": new}], upsert=True)
        except DuplicateKeyError:
            return False
        return True

    def find(self, name: str) -> Marker | None:
        """The marker of this name, if it is there and not cleared. One record by its id."""
        found = self._markers.find_one({"_id": name, **_THERE})
        return _as_shown(found) if found else None

    def get(self, name: str) -> Marker | None:
        """The same, cleared or not."""
        found = self._markers.find_one({"_id": name})
        return _as_shown(found) if found else None

    def all(self, process_type: str | None = None) -> list[Marker]:
        """Those that are there, of all types or of one, by name, without their stacks."""
        return self._list(_THERE, process_type, [("_id", 1)])

    def cleared(self, process_type: str | None = None) -> list[Marker]:
        """Those that were cleared and not written anew, the last one first, without their stacks."""
        # One without any was never there: somebody was kept from writing it.
        return self._list({**_CLEARED, "clearings.0": {"$exists": True}}, process_type, [("clearedAt", -1)])

    def _list(self, among: Document, process_type: str | None, order: list[tuple[str, int]]) -> list[Marker]:
        query = among if process_type is None else {**among, "type": process_type}
        found = self._markers.find(query, {"stack": False}).sort(order)
        return list(readable(Marker, found, _as_shown))

    def counts(self) -> dict[str, int]:
        """{process type: how many are there}. Reads as many as there are."""
        stages: list[Document] = [{"$match": _THERE}, {"$group": {"_id": "$type", "count": {"$sum": 1}}}]
        return {_text(found["_id"]): found["count"] for found in self._markers.aggregate(stages)}

    def clear(self, name: str, written_at: datetime | None, by: str, reason: str) -> bool:
        """Clear the marker of this name that was written then; False if that one is not there."""
        query = {"_id": name, **_THERE, "writtenAt": written_at}
        return self._markers.update_one(query, _clear(by, reason)).modified_count == 1

    def lift(self, marker: Marker, by: str, reason: str, *, due: bool) -> bool:
        """Clear the marker of this type and key if this process wrote it; whether it was there. With `due` somebody may
        be about to write it: after this he does not."""
        among: list[Document] = [{**_THERE, "process": marker.process}, *([_CLEARED] if due else [])]
        named = {key: literal(value) for key, value in to_document(marker).items() if key in ("type", "key")}
        stages = [{"$set": named}, *_clear(by, reason)]
        try:
            changed = self._markers.update_one({"_id": marker.id, "$or": among}, stages, upsert=due)
        except DuplicateKeyError:  # another process's
            return False
        return changed.modified_count == 1


def _clear(by: str, reason: str) -> list[Document]:
    """The stages that clear a marker, or keep those from writing one who are late."""
    said = {key: f"${key}" for key in ("process", "code", "kind", "message", "writtenAt")}
    clearing = {"at": "$$NOW", "by": literal(by), "reason": literal(reason), **said}
    before: Document = {"$cond": [{"$isArray": "$clearings"}, "$clearings", []]}
    all_ = {"$slice": [{"$concatArrays": [before, [clearing]]}, -CLEARINGS]}
    is_there = {"$eq": [{"$type": "$writtenAt"}, "date"]}
    now_cleared = {"$and": [is_there, {"$eq": [{"$ifNull": ["$clearedAt", None]}, None]}]}
    return [{"$set": {"clearings": {"$cond": [now_cleared, all_, before]}, "clearedAt": "$$NOW"}}]


def _as_shown(document: Document) -> Marker:
    """A record as it is shown, with what is no text, of another program, as Python writes it: a marker that can't be
    read is one all the same."""
    found = {**document, "_id": _text(document["_id"])}
    found |= {name: _text(found.get(name, "")) for name in _TEXTS}
    found |= {name: _text(found[name]) for name in _OPTIONAL_TEXTS if found.get(name) is not None}
    found |= {name: _date(found.get(name)) for name in ("writtenAt", "clearedAt")}
    found["code"] = _code(found.get("code"))
    clearings = found.get("clearings")
    listed = clearings if isinstance(clearings, list) else []
    found["clearings"] = [_clearing(one) for one in listed if isinstance(one, dict)]
    return from_document(Marker, found)


def _clearing(document: Document) -> Document:
    texts = {name: _text(document.get(name, "")) for name in ("by", "reason", "process", "kind", "message")}
    dates = {name: _date(document.get(name)) for name in ("at", "writtenAt")}
    return {**texts, **dates, "code": _code(document.get("code"))}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else repr(value)


def _date(value: object) -> datetime | None:
    return value if isinstance(value, datetime) else None


def _code(value: object) -> int | None:
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else None
