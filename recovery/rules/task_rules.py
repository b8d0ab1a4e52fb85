"""Rules on a single decision. They need only the decision and the surroundings, so a scanner applies them to a page of
overdue decisions without reading other records."""

from __future__ import annotations

from datetime import datetime

from recovery.records import Decision, DecisionState
from recovery.records.ids import is_record_id
from recovery.rules.damaged_records import foreign_id
from recovery.rules.findings import Finding, Repair, Rule, Surroundings
from recovery.rules.times import deadline_missing, task_timeout

OF_SINGLE_TASKS = frozenset({Rule.MESSAGE_LOST, Rule.WORK_TIMEOUT, Rule.WORKER_LOST, Rule.DUE})
"""Rules whose findings depend on one decision and on no other record of its process."""


def judge_decision(decision: Decision, around: Surroundings) -> Finding | None:
    """Return the finding of the first rule that applies to a decision, or None if it is healthy."""
    if decision.state is DecisionState.WAITING:
        return None
    if not around.will_look(decision.recovery_time):
        return deadline_missing(decision)
    if decision.state is DecisionState.WORKING:
        return task_timeout(decision, around) or worker_lost(decision, around) or work_timeout(decision, around)
    if decision.state is DecisionState.DELAYED:
        return task_timeout(decision, around) or due(decision, around)
    if decision.state is DecisionState.QUEUED:
        if finding := task_timeout(decision, around):
            return finding
        if not is_record_id(decision.id):  # workers reject its messages, whatever the state of its queue
            return foreign_id(decision) if _past(decision, around) else None
        return message_lost(decision, around)
    return not_applied(decision, around)


def work_timeout(decision: Decision, around: Surroundings) -> Finding | None:
    """WORK_TIMEOUT: a worker claimed the task, and the claim's deadline is past without a result."""
    if not _past(decision, around):
        return None
    assert decision.recovery_time is not None
    evidence = f"working for {decision.worker}, deadline {_clock(decision.recovery_time, 'microseconds')} past"
    return Finding(Rule.WORK_TIMEOUT, decision.id, _after_loss(Rule.WORK_TIMEOUT, decision, around), evidence, decision)


def worker_lost(decision: Decision, around: Surroundings) -> Finding | None:
    """WORKER_LOST: the worker that claimed the task is gone, so there is no need to wait for the deadline."""
    if not around.is_lost(decision.worker):
        return None
    evidence = f"working for {decision.worker}, which is gone"
    return Finding(Rule.WORKER_LOST, decision.id, _after_loss(Rule.WORKER_LOST, decision, around), evidence, decision)


def due(decision: Decision, around: Surroundings) -> Finding | None:
    """DUE: the delay of a delayed task is over."""
    if not _past(decision, around):
        return None
    return Finding(Rule.DUE, decision.id, Repair.ENQUEUE_DUE, "delayed, eta past", decision)


def message_lost(decision: Decision, around: Surroundings) -> Finding | None:
    """MESSAGE_LOST, or why the message may still come: SERVERS_WERE_DOWN, NO_ACTORS, ACTORS_LAG.

    Nothing is requeued while the queue lags, because a second message would only make the queue longer, or while the
    actor is blocked. A message that a worker may have just received is left for the next check, which comes soon. A
    task that the actor's `requeue_rate` has postponed is left until its turn.
    """
    is_past, queue = _past(decision, around), decision.actor
    if queue in around.blocked:
        evidence = "queued, its actor is blocked"
        return Finding(Rule.NO_ACTORS, decision.id, Repair.WAIT, evidence, decision) if is_past else None
    if decision.is_paced and not is_past:
        return None
    if proof := proof_of_loss(decision, around):
        return Finding(Rule.MESSAGE_LOST, decision.id, Repair.REQUEUE_MESSAGE, proof, decision)
    if not is_past or around.may_be_in_hand(queue):
        return None
    if around.is_polled(queue):
        rule = Rule.ACTORS_LAG
    else:
        rule = Rule.NO_ACTORS if any(map(around.is_polled, around.queues)) else Rule.SERVERS_WERE_DOWN
    assert decision.queued_at is not None, "else its message is lost"
    evidence = f"queued {_clock(decision.queued_at)}, not yet taken"
    return Finding(rule, decision.id, Repair.WAIT, evidence, decision)


def proof_of_loss(decision: Decision, around: Surroundings) -> str | None:
    """Return the evidence that the message of a queued decision is lost, or None.

    A message is lost if Redis lost its data after the task was queued. It is also lost if it must have been taken by
    now and the task is still queued: a younger message was taken (queues are first in, first out), or the queue was
    polled and empty since. Messages that are in the queue now do not matter, because they were pushed later.
    """
    queued_at, queue = decision.queued_at, around.queues.get(decision.actor)
    if queued_at is None:
        return "queued without a time: never pushed"
    if (emptied := around.redis_lost_before(decision.actor)) and queued_at <= emptied:
        return f"queued {_clock(queued_at)}, and Redis had lost its data at {_clock(emptied)}"
    taken = queue.taken_queued_at if queue else None
    # A time in the future was written before a clock was set back, and proves nothing.
    if taken and taken - queued_at > around.message_margin and taken <= around.now:
        return f"queued {_clock(queued_at)}, a message of {_clock(taken)} was taken"
    if (empty_at := around.empty_at(decision.actor)) and empty_at - queued_at > around.message_margin:
        return f"queued {_clock(queued_at)}, and its queue was polled and empty at {_clock(empty_at)}"
    return None


def not_applied(decision: Decision, around: Surroundings) -> Finding | None:
    """DECISION_NOT_APPLIED: the decision is finished, and its worker has not confirmed that it was applied.

    Usually it was applied and only the confirmation is missing. Applying it again then changes nothing.
    """
    if not (_past(decision, around) or around.is_lost(decision.worker)):
        return None
    return Finding(Rule.DECISION_NOT_APPLIED, decision.id, Repair.APPLY, "finished, not known to be applied", decision)


def _past(decision: Decision, surroundings: Surroundings) -> bool:
    return decision.recovery_time is not None and decision.recovery_time <= surroundings.now


def _clock(moment: datetime, precision: str = "seconds") -> str:
    """Return a time of day for evidence. Not by strftime, which is slow, because scanners format it for each of a
    thousand decisions."""
    return moment.time().isoformat(precision)


def counts_as_loss(rule: Rule, decision: Decision) -> bool:
    """Return whether a lost attempt counts in the decision's `timeouts`.

    An attempt in a batch does not count, because it may not have begun. An attempt that was lost with its whole worker
    does not count, because nothing shows that the task caused the loss.
    """
    return not decision.in_batch and (rule is Rule.WORK_TIMEOUT or decision.last_loss is not None)


WORKERS_PER_ATTEMPT = 3
"""Number of whole workers that a task may be lost with, for each of its actor's `max_work_timeouts`. With this limit,
even a task that crashes its machine each time ends."""


def _after_loss(rule: Rule, decision: Decision, surroundings: Surroundings) -> Repair:
    actor = surroundings.actor(decision.actor)
    if not actor.restarts_lost_attempts:
        return Repair.FAIL
    if counts_as_loss(rule, decision):
        is_last = decision.timeouts + 1 >= actor.max_work_timeouts
    else:
        lost = (decision.workers_lost or 0) + 1
        is_last = not decision.in_batch and lost >= WORKERS_PER_ATTEMPT * actor.max_work_timeouts
    return Repair.FAIL if is_last else Repair.REQUEUE
