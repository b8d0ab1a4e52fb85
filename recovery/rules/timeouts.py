"""Rules on time as a whole: a task's from when it was first queued, a process's from its start.

Other deadlines tell of something that went wrong; these two tell that it was right and took too long.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from recovery.records import Decision, DecisionState, Process
from recovery.rules.findings import Finding, Repair, Rule, Snapshot, Surroundings


def task_timeout(decision: Decision, around: Surroundings) -> Finding | None:
    """TASK_TIMEOUT: its time is over. What is queued or to be tried again ends; what is worked on ends with it only if
    that is forced, and else when its attempt is overdue as well."""
    actor = around.actor(decision.actor)
    if not actor.task_timeout or decision.enqueued_at is None:
        return None
    # Differences, here and below: a date at the end of the calendar has no later one.
    if around.now - decision.enqueued_at < timedelta(seconds=actor.task_timeout):
        return None
    if decision.state is DecisionState.WORKING and not actor.force_finish_after_task_timeout:
        overdue = decision.recovery_time is not None and decision.recovery_time <= around.now
        if not overdue:
            return None
    evidence = f"{decision.state}, first queued {decision.enqueued_at:%H:%M:%S}, over {actor.task_timeout:g} s ago"
    return Finding(Rule.TASK_TIMEOUT, decision.id, Repair.END_OVERDUE, evidence, decision)


def process_timeout(snapshot: Snapshot, around: Surroundings) -> Iterator[Finding]:
    """PROCESS_TIMEOUT: it has run for too long, and that was not counted yet."""
    process = snapshot.process
    assert process is not None
    if is_late(process, around):
        kind, began = around.process_type(process.type), process.restarted_at or process.started_at
        repair = Repair.BREAK_OVERDUE if kind.break_after_process_timeout else Repair.COUNT_OVERDUE
        evidence = f"started {began:%H:%M:%S}, over {kind.process_timeout:g} s ago"
        yield Finding(Rule.PROCESS_TIMEOUT, process.id, repair, evidence)


def is_late(process: Process, around: Surroundings) -> bool:
    """Whether a process has run for too long, and that was not counted yet."""
    seconds, began = around.process_type(process.type).process_timeout, process.restarted_at or process.started_at
    if not seconds or began is None or process.timed_out_at is not None:
        return False
    return around.now - began >= timedelta(seconds=seconds)
