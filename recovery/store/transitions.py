"""What a claim, a heartbeat and a finish match and set: the expressions of the updates in `decisions`."""

from __future__ import annotations

from collections.abc import Sequence

from recovery.records import Child, Decision, DecisionState, Outcome, TaskLimit, to_document
from recovery.store.client import Document
from recovery.store.expressions import FIRST_QUEUED, after, literal, plus_one, task_end

QUEUED, WORKING = DecisionState.QUEUED.value, DecisionState.WORKING.value
FINISHED = DecisionState.FINISHED.value


def claimed(worker: str, timeout: float, limit: TaskLimit | None) -> Document:
    """The fields that a claim sets."""
    return {
        "state": WORKING,
        "worker": literal(worker),
        "claimedAt": "$$NOW",
        "attempts": plus_one("attempts"),
        "recoveryTime": work_deadline(timeout, limit),
    }


def claimed_ready(worker: str, timeout: float, limit: TaskLimit | None) -> Document:
    """The same of a decision that was not queued: both in one."""
    return {**claimed(worker, timeout, limit), "queuedAt": "$$NOW", "enqueuedAt": FIRST_QUEUED}


def work_deadline(timeout: float, limit: TaskLimit | None) -> Document:
    """When an attempt is looked at: a limit that is not forced waits for it to end."""
    if limit is None or not limit.forced:
        return after(timeout)
    return {"$min": [after(timeout), task_end(limit.seconds)]}


def finished(
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
    life = {"epoch": decision.epoch, "restarts": decision.restarts}
    fields = {
        "state": FINISHED,
        "outcome": {"$mergeObjects": [literal(to_document(outcome)), {"finishedAt": "$$NOW"}]},
        "children": literal([to_document(child) for child in children]),
        "recoveryTime": after(apply_timeout),
        "worker": literal(worker),
    }
    return {"_id": decision.id, **life, **guard}, [{"$set": fields}]
