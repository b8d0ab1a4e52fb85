"""Rules on a single decision. They need nothing but it and the surroundings, so a scanner runs them on a page
of overdue decisions without reading anything else."""

from __future__ import annotations

from datetime import datetime

from recovery.records import Decision, DecisionState
from recovery.records.ids import is_record_id
from recovery.rules.findings import Finding, Repair, Rule, Surroundings
from recovery.rules.times import task_timeout

OF_SINGLE_TASKS = frozenset({Rule.MESSAGE_LOST, Rule.WORK_TIMEOUT, Rule.WORKER_LOST, Rule.DUE})
"""Rules whose findings rest on one decision, and on nothing else of its process."""


def judge_decision(decision: Decision, around: Surroundings) -> Finding | None:
    """The first rule that applies to a decision, or None while all is well with it."""
    if decision.state is DecisionState.WAITING:
        return None
    if not around.will_look(decision.recovery_time):
        return deadline_missing(decision)
    if decision.state is DecisionState.WORKING:
        return task_timeout(decision, around) or worker_lost(decision, around) or work_timeout(decision, around)
    if decision.state is DecisionState.DELAYED:
        return task_timeout(decision, around) or due(decision, around)
    if decision.state is DecisionState.QUEUED:
        # What no worker takes is not requeued, whatever is known of its queue.
        judge = message_lost if is_record_id(decision.id) else id_damaged
        return task_timeout(decision, around) or judge(decision, around)
    return not_applied(decision, around)


def of_aborted(decision: Decision) -> Finding:
    """ABORT_CUT_OFF: its process is aborted, and it has a deadline: nothing of it is to go on."""
    evidence = f"aborted, and a task of it is {decision.state}: {decision.task_id}"
    return Finding(Rule.ABORT_CUT_OFF, decision.process_id, Repair.FINISH_ABORT, evidence)


def deadline_missing(decision: Decision) -> Finding | None:
    """DEADLINE_MISSING: live, and nobody would ever look at it again."""
    if decision.state is DecisionState.FINISHED:
        return None  # at rest, as it should be
    lacks = without(decision.recovery_time)
    return Finding(Rule.DEADLINE_MISSING, decision.id, Repair.STAMP, f"{decision.state} {lacks}", decision)


def without(deadline: datetime | None) -> str:
    """What is wrong with a deadline, in words."""
    return "without recoveryTime" if deadline is None else f"with a recoveryTime in the year {deadline.year}"


def work_timeout(decision: Decision, around: Surroundings) -> Finding | None:
    """WORK_TIMEOUT: an actor took the task and brought no answer."""
    if not _past(decision, around):
        return None
    assert decision.recovery_time is not None
    evidence = f"working for {decision.worker}, deadline {_clock(decision.recovery_time, 'microseconds')} past"
    return Finding(Rule.WORK_TIMEOUT, decision.id, _after_timeout(decision, around), evidence, decision)


def worker_lost(decision: Decision, around: Surroundings) -> Finding | None:
    """WORKER_LOST: the worker that claimed the task is gone; its deadline need not be waited for."""
    if not around.is_lost(decision.worker):
        return None
    evidence = f"working for {decision.worker}, which is gone"
    return Finding(Rule.WORKER_LOST, decision.id, _after_timeout(decision, around), evidence, decision)


def due(decision: Decision, around: Surroundings) -> Finding | None:
    """DUE: delayed, and its time has come."""
    if not _past(decision, around):
        return None
    return Finding(Rule.DUE, decision.id, Repair.ENQUEUE_DUE, "delayed, eta past", decision)


