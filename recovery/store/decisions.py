"""Queries and updates of the Decision records: one at a time, as the life of a task needs them.

Each update's filter is the whole condition that it was decided on: state, pass, epoch. What comes back says
whether it took place. The updates of a batch of decisions stand in `requeues`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from pymongo import UpdateOne
from pymongo.collection import Collection
from pymongo.errors import BulkWriteError

from recovery.records import Child, Decision, DecisionState, Outcome, from_document, to_document
from recovery.records.ids import HOLDER_END
from recovery.store.client import Document
from recovery.store.expressions import ACKNOWLEDGED, OVERDUE, RESTORABLE, after, literal, plus_one
from recovery.store.tasks import insert_missing

WAITING, DELAYED = DecisionState.WAITING.value, DecisionState.DELAYED.value
QUEUED, WORKING = DecisionState.QUEUED.value, DecisionState.WORKING.value
FINISHED = DecisionState.FINISHED.value

_NOT_MATCHED = (11000, 121)
"""Codes that an upsert fails with which matched nothing: there is a record of that id, or what would be inserted is
no valid record, since there is none."""


@dataclass(frozen=True, slots=True)
class Queued:
    """A decision that was just queued: what its message needs. One that had its turn already is `first` in line."""

    id: str
    actor: str
    pass_key: str
    queued_at: datetime
    first: bool = False


class Decisions:
    """The collection `decisions`."""

    def __init__(self, collection: Collection[Document]) -> None:
        self._acknowledged = collection.with_options(write_concern=ACKNOWLEDGED)
        self._restorable = collection.with_options(write_concern=RESTORABLE)

    def insert(self, decisions: Sequence[Decision]) -> int:
        """Save new decisions, all waiting; those that are there already are left as they are. How many were not.

        Restorable: CHILDREN_MISSING and START_NOT_REGISTERED make them again.
        """
        return insert_missing(self._restorable, [to_document(decision) for decision in decisions])

    def insert_queued(self, decision: Decision, pass_key: str, now: datetime, message_timeout: float) -> Queued | None:
        """Save a new decision as queued; what its message needs, or None if it is there already.

        An insert does not know the database's clock: `now` was read from it.
        """
        queued = decision.evolve(
            state=DecisionState.QUEUED,
            pass_key=pass_key,
            queued_at=now,
            recovery_time=now + timedelta(seconds=message_timeout),
        )
        made = insert_missing(self._restorable, [to_document(queued)])
        return Queued(decision.id, decision.actor, pass_key, now) if made else None

    def get(self, decision_id: str) -> Decision | None:
        """The decision of this id, `P/T`."""
        found = self._restorable.find_one({"_id": decision_id})
        return from_document(Decision, found) if found else None

    def get_many(self, decision_ids: Iterable[str]) -> dict[str, Decision]:
        """The decisions that are there, by id."""
        found = self._restorable.find({"_id": {"$in": list(decision_ids)}})
        return {document["_id"]: from_document(Decision, document) for document in found}

    def outcomes(self, decision_ids: Iterable[str]) -> dict[str, Outcome]:
        """The outcomes of those of these decisions that are finished, by id."""
        query = {"_id": {"$in": list(decision_ids)}, "state": FINISHED}
        found = self._restorable.find(query, {"outcome": True})
        return {document["_id"]: from_document(Outcome, document["outcome"]) for document in found}

    def claim(self, decision_id: str, pass_key: str, worker: str, timeout: float) -> Decision | None:
        """queued → working for the attempt that brings the current pass; None: its message is stale.

        Restorable: a claim that a failover takes back is queued again, and its message found missing.
        """
        found = self._restorable.find_one_and_update(
            {"_id": decision_id, "state": QUEUED, "pass": pass_key},
            [{"$set": _claimed(worker, timeout)}],
            return_document=True,
        )
        return from_document(Decision, found) if found else None

    def claim_ready(self, decision_id: str, pass_key: str, worker: str, timeout: float) -> Decision | None:
        """waiting → working at once, under a new pass: enqueue and claim in one, without a message.

        None: it has an eta, or somebody else was first. Restorable, as both of its parts are.
        """
        found = self._restorable.find_one_and_update(
            {"_id": decision_id, "state": WAITING, "eta": None, "delay": None},
            [{"$set": {**_claimed(worker, timeout), "pass": pass_key, "queuedAt": "$$NOW"}}],
            return_document=True,
        )
        return from_document(Decision, found) if found else None

    def extend(self, decision_id: str, pass_key: str, timeout: float) -> bool:
        """Heartbeat: move the deadline of an attempt; False: it no longer holds the claim."""
        changed = self._restorable.update_one(
            {"_id": decision_id, "state": WORKING, "pass": pass_key},
            [{"$set": {"recoveryTime": after(timeout)}}],
        )
        return changed.matched_count == 1

    def finish(
        self,
        decision: Decision,
        outcome: Outcome,
        children: Sequence[Child],
        *,
        accept_first: bool,
        worker: str,
        apply_timeout: float,
    ) -> bool:
        """→ finished with an outcome and children, in one acknowledged write: the commit point.

        `decision` is as the attempt claimed it. With `accept_first` a value is taken from any attempt of the
        epoch while the task is undecided; without it, and for an error always, only from the holder of the
        current pass (design §3). False: the result is stale. An attempt that asks again after a lost reply
        gets True if its own result is the one that was taken.
        """
        guard, stages = _finish(decision, outcome, children, accept_first, worker, apply_timeout)
        if self._acknowledged.update_one(guard, stages).matched_count == 1:
            return True
        return self._was_taken(decision, outcome)

    def finish_and_claim(
        self,
        decision: Decision,
        outcome: Outcome,
        successor: Decision,
        timeout: float,
        *,
        accept_first: bool,
        worker: str,
        apply_timeout: float,
    ) -> tuple[bool, Decision | None]:
        """`finish` without children, and with it `claim_ready` for a decision that it makes ready: one round trip.

        `successor` is as it was first written, with a new pass. Returned as it was claimed, but for the times, or
        None. It is claimed only if the first was finished: that one is an upsert, and where its condition does not
        match it fails, since there is a record of its id; an error ends an ordered bulk.
        """
        guard, stages = _finish(decision, outcome, (), accept_first, worker, apply_timeout)
        first = {"_id": successor.id, "state": WAITING, "epoch": successor.epoch, "attempts": successor.attempts}
        claimed = {**_claimed(worker, timeout), "pass": successor.pass_key, "queuedAt": "$$NOW"}
        writes = [UpdateOne(guard, stages, upsert=True), UpdateOne(first, [{"$set": claimed}])]
        try:
            done = self._acknowledged.bulk_write(writes, ordered=True)
        except BulkWriteError as error:
            if not any(one["code"] in _NOT_MATCHED for one in error.details["writeErrors"]):
                raise
            return self._was_taken(decision, outcome), None
        if done.matched_count < len(writes):
            return True, None
        return True, successor.evolve(state=DecisionState.WORKING, worker=worker, attempts=successor.attempts + 1)

    def _was_taken(self, decision: Decision, outcome: Outcome) -> bool:
        """Whether a result that is not accepted now was accepted before, and the reply lost."""
        ours = {"_id": decision.id, "epoch": decision.epoch, "outcome.pass": outcome.pass_key}
        return self._acknowledged.find_one(ours, {"_id": True}) is not None

    def rest(self, decision_ids: Sequence[str]) -> int:
        """Take the deadlines off decisions whose effects have reached the graph."""
        changed = self._restorable.update_many(
            {"_id": {"$in": list(decision_ids)}, "state": FINISHED},
            {"$unset": {"recoveryTime": "", "worker": ""}},
        )
        return changed.modified_count

    def apply_later(self, decision_id: str, seconds: float) -> None:
        """Move the deadline of a finished decision whose parent has to be applied first."""
        self._restorable.update_one(
            {"_id": decision_id, "state": FINISHED, "recoveryTime": {"$exists": True}},
            [{"$set": {"recoveryTime": after(seconds)}}],
        )

    def overdue(self, limit: int) -> list[Decision]:
        """Live decisions whose deadline is past, the longest first. Index `deadline`.

        Without outcome and children, which may be large and which no rule on a single decision needs.
        """
        found = self._restorable.find(OVERDUE, _BRIEF).sort("recoveryTime", 1).limit(limit)
        return [from_document(Decision, document) for document in found]

    def without_deadline(self, limit: int) -> list[Decision]:
        """Live decisions that lack a deadline. Index `deadlineMissing`, empty while all is well."""
        query = {"state": {"$in": [DELAYED, QUEUED, WORKING]}, "recoveryTime": None}
        found = self._restorable.find(query, _BRIEF).hint("deadlineMissing").limit(limit)
        return [from_document(Decision, document) for document in found]

    def held_by(self, workers: Sequence[str], limit: int, state: DecisionState | None = None) -> list[Decision]:
        """Decisions that these workers claimed, or finished and may not have applied. Index `worker`.

        A name is that of a worker, for all of its processes, or of one of them; see `records.ids.holder`.
        """
        ranges = [{"worker": {"$gte": name, "$lt": name + HOLDER_END}} for name in workers]
        only = {"state": state.value} if state is not None else {}
        found = self._restorable.find({"$or": ranges, **only}, _BRIEF).limit(limit)
        return [from_document(Decision, document) for document in found]


def _claimed(worker: str, timeout: float) -> Document:
    return {
        "state": WORKING,
        "worker": literal(worker),
        "claimedAt": "$$NOW",
        "attempts": plus_one("attempts"),
        "recoveryTime": after(timeout),
    }


def _finish(
    decision: Decision,
    outcome: Outcome,
    children: Sequence[Child],
    accept_first: bool,
    worker: str,
    apply_timeout: float,
) -> tuple[Document, list[Document]]:
    """Condition and stages of the update that finishes a decision."""
    holder = {"state": WORKING, "pass": decision.pass_key}
    any_attempt = {"state": {"$in": [WORKING, QUEUED]}}
    guard = any_attempt if accept_first and outcome.error is None else holder
    fields = finished_fields(outcome, children, apply_timeout) | {"worker": literal(worker)}
    return {"_id": decision.id, "epoch": decision.epoch, **guard}, [{"$set": fields}]


def finished_fields(outcome: Outcome, children: Sequence[Child], apply_timeout: float) -> Document:
    """The fields that make a decision finished, as an update's expressions."""
    return {
        "state": FINISHED,
        "outcome": {"$mergeObjects": [literal(to_document(outcome)), {"finishedAt": "$$NOW"}]},
        "children": literal([to_document(child) for child in children]),
        "recoveryTime": after(apply_timeout),
    }


# What rules on a single decision look at: a page of a thousand is read for nothing else.
_BRIEF = dict.fromkeys(("actor", "state", "worker", "timeouts", "queuedAt", "recoveryTime"), True)
