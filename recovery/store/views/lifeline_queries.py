"""Queries of a worker's parent process.

`HeartbeatView` reads the state of the cluster with each heartbeat. `Hung` tells whether attempts that exceed their time
still hold their tasks, and records freed slots.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Collection as Many
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

import pymongo
from pymongo.database import Database

from recovery.errors import StoreError
from recovery.records import DecisionState, FreedSlots, Worker
from recovery.store import schema
from recovery.store.client import Document
from recovery.store.concerns import committed, current
from recovery.store.driver_errors import translated
from recovery.store.expressions import age, literal, past_or_null, plus_one
from recovery.store.record_reading import readable

_BRIEF: Document = dict.fromkeys(("recoveryTime", "name", "host", "pid", "pidStarted"), True)

_HAS_RUN = {"$ne": [past_or_null("$ranAt"), None]}
_AGO: Document = {"$cond": [_HAS_RUN, {"$divide": [age("$ranAt"), 1000]}, None]}

log = logging.getLogger(__name__)
FINISHED, WORKING = DecisionState.FINISHED.value, DecisionState.WORKING.value
STATES = frozenset(state.value for state in DecisionState)
CATCH_UP_TIMEOUT = 1.0
"""Maximum seconds to wait for the majority to catch up: a thousand times the usual time."""


@dataclass(frozen=True, slots=True)
class HeartbeatLook:
    """The state of the cluster that a heartbeat read."""

    deadlines: Mapping[str, Any]
    """Stored deadline by worker id. It may not be a date if another program wrote it."""
    neighbours: Sequence[Worker]
    """Workers whose record names the requested host. Their queues are not read."""
    blocked: Sequence[str]
    """Names of the blocked actors."""
    scanned_ago: float
    """Seconds since the latest recorded scan by any worker; infinite if there was none."""


@translated
class HeartbeatView:
    """A query of all workers, blocked actors and the latest scan, in one round trip. Reads the primary."""

    def __init__(self, database: Database[Document]) -> None:
        self._workers = current(database[schema.WORKERS])

    def look(self, host: str) -> HeartbeatLook:
        """Read the current state. Reads one document per worker, actor and scanner.

        Args:
            host: Host whose workers are returned as neighbours.
        """
        # The name is not part of the filter, because the index would then be used, at twice the cost.
        blocked: Document = {"blockedAt": {"$ne": None}}
        actors = [{"$match": blocked}, {"$project": {"_id": False, "blocked": "$_id"}}]
        stages: list[Document] = [{"$project": _BRIEF}]
        stages += [
            {"$unionWith": {"coll": schema.ACTORS, "pipeline": actors}},
            {"$unionWith": {"coll": schema.SCANNERS, "pipeline": [{"$project": {"_id": False, "scannedAgo": _AGO}}]}},
        ]
        documents = list(self._workers.aggregate(stages))
        workers = [document for document in documents if isinstance(document.get("_id"), str)]
        return HeartbeatLook(
            deadlines={document["_id"]: document.get("recoveryTime") for document in workers},
            neighbours=list(readable(Worker, [document for document in workers if document.get("host") == host])),
            blocked=[document["blocked"] for document in documents if isinstance(document.get("blocked"), str)],
            scanned_ago=min(
                (document["scannedAgo"] for document in documents if document.get("scannedAgo") is not None),
                default=math.inf,
            ),
        )


class Claim(NamedTuple):
    """The claim of an attempt: a decision under a pass.

    `attempts` is the decision's number of attempts at the claim.
    """

    decision_id: str
    pass_key: str
    attempts: int


class Fate(StrEnum):
    """The fate of a claim. Only fates in `KNOWN` may free a slot; with any other fate, the claim counts as held."""

    HELD = "held"
    LOST = "lost"
    """The task was requeued, and another attempt may have claimed it."""
    DECIDED = "decided"
    """The task has ended, by this attempt or another. A later result of this attempt is discarded."""
    UNSEEN = "a majority of MongoDB's members lags behind"
    DAMAGED = "its record can't be read"


KNOWN = frozenset({Fate.HELD, Fate.LOST, Fate.DECIDED})


@translated
class Hung:
    """Queries of the collection `decisions`, and notes of freed slots in `actors`.

    Decisions are read with read concern majority, because slots are freed based on them. `catch_up` waits until a
    majority has all writes of the primary.
    """

    def __init__(self, database: Database[Document], catch_up: Callable[[], None]) -> None:
        # Read concern majority, because a slot is freed based on these reads and a failover must not revoke them.
        self._decisions = committed(database[schema.DECISIONS])
        self._actors = current(database[schema.ACTORS])
        self._catch_up = catch_up

    def fates(self, claims: Many[Claim]) -> dict[Claim, Fate]:
        """Return the fate of each claim. Index `_id`.

        A majority read may be older than a claim. Such decisions are read again after the majority has caught up. After
        that, the answer is certain, also for claims that a failover took back and for decisions that are gone: both are
        LOST. If the majority does not catch up within CATCH_UP_TIMEOUT, the fate is UNSEEN.
        """
        documents = self._read(claims)
        outdated = [claim for claim in claims if _may_be_older(claim, documents.get(claim.decision_id))]
        unseen = frozenset(outdated) if outdated and not self._caught_up() else frozenset()
        documents |= self._read([claim for claim in outdated if claim not in unseen])
        return {
            claim: Fate.UNSEEN if claim in unseen else _fate(claim, documents.get(claim.decision_id))
            for claim in claims
        }

    def _read(self, claims: Many[Claim]) -> dict[str, Document | None]:
        """Return the document of each claim's decision by id; None for a missing decision."""
        if not claims:
            return {}
        ids = sorted({claim.decision_id for claim in claims})
        fields = {"state": True, "pass": True, "attempts": True}
        documents = self._decisions.find({"_id": {"$in": ids}}, fields)
        return {**dict.fromkeys(ids), **{document["_id"]: document for document in documents}}

    def _caught_up(self) -> bool:
        try:
            with pymongo.timeout(CATCH_UP_TIMEOUT):
                self._catch_up()
        except StoreError as error:
            log.debug("a majority does not have what the primary has (%s)", error)
            return False
        return True

    def note_freed(self, actor: str, worker: str, task: str) -> None:
        """Record a freed slot in the actor's record, and increment its count. Only for reports."""
        freed = {"slots": plus_one("freed.slots"), "at": "$$NOW", "worker": literal(worker), "task": literal(task)}
        self._actors.update_one({"_id": actor}, [{"$set": {"freed": freed}}])

    def freed(self) -> list[FreedSlots]:
        """Return the freed slots by actor, the latest first. Reads one document per actor, from the primary."""
        documents = self._actors.find({"freed": {"$type": "object"}}, {"freed": True}).sort("freed.at", -1)
        return list(readable(FreedSlots, ({**document["freed"], "_id": document["_id"]} for document in documents)))


def _may_be_older(claim: Claim, decision: Document | None) -> bool:
    """Return whether a document may be older than the claim. Each claim increments `attempts`.

    A refused claim is not counted, so an earlier claim may have the same number under another pass.
    """
    if decision is None:
        return True
    attempts, is_claimed = decision.get("attempts", 0), decision.get("state") == WORKING
    if not isinstance(attempts, int) or attempts < claim.attempts:
        return True
    return attempts == claim.attempts and is_claimed and decision.get("pass") not in (claim.pass_key, None)


def _fate(claim: Claim, decision: Document | None) -> Fate:
    """Return the fate of a claim, given a document that is not older than the claim."""
    if decision is None:
        return Fate.LOST
    state, held_pass = decision.get("state"), decision.get("pass")
    if not (isinstance(state, str) and state in STATES):
        return Fate.DAMAGED
    if state == FINISHED:
        return Fate.DECIDED
    if state != WORKING:
        return Fate.LOST
    if not isinstance(held_pass, str):
        return Fate.DAMAGED
    return Fate.HELD if held_pass == claim.pass_key else Fate.LOST
