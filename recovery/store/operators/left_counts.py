"""Queries and updates of what programs counted that nobody scrapes. Nothing is decided by it: what a failover takes
back is a count too few, or too many."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from pymongo.collection import Collection

from recovery.records import LeftCounts, Sample, to_document
from recovery.records.ids import new_pass
from recovery.store.client import Document
from recovery.store.concerns import current
from recovery.store.driver_errors import translated
from recovery.store.expressions import literal
from recovery.store.record_reading import read

log = logging.getLogger(__name__)


@translated
class LeftCountRecords:
    """The collection `leftCounts`."""

    def __init__(self, collection: Collection[Document]) -> None:
        self._current = current(collection)

    def leave(self, samples: Iterable[Sample]) -> None:
        """Leave them for a worker."""
        fields = to_document(LeftCounts(id=new_pass(), samples=tuple(samples)))
        key = fields.pop("_id")
        stages = [{"$set": {name: literal(value) for name, value in fields.items()} | {"at": "$$NOW"}}]
        self._current.update_one({"_id": key}, stages, upsert=True)

    def take(self, limit: int) -> list[LeftCounts]:
        """Some of what was left, the oldest first; nobody else gets them. What can't be read is told and removed: it
        would stand before all others. One round trip, and one more for each that is there."""
        found = read(LeftCounts, self._current.find().sort("_id", 1).limit(limit))
        for damage in found.damaged:
            if self._current.delete_one({"_id": damage.record}).deleted_count:
                log.warning("%s; it was removed, and is not counted", damage)
        return [one for one in found.records if self._current.delete_one({"_id": one.id}).deleted_count]