def message_lost(decision: Decision, around: Surroundings) -> Finding | None:
    """MESSAGE_LOST, or why the message may still come: SERVERS_WERE_DOWN, NO_ACTORS, ACTORS_LAG.

    Lost is what was there when Redis lost its data, and what must have been taken by now: a younger message was
    (queues are first in, first out), or the queue has been found empty since, and is polled. That it is empty no
    longer is no matter: what is in it was pushed later. While a queue lags, nothing is lost and nothing is pushed:
    a second message would only make the queue longer. Nor while its actor is blocked. And what may have been taken
    just now is left for the next look, which is soon. What its actor's pace has postponed is left until its turn.
    """
    queued_at, queue = decision.queued_at, around.queues.get(decision.actor)
    if decision.actor in around.blocked:
        return blocked(decision, around)
    if decision.is_paced and not _past(decision, around):
        return None  # it is known to be lost, and has its turn then
    if queued_at is None:
        return Finding(
            Rule.MESSAGE_LOST, decision.id, Repair.REQUEUE_MESSAGE, "queued without a time: never pushed", decision
        )
    if (emptied := around.redis_lost_before(decision.actor)) and queued_at <= emptied:
        evidence = f"queued {_clock(queued_at)}, and Redis had lost its data at {_clock(emptied)}"
        return Finding(Rule.MESSAGE_LOST, decision.id, Repair.REQUEUE_MESSAGE, evidence, decision)
    taken = queue.taken_queued_at if queue else None
    # One of a time to come is of a clock that was set back since, and proves nothing.
    if taken and taken - queued_at > around.message_margin and taken <= around.now:
        evidence = f"queued {_clock(queued_at)}, a message of {_clock(taken)} was taken"
        return Finding(Rule.MESSAGE_LOST, decision.id, Repair.REQUEUE_MESSAGE, evidence, decision)
    if (empty_at := around.empty_at(decision.actor)) and empty_at - queued_at > around.message_margin:
        evidence = f"queued {_clock(queued_at)}, and its queue was polled and empty at {_clock(empty_at)}"
        return Finding(Rule.MESSAGE_LOST, decision.id, Repair.REQUEUE_MESSAGE, evidence, decision)
    if not _past(decision, around) or around.may_be_in_hand(decision.actor):
        return None
    if around.is_polled(decision.actor):
        rule = Rule.ACTORS_LAG
    else:
        rule = Rule.NO_ACTORS if any(map(around.is_polled, around.queues)) else Rule.SERVERS_WERE_DOWN
    return Finding(rule, decision.id, Repair.WAIT, f"queued {_clock(queued_at)}, not yet taken", decision)


def id_damaged(decision: Decision, around: Surroundings) -> Finding | None:
    """RECORD_DAMAGED at the decision's deadline: see `foreign_id`."""
    return foreign_id(decision) if _past(decision, around) else None


def foreign_id(decision: Decision) -> Finding:
    """RECORD_DAMAGED: no worker takes a message of a task whose id is none of ours, which might be a query."""
    evidence = f"queued, and its id {decision.id!r:.100} is not of the form PROCESS/TASK: no worker takes it"
    return Finding(Rule.RECORD_DAMAGED, decision.id, Repair.WAIT, evidence, decision)


def blocked(decision: Decision, around: Surroundings) -> Finding | None:
    """NO_ACTORS, since an operator wants it so."""
    if not _past(decision, around):
        return None
    return Finding(Rule.NO_ACTORS, decision.id, Repair.WAIT, "queued, its actor is blocked", decision)


def not_applied(decision: Decision, around: Surroundings) -> Finding | None:
    """DECISION_NOT_APPLIED: finished, and its worker did not say that the graph has it.

    Mostly it was applied and only that word is missing; applying again tells and changes nothing.
    """
    if not (_past(decision, around) or around.is_lost(decision.worker)):
        return None
    return Finding(Rule.DECISION_NOT_APPLIED, decision.id, Repair.APPLY, "finished, not known to be applied", decision)


def _past(decision: Decision, around: Surroundings) -> bool:
    return decision.recovery_time is not None and decision.recovery_time <= around.now


def _clock(moment: datetime, precision: str = "seconds") -> str:
    """As evidence tells it. Not strftime: it is told of each of a thousand, and that alone took a tenth of a scan."""
    return moment.time().isoformat(precision)


def _after_timeout(decision: Decision, around: Surroundings) -> Repair:
    actor = around.actor(decision.actor)
    if not actor.restarts_lost_attempts:
        return Repair.FAIL
    # Of a batch it counts no timeout: perhaps it had not begun.
    counts = not decision.in_batch
    return Repair.FAIL if counts and decision.timeouts + 1 >= actor.max_work_timeouts else Repair.REQUEUE
