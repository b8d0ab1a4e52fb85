"""What a worker's parent process asks: with each heartbeat of its surroundings (`HeartbeatView`), and of attempts
that run past their time, who has their tasks now, and whose slots were freed (`Hung`)."""

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
"""Seconds that a look waits for the majority: a thousand times what it takes while all is well."""


@dataclass(frozen=True, slots=True)
class HeartbeatLook:
    """What a heartbeat found."""

    deadlines: Mapping[str, Any]
    """{worker: what stands as deadline in its record}; of another program's perhaps no date."""
    neighbours: Sequence[Worker]
    """Workers that said they run on the host that was asked for, without what they serve."""
    blocked: Sequence[str]
    """Names of the actors that are blocked."""
    scanned_ago: float
    """Seconds since any worker noted a scan; infinite if none ever did."""


@translated
class HeartbeatView:
    """What a heartbeat looks at: all workers, what is blocked, and when somebody scanned. One question."""

    def __init__(self, database: Database[Document]) -> None:
        self._workers = current(database[schema.WORKERS])

    def look(self, host: str) -> HeartbeatLook:
        """Return all of it as it is now. Reads as many documents as there are workers, actors and scanners."""
        # Not only those whose name is one: that would be asked of the index, which costs twice as much.
        blocked: Document = {"blockedAt": {"$ne": None}}
        actors = [{"$match": blocked}, {"$project": {"_id": False, "blocked": "$_id"}}]
        stages: list[Document] = [{"$project": _BRIEF}]
        stages += [
            {"$unionWith": {"coll": schema.ACTORS, "pipeline": actors}},
            {"$unionWith": {"coll": schema.SCANNERS, "pipeline": [{"$project": {"_id": False, "scannedAgo": _AGO}}]}},
        ]
        found = list(self._workers.aggregate(stages))
        there = [one for one in found if isinstance(one.get("_id"), str)]
        return HeartbeatLook(
            deadlines={one["_id"]: one.get("recoveryTime") for one in there},
            neighbours=list(readable(Worker, [one for one in there if one.get("host") == host])),
            blocked=[one["blocked"] for one in found if isinstance(one.get("blocked"), str)],
            scanned_ago=min(
                (one["scannedAgo"] for one in found if one.get("scannedAgo") is not None), default=math.inf
            ),
        )


class Claim(NamedTuple):
    """What an attempt claimed: a decision under a pass; `attempts` is how often it had been claimed then."""

    decision_id: str
    pass_key: str
    attempts: int


class Fate(StrEnum):
    """What became of a claim. Nothing may be freed upon what is not `KNOWN`: it counts as held."""

    HELD = "held"
    LOST = "lost"
    """Its task was queued again, and may be another attempt's by now."""
    DECIDED = "decided"
    """Its task has ended, whoever brought the end: nothing of this attempt is taken any more."""
    UNSEEN = "a majority of MongoDB's members lags behind"
    DAMAGED = "its record can't be read"


KNOWN = frozenset({Fate.HELD, Fate.LOST, Fate.DECIDED})


@translated
class Hung:
    """Queries over the collection `decisions`, and what is kept of hung slots in `actors`.

    `catch_up` waits until a majority has all that the primary has.
    """

    def __init__(self, database: Database[Document], catch_up: Callable[[], None]) -> None:
        # A slot is freed upon what is read here, so it is to be what stays.
        self._decisions = committed(database[schema.DECISIONS])
        self._actors = current(database[schema.ACTORS])
        self._catch_up = catch_up

    def fates(self, claims: Many[Claim]) -> dict[Claim, Fate]:
        """What became of each. Index `_id`.

        What a majority has may be older than a claim: what may be so is read once more when the majority has caught up.
        Then it tells the truth, also of a claim that a failover took back, or whose record is gone: both are lost.
        Waits CATCH_UP_TIMEOUT for that; else the claim is UNSEEN.
        """
        found = self._read(claims)
        older = [claim for claim in claims if _may_be_older(claim, found.get(claim.decision_id))]
        unseen = frozenset(older) if older and not self._caught_up() else frozenset()
        found |= self._read([claim for claim in older if claim not in unseen])
        return {
            claim: Fate.UNSEEN if claim in unseen else _fate(claim, found.get(claim.decision_id)) for claim in claims
        }

    def _read(self, claims: Many[Claim]) -> dict[str, Document | None]:
        """Return {decision: its document, or None} of each of these claims."""
        if not claims:
            return {}
        ids = sorted({claim.decision_id for claim in claims})
        fields = {"state": True, "pass": True, "attempts": True}
        found = self._decisions.find({"_id": {"$in": ids}}, fields)
        return {**dict.fromkeys(ids), **{document["_id"]: document for document in found}}

    def _caught_up(self) -> bool:
        try:
            with pymongo.timeout(CATCH_UP_TIMEOUT):
                self._catch_up()
        except StoreError as error:
            log.debug("a majority does not have what the primary has (%s)", error)
            return False
        return True

    def note_freed(self, actor: str, worker: str, task: str) -> None:
        """Count a slot that was freed of an attempt of this actor. For reports: nothing is decided by it."""
        freed = {"slots": plus_one("freed.slots"), "at": "$$NOW", "worker": literal(worker), "task": literal(task)}
        self._actors.update_one({"_id": actor}, [{"$set": {"freed": freed}}])

    def freed(self) -> list[FreedSlots]:
        """Return the slots that were freed, by actor, the last freed first. Reads as many documents as there are
        actors."""
        found = self._actors.find({"freed": {"$type": "object"}}, {"freed": True}).sort("freed.at", -1)
        return list(readable(FreedSlots, ({**document["freed"], "_id": document["_id"]} for document in found)))


def _may_be_older(claim: Claim, decision: Document | None) -> bool:
    """Whether a record may be from before the claim: each claim counts up its attempts.

    An earlier claim that was refused is not counted any more. It had the same number as this one, under another pass.
    """
    if decision is None:
        return True
    attempts, is_claimed = decision.get("attempts", 0), decision.get("state") == WORKING
    if not isinstance(attempts, int) or attempts < claim.attempts:
        return True
    return attempts == claim.attempts and is_claimed and decision.get("pass") not in (claim.pass_key, None)


def _fate(claim: Claim, decision: Document | None) -> Fate:
    """Return the fate of a claim, by a record that is not older than the claim."""
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
