"""Queries and updates of the Marker records: process types and keys that must not be started again.

All reads and writes are `committed`, because somebody is told of each, or a start is refused for it. A record is an
active marker as long as it has no `clearedAt`. A cleared record is kept for `schema.KEPT_MARKERS` seconds. During this
time no process that broke before the clearing can write the marker again. Then MongoDB removes the record.
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
"""Maximum number of clearings that are kept in one marker; older ones are dropped."""

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
        """Save the marker of a process that broke at `failed_at`.

        Returns:
            False if the marker of this type and key is active, or was cleared after the process broke. Whoever cleared
            it had accepted all failures until then.
        """
        fields = {key: literal(value) for key, value in to_document(marker).items() if key != "clearings"}
        new = {**fields, "writtenAt": "$$NOW", "clearings": {"$ifNull": ["$clearings", []]}}
        query = {"_id": marker.id, "clearedAt": {"$lt": failed_at}}
        try:
            self._markers.update_one(query, [{"$replaceWith": new}], upsert=True)
        except DuplicateKeyError:
            return False
        return True

    def find(self, name: str) -> Marker | None:
        """Return the active marker of this name, or None. Reads one record by its id."""
        document = self._markers.find_one({"_id": name, **_THERE})
        return _as_shown(document) if document else None

    def get(self, name: str) -> Marker | None:
        """Return the marker of this name, active or cleared, or None."""
        document = self._markers.find_one({"_id": name})
        return _as_shown(document) if document else None

    def all(self, process_type: str | None = None) -> list[Marker]:
        """Return all active markers, of all types or of one, sorted by name, without their stacks."""
        return self._list(_THERE, process_type, [("_id", 1)])

    def cleared(self, process_type: str | None = None) -> list[Marker]:
        """Return all cleared markers, of all types or of one, the last cleared first, without their stacks."""
        # A record without clearings never was a marker: it only prevented that one was written.
        return self._list({**_CLEARED, "clearings.0": {"$exists": True}}, process_type, [("clearedAt", -1)])

    def _list(self, state: Document, process_type: str | None, order: list[tuple[str, int]]) -> list[Marker]:
        query = state if process_type is None else {**state, "type": process_type}
        documents = self._markers.find(query, {"stack": False}).sort(order)
        return list(readable(Marker, documents, _as_shown))

    def counts(self) -> dict[str, int]:
        """Return {process type: number of active markers}. Reads all active markers."""
        stages: list[Document] = [{"$match": _THERE}, {"$group": {"_id": "$type", "count": {"$sum": 1}}}]
        return {_text(group["_id"]): group["count"] for group in self._markers.aggregate(stages)}

    def clear(self, name: str, written_at: datetime | None, by: str, reason: str) -> bool:
        """Clear the active marker of this name that was written at `written_at`. Return False if there is no such
        marker.
        """
        query = {"_id": name, **_THERE, "writtenAt": written_at}
        return self._markers.update_one(query, _clear(by, reason)).modified_count == 1

    def lift(self, marker: Marker, by: str, reason: str, *, due: bool) -> bool:
        """Clear the marker of this type and key if this process wrote it. Return whether an existing record was
        changed.

        Args:
            marker: The type, key and process.
            by: Who clears it.
            reason: Why.
            due: Whether somebody may be about to write this marker. If so, a cleared record is created or renewed,
                which makes the late write fail.
        """
        allowed: list[Document] = [{**_THERE, "process": marker.process}, *([_CLEARED] if due else [])]
        identity = {key: literal(value) for key, value in to_document(marker).items() if key in ("type", "key")}
        stages = [{"$set": identity}, *_clear(by, reason)]
        try:
            changed = self._markers.update_one({"_id": marker.id, "$or": allowed}, stages, upsert=due)
        except DuplicateKeyError:  # the active marker is another process's
            return False
        return changed.modified_count == 1


def _clear(by: str, reason: str) -> list[Document]:
    """Return the stages that clear a marker. On a record that is not an active marker they only prevent late writes."""
    failure = {key: f"${key}" for key in ("process", "code", "kind", "message", "writtenAt")}
    clearing = {"at": "$$NOW", "by": literal(by), "reason": literal(reason), **failure}
    earlier_clearings: Document = {"$cond": [{"$isArray": "$clearings"}, "$clearings", []]}
    all_clearings = {"$slice": [{"$concatArrays": [earlier_clearings, [clearing]]}, -CLEARINGS]}
    was_written = {"$eq": [{"$type": "$writtenAt"}, "date"]}
    is_active = {"$and": [was_written, {"$eq": [{"$ifNull": ["$clearedAt", None]}, None]}]}
    return [{"$set": {"clearings": {"$cond": [is_active, all_clearings, earlier_clearings]}, "clearedAt": "$$NOW"}}]


def _as_shown(document: Document) -> Marker:
    """Return a marker for display. Fields with values of other types, which another program wrote, are shown as Python
    writes them.

    A marker that can't be read properly still prevents starts.
    """
    fields = {**document, "_id": _text(document["_id"])}
    fields |= {name: _text(fields.get(name, "")) for name in _TEXTS}
    fields |= {name: _text(fields[name]) for name in _OPTIONAL_TEXTS if fields.get(name) is not None}
    fields |= {name: _date(fields.get(name)) for name in ("writtenAt", "clearedAt")}
    fields["code"] = _code(fields.get("code"))
    clearings = fields.get("clearings")
    clearing_documents = clearings if isinstance(clearings, list) else []
    fields["clearings"] = [_clearing(clearing) for clearing in clearing_documents if isinstance(clearing, dict)]
    return from_document(Marker, fields)


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
