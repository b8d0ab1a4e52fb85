"""Queries about rejected writes: the current values of the records, and the latest rejections, kept in `actors`."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from pymongo.database import Database

from recovery.records import RejectedWrite
from recovery.store import schema
from recovery.store.client import Document
from recovery.store.concerns import committed, current
from recovery.store.driver_errors import translated
from recovery.store.expressions import literal
from recovery.store.record_reading import readable
from recovery.store.splitting import find_keys

NOTE_EVERY = 1.0
"""Minimum seconds between two notes by one process for the same step and actor. There may be thousands of rejections
per second."""
_CONDITIONS = dict.fromkeys(("actor", "epoch", "restarts", "pass", "state", "recoveryTime"), True)


@translated
class RejectedWrites:
    """Queries of `decisions`, and notes of rejected writes in the records of actors. Only for reports."""

    def __init__(self, database: Database[Document]) -> None:
        # Read from the primary, because the write was compared with the primary's record and a majority may not have it
        # yet.
        self._decisions, self._actors = current(database[schema.DECISIONS]), current(database[schema.ACTORS])
        self._committed_actors = committed(database[schema.ACTORS])
        self._noted: dict[tuple[str, str], float] = {}

    def conditions(self, decision_ids: Iterable[str]) -> Mapping[str, Mapping[str, Any]]:
        """Return the stored values of the fields that conditions compare, by decision id.

        Missing decisions are absent.
        """
        return {document["_id"]: document for document in find_keys(self._decisions, decision_ids, _CONDITIONS)}

    def note(self, actor: str, step: str, guard: str, record: str) -> None:
        """Save a rejected write as the latest of this actor and step.

        Skipped if this process saved one of the same actor and step in the last NOTE_EVERY seconds.
        """
        now = time.monotonic()
        if now - self._noted.get((actor, step), -NOTE_EVERY) < NOTE_EVERY:
            return
        self._noted[actor, step] = now
        rejection = {"at": "$$NOW", "guard": literal(guard), "record": literal(record)}
        self._actors.update_one({"_id": actor}, [{"$set": {f"rejected.{step}": rejection}}])

    def latest(self) -> list[RejectedWrite]:
        """Return the saved rejections, the latest first. Reads one document per actor; read concern majority."""
        documents = self._committed_actors.find({"rejected": {"$type": "object"}}, {"rejected": True})
        rejections = [
            {**rejection, "_id": document["_id"], "step": step}
            for document in documents
            for step, rejection in document["rejected"].items()
            if isinstance(rejection, dict)
        ]
        return sorted(readable(RejectedWrite, rejections), key=lambda rejection: rejection.at, reverse=True)
