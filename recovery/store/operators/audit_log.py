"""Queries and updates of the audit log: what operators did. Written with majority, before it is done and after."""

from __future__ import annotations

from pymongo.collection import Collection

from recovery.records import AuditEntry, to_document
from recovery.store.client import Document
from recovery.store.concerns import committed
from recovery.store.driver_errors import translated
from recovery.store.expressions import literal
from recovery.store.record_reading import readable


@translated
class AuditLog:
    """The collection `auditLog`."""

    def __init__(self, collection: Collection[Document]) -> None:
        self._entries = committed(collection)

    def begin(self, entry: AuditEntry) -> None:
        """Write down what is about to be done, under a new id."""
        fields = {key: literal(value) for key, value in to_document(entry).items() if key != "_id"}
        self._entries.update_one({"_id": entry.id}, [{"$set": {**fields, "at": "$$NOW"}}], upsert=True)

    def end(self, key: str, outcome: str, operation: int | None = None) -> None:
        """Write down what came of it."""
        fields = {"outcome": literal(outcome), "endedAt": "$$NOW"}
        if operation is not None:
            fields["operation"] = literal(operation)
        self._entries.update_one({"_id": key, "outcome": None}, [{"$set": fields}])

    def newest(
        self, limit: int, *, what: str | None = None, target: str | None = None, operation: int | None = None
    ) -> list[AuditEntry]:
        """The last entries, the newest first; of what begins so, of this target, of this operation. Ids are in order of
        time. Index `target`, or `_id` from its end."""
        query: Document = {}
        if what is not None:
            query["what"] = {"$gte": what, "$lt": what + "\U0010ffff"}
        if target is not None:
            query["target"] = target
        if operation is not None:
            query["operation"] = operation
        return list(readable(AuditEntry, self._entries.find(query).sort("_id", -1).limit(limit)))
