"""Queries and updates of what scanners tell of themselves: when each ran last, in the whole cluster."""

from __future__ import annotations

from collections.abc import Sequence

from pymongo import UpdateOne
from pymongo.collection import Collection

from recovery.records import ScannerRun, to_document
from recovery.store import schema
from recovery.store.client import Document
from recovery.store.concerns import current
from recovery.store.driver_errors import translated
from recovery.store.expressions import literal, read_past
from recovery.store.record_reading import readable

_NUDGED_AT: Document = {
    # A note without it is of a worker that scans only when a beat nudges.
    "$cond": [{"$eq": [{"$type": "$nudgedAt"}, "missing"]}, {"$ifNull": ["$ranAt", None]}, "$nudgedAt"]
}


@translated
class Scanners:
    """The collection `scanners`: one note per scanner, whichever worker ran it."""

    def __init__(self, collection: Collection[Document]) -> None:
        self._current = current(collection)

    def note(self, *runs: ScannerRun, by_beat: bool) -> None:
        """Say that scanners ran just now, `by_beat` since a beat's nudge was taken: over what any worker said before.
        Nothing is decided by a note."""
        notes, nudged_at = [], "$$NOW" if by_beat else _NUDGED_AT
        for run in runs:
            fields = {key: literal(value) for key, value in to_document(run).items()}
            noted = {**fields, "ranAt": "$$NOW", "nudgedAt": nudged_at, "lost": "$lost", "lostAt": "$lostAt"}
            notes.append(UpdateOne({"_id": run.id}, [{"$replaceWith": noted}], upsert=True))
        if notes:
            self._current.bulk_write(notes, ordered=False)

    def lost(self, workers: Sequence[str]) -> None:
        """Say that workers of these names were silent for too long and are forgotten. For people: nothing is decided by
        it."""
        lost = {"lost": literal(list(workers)), "lostAt": "$$NOW"}
        self._current.update_one({"_id": schema.WORKERS}, [{"$set": lost}], upsert=True)

    def all(self) -> dict[str, ScannerRun]:
        """The last run of each scanner that ever ran, by name. One that is still to come would pass for a fresh one
        for good, while nothing runs: its time is not believed."""
        found = self._current.aggregate([{"$set": {"nudgedAt": _NUDGED_AT}}, read_past("ranAt", "nudgedAt", "lostAt")])
        return {run.id: run for run in readable(ScannerRun, found)}
