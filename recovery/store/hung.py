"""Queries and updates about attempts that run past their time: who has their tasks now, and whose slots were freed."""

from __future__ import annotations

from collections.abc import Collection as Many
from contextlib import suppress
from enum import StrEnum
from typing import NamedTuple

from pymongo.database import Database

from recovery.errors import DamagedRecord
from recovery.records import DecisionState, FreedSlots, from_document
from recovery.store import schema
from recovery.store.client import Document
from recovery.store.concerns import committed, current
from recovery.store.expressions import literal, plus_one

FINISHED, WORKING = DecisionState.FINISHED.value, DecisionState.WORKING.value


class Claim(NamedTuple):
    """What an attempt claimed: a decision under a pass; `attempts` is how often it had been claimed then."""

    decision_id: str
    pass_key: str
    attempts: int


class Fate(StrEnum):
    """What became of a claim."""

    HELD = "held"
    LOST = "lost"
    """Its task was queued again, and may be another attempt's by now."""
    DECIDED = "decided"
    """Its task has ended, whoever brought the end: nothing of this attempt is taken any more."""


class Hung:
    """Queries over the collection `decisions`, and what is kept of hung slots in `actors`."""

    def __init__(self, database: Database[Document]) -> None:
        # A slot is freed upon what is read here, so it is to be what stays.
        self._decisions = committed(database[schema.DECISIONS])
        self._actors = current(database[schema.ACTORS])

    def fates(self, claims: Many[Claim]) -> dict[Claim, Fate]:
        """What became of each. Index `_id`.

        What a majority has may be older than a claim; it tells nothing of it then, and the claim counts as held. One
        whose record is gone is lost.
        """
        fields = {"state": True, "pass": True, "attempts": True}
        found = self._decisions.find({"_id": {"$in": sorted({claim.decision_id for claim in claims})}}, fields)
        documents = {document["_id"]: document for document in found}
        return {claim: _fate(claim, documents.get(claim.decision_id)) for claim in claims}

    def note_freed(self, actor: str, worker: str, task: str) -> None:
        """Count a slot that was freed of an attempt of this actor. Only told of: nothing is decided by it."""
        freed = {"slots": plus_one("freed.slots"), "at": "$$NOW", "worker": literal(worker), "task": literal(task)}
        self._actors.update_one({"_id": actor}, [{"$set": {"freed": freed}}])

    def freed(self) -> list[FreedSlots]:
        """Of all actors of which slots were freed, the last first. There are as many documents as actors."""
        found = self._actors.find({"freed": {"$type": "object"}}, {"freed": True}).sort("freed.at", -1)
        kept: list[FreedSlots] = []
        for document in found:
            with suppress(DamagedRecord):  # another program's: it hides no other
                kept.append(from_document(FreedSlots, {**document["freed"], "_id": document["_id"]}))
        return kept


def _fate(claim: Claim, decision: Document | None) -> Fate:
    if decision is None:
        return Fate.LOST
    if decision.get("attempts", 0) < claim.attempts:
        return Fate.HELD
    if decision["state"] == FINISHED:
        return Fate.DECIDED
    holds = decision["state"] == WORKING and decision.get("pass") == claim.pass_key
    return Fate.HELD if holds else Fate.LOST
