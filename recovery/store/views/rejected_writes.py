"""Writes that a condition rejected: what the records hold instead, and the latest of them, kept in `actors`."""

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
"""Seconds between two notes of one step and actor by one process: there may be thousands of rejections a second."""
_CONDITIONS = dict.fromkeys(("actor", "epoch", "restarts", "pass", "state", "recoveryTime"), True)


@translated
class RejectedWrites:
    """Queries over `decisions`, and what is kept in the records of actors. For reports: nothing is decided by it."""

    def __init__(self, database: Database[Document]) -> None:
        # Not what a majority has: the condition was compared with what is there, which a majority may not have yet.
        self._decisions, self._actors = current(database[schema.DECISIONS]), current(database[schema.ACTORS])
        self._told = committed(database[schema.ACTORS])
        self._noted: dict[tuple[str, str], float] = {}

    def conditions(self, decision_ids: Iterable[str]) -> Mapping[str, Mapping[str, Any]]:
        """Return {decision: what conditions are compared with, as it is stored}, of those that are there."""
        return {found["_id"]: found for found in find_keys(self._decisions, decision_ids, _CONDITIONS)}

    def note(self, actor: str, step: str, guard: str, record: str) -> None:
        """Keep a rejection as the latest of a step of this actor, unless another was kept a moment ago."""
        now = time.monotonic()
        if now - self._noted.get((actor, step), -NOTE_EVERY) < NOTE_EVERY:
            return
        self._noted[actor, step] = now
        kept = {"at": "$$NOW", "guard": literal(guard), "record": literal(record)}
        self._actors.update_one({"_id": actor}, [{"$set": {f"rejected.{step}": kept}}])

    def latest(self) -> list[RejectedWrite]:
        """Return what is kept, the latest first. Reads as many documents as there are actors."""
        found = self._told.find({"rejected": {"$type": "object"}}, {"rejected": True})
        kept = [
            {**one, "_id": document["_id"], "step": step}
            for document in found
            for step, one in document["rejected"].items()
            if isinstance(one, dict)
        ]
        return sorted(readable(RejectedWrite, kept), key=lambda one: one.at, reverse=True)
