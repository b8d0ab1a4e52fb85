"""What the updates of one decision ask for and set, and what a claim reads: without a collection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from recovery.errors import DamagedRecord
from recovery.records import (
    Decision,
    DecisionState,
    Refused,
    RetryState,
    TaskLimit,
    Until,
    forgotten,
    from_document,
    to_document,
)
from recovery.store.client import Document
from recovery.store.expressions import FIRST_QUEUED, after, by_id, literal, plus_one, task_end

WAITING, DELAYED = DecisionState.WAITING.value, DecisionState.DELAYED.value
QUEUED, WORKING = DecisionState.QUEUED.value, DecisionState.WORKING.value
FINISHED = DecisionState.FINISHED.value
CLAIMED = {"outcome": False, "children": False}
"""An undecided task has neither; one that another program put back would bring 16 MB that no attempt looks at."""
_COPIED = frozenset({"call", "attempts", "claimedAt", "refused"})
"""Fields that an attempt can do without: the Task has the call."""


def claimed(worker: str, timeout: float, limit: TaskLimit | None, version: str | None) -> Document:
    """The fields that a claim sets. `version` is that of the worker's application."""
    return {
        **of_version(version),
        "state": WORKING,
        "worker": literal(worker),
        "claimedAt": "$$NOW",
        "attempts": plus_one("attempts"),
        "fresh": "$$REMOVE",
        "recoveryTime": work_deadline(timeout, limit),
    }


def claimed_ready(worker: str, timeout: float, limit: TaskLimit | None, version: str | None) -> Document:
    """The same of a decision that was not queued: both in one."""
    return {**claimed(worker, timeout, limit, version), "queuedAt": "$$NOW", "enqueuedAt": FIRST_QUEUED}


def of_version(version: str | None) -> Document:
    """The field that records which version of the application runs an attempt, or ran it; none if nobody knows."""
    return {} if version is None else {"version": literal(version)}


def work_deadline(timeout: float, limit: TaskLimit | None) -> Document:
    """When an attempt is looked at: a limit that is not forced waits for it to end."""
    if limit is None or not limit.forced:
        return after(timeout)
    return {"$min": [after(timeout), task_end(limit.seconds)]}


def may_finish(pass_key: str | Document | None, epoch: int, restarts: int | None, accept_first: bool) -> Document:
    """Whose result is taken: of who has the pass, or one of them; or, with `accept_first`, of any attempt of this life
    (docs/records.md, 'What may be accepted')."""
    # Who has the pass has it in any epoch: what is kept where others are done again goes on.
    guard: Document = {"state": WORKING, "pass": pass_key}
    if not accept_first:
        return guard
    life = {"epoch": epoch, "restarts": restarts}
    return {"$or": [guard, {**life, "state": {"$in": [WORKING, QUEUED, DELAYED]}}]}


def finished(ended: Sequence[Decision], worker: str, apply_timeout: float, version: str | None) -> list[Document]:
    """The stages of the update that finishes these decisions, each with its own outcome and children. The version is
    set anew: the result may be that of an attempt before the last claim."""
    outcomes = {one.id: to_document(one.outcome) for one in ended if one.outcome is not None}
    children = {one.id: [to_document(child) for child in one.children] for one in ended}
    fields = {
        **of_version(version),
        "state": FINISHED,
        "outcome": {"$mergeObjects": [_each(outcomes), {"finishedAt": "$$NOW"}]},
        "children": _each(children) if any(children.values()) else literal([]),
        "recoveryTime": after(apply_timeout),
        "worker": literal(worker),
    }
    stages: list[Document] = [{"$set": fields}]
    return [*stages, {"$unset": "inBatch"}] if any(one.in_batch for one in ended) else stages


def _each(values: Mapping[str, Any]) -> Document:
    """Of each record its own of {id: value}."""
    return by_id(values) if len(values) > 1 else literal(next(iter(values.values())))


def retried_later(
    decision: Decision, retry: RetryState | None, seconds: float, limit: TaskLimit | None
) -> tuple[Document, list[Document]]:
    """Condition and stages of the update that has a task tried again after so many seconds."""
    guard = {"_id": decision.id, "state": WORKING, "pass": decision.pass_key}
    due = after(seconds)
    # By its eta every rule knows when it is due; what it was delayed by at first is over.
    fields: Document = {"state": DELAYED, "eta": due}
    if retry is not None:
        fields["retry"] = literal(to_document(retry))
    # Not past the end of its time: it is looked at then, and ends.
    fields["recoveryTime"] = due if limit is None else {"$min": [due, task_end(limit.seconds)]}
    return guard, [{"$set": fields}, {"$unset": ["delay", *forgotten(Until.NEXT_ATTEMPT)]}]


def given_back_refused(
    decision: Decision, refused: Refused, retry: RetryState | None, seconds: float, limit: TaskLimit | None
) -> tuple[Document, list[Document]]:
    """Condition and stages of the update that gives back a task whose call the worker's code does not accept."""
    guard, stages = retried_later(decision, retry, seconds, limit)
    fields = {"refused": literal(to_document(refused)), "attempts": refused.attempts}
    # Its function was not called by this version.
    return guard, [*stages, {"$set": fields}, {"$unset": "version"}]


def claimed_of(document: Document) -> Decision:
    """Return the decision of a document that was read with `CLAIMED`, without damaged `_COPIED` fields."""
    try:
        return from_document(Decision, document)
    except DamagedRecord as damage:
        if not _COPIED.issuperset(damage.fields):
            raise
        return from_document(Decision, {key: value for key, value in document.items() if key not in damage.fields})
