"""Rules on time-outs of tasks and processes, and on impossible times.

Time-outs: a task has exceeded its task_timeout since it was first queued, or a process its process_timeout since its
start.

Impossible times: a required time is absent, a time is far in the future, or a deadline is much later than its purpose
needs. Trusting such a time would stall the process. After a clock was set back, times that are then a few hours in the
future are corrected, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from recovery.limits import LONGEST, WAITS_FOR
from recovery.records import Decision, DecisionState, Graph, Process
from recovery.rules.findings import Finding, Repair, Rule, Snapshot, Surroundings

SLACK = timedelta(days=1)
"""Maximum time by which the deadline of a record that is checked repeatedly may be late, because of the pace of
requeues after an outage."""
CLOCKS_DIFFER = timedelta(minutes=10)
"""Maximum time by which a time may be in the future because the clocks of MongoDB's members differ."""
MESSAGE_TIMEOUTS = 5 * 30
"""Longest time until the deadline of a queued or working decision, as a multiple of `Surroundings.message_margin`; this
is 30 message timeouts. A longer `WAITS_FOR` or `worker_timeout` is allowed, too."""
_LATER = 1.2
"""Maximum time until a healthy record's deadline, as a multiple of the record's age. A record is next checked at 1.8 to
2.2 times its age, so that 0.8 to 1.2 times its age remain."""


def task_timeout(decision: Decision, around: Surroundings) -> Finding | None:
    """TASK_TIMEOUT: the task has exceeded its task_timeout. A queued or delayed task ends at once. A working task ends
    when its attempt's deadline is past, or at once with `force_finish_after_task_timeout`."""
    actor = around.actor(decision.actor)
    if not actor.task_timeout or decision.enqueued_at is None:
        return None
    # Subtract dates instead of adding durations, here and below: a sum may be later than the last date of the calendar.
    if around.now - decision.enqueued_at < timedelta(seconds=actor.task_timeout):
        return None
    if decision.state is DecisionState.WORKING and not actor.force_finish_after_task_timeout:
        overdue = decision.recovery_time is not None and decision.recovery_time <= around.now
        if not overdue:
            return None
    evidence = f"{decision.state}, first queued {decision.enqueued_at:%H:%M:%S}, over {actor.task_timeout:g} s ago"
    return Finding(Rule.TASK_TIMEOUT, decision.id, Repair.END_OVERDUE, evidence, decision)


def process_timeout(snapshot: Snapshot, around: Surroundings) -> Iterator[Finding]:
    """PROCESS_TIMEOUT: the process has exceeded its process_timeout, and that was not counted yet."""
    process = snapshot.process
    assert process is not None
    if is_late(process, around):
        kind, began = around.process_type(process.type), process.restarted_at or process.started_at
        repair = Repair.BREAK_OVERDUE if kind.break_after_process_timeout else Repair.COUNT_OVERDUE
        evidence = f"started {began:%H:%M:%S}, over {kind.process_timeout:g} s ago"
        yield Finding(Rule.PROCESS_TIMEOUT, process.id, repair, evidence)


def is_late(process: Process, around: Surroundings) -> bool:
    """Return whether a process has exceeded its process_timeout and that was not counted yet."""
    seconds, began = around.process_type(process.type).process_timeout, process.restarted_at or process.started_at
    if not seconds or began is None or process.timed_out_at is not None:
        return False
    return around.now - began >= timedelta(seconds=seconds)


def deadline_missing(decision: Decision) -> Finding | None:
    """DEADLINE_MISSING: return the finding for a decision without a usable deadline, unless it is finished."""
    if decision.state is DecisionState.FINISHED:
        return None  # at rest, as it should be
    lacks = without(decision.recovery_time)
    return Finding(Rule.DEADLINE_MISSING, decision.id, Repair.STAMP, f"{decision.state} {lacks}", decision)


def without(deadline: datetime | None) -> str:
    """Return what is wrong with a missing or unreachable deadline, in words."""
    return "without recoveryTime" if deadline is None else f"with a recoveryTime in the year {deadline.year}"


def time_impossible(snapshot: Snapshot, around: Surroundings) -> Iterator[Finding]:
    """TIME_IMPOSSIBLE: a running process, its graph or one of its tasks has a time that cannot be right."""
    process, graph = snapshot.process, snapshot.graph
    assert process is not None
    if problem := _of_process(process, around):
        yield Finding(Rule.TIME_IMPOSSIBLE, process.id, Repair.SET_TIME, f"process: {problem}")
    if graph is not None and (problem := _of_graph(graph, process, around)):
        yield Finding(Rule.TIME_IMPOSSIBLE, process.id, Repair.SET_TIME, f"graph: {problem}")
    open_tasks = graph.not_finished if graph is not None else {}
    for task, decision in snapshot.decisions.items():
        state = decision.state
        if state is DecisionState.WAITING or (state is DecisionState.FINISHED and task not in open_tasks):
            continue  # nothing waits for the times of these decisions
        if problem := _of_decision(decision, around):
            yield Finding(Rule.TIME_IMPOSSIBLE, decision.id, Repair.SET_TIME, problem, decision)


def _of_process(process: Process, surroundings: Surroundings) -> str | None:
    if problem := _never(process.started_at, "started", surroundings):
        return problem
    age = surroundings.now - process.started_at if process.started_at is not None else timedelta()
    return _too_late(process.recovery_time, age, process.idle_timeout, surroundings)


def _of_graph(graph: Graph, process: Process, surroundings: Surroundings) -> str | None:
    if problem := _never(graph.touched_at, "touched", surroundings):
        return problem
    since = [moment for moment in (graph.touched_at, process.started_at) if moment is not None]
    return _too_late(graph.recovery_time, surroundings.now - min(since), graph.idle_timeout, surroundings)


def _of_decision(decision: Decision, surroundings: Surroundings) -> str | None:
    outcome = decision.outcome
    if decision.state is DecisionState.FINISHED:
        return _never(outcome.finished_at, "finished", surroundings) if outcome is not None else None
    actor = surroundings.actor(decision.actor)
    if decision.state in (DecisionState.WORKING, DecisionState.QUEUED) and not actor.requeue_rate:
        is_working = decision.state is DecisionState.WORKING
        longest = max(
            MESSAGE_TIMEOUTS * surroundings.message_margin.total_seconds(),
            actor.worker_timeout if is_working else WAITS_FOR,
        )
        return _too_late(
            decision.recovery_time, timedelta(), longest, surroundings, CLOCKS_DIFFER if is_working else SLACK
        )
    if decision.state is DecisionState.DELAYED and not decision.is_paced:
        return _too_long(decision, surroundings)
    return None


def _too_long(decision: Decision, surroundings: Surroundings) -> str | None:
    """Return why the deadline of a delayed decision is too late, or None if it is not."""
    if decision.recovery_time is None:
        return None
    retry, refused, eta = decision.retry, decision.refused, decision.eta
    if eta is not None and refused is not None and retry is None and eta - surroundings.now > CLOCKS_DIFFER:
        return f"to be tried again in {eta:%Y-%m-%d}, though only a worker's code has refused its call"
    if eta is not None and retry is not None:
        # A refusal may come long after the retry.
        last = retry.until if refused is None else max(retry.until, surroundings.now)
        if eta - last > CLOCKS_DIFFER:
            return f"to be retried in {eta:%Y-%m-%d}, and not after {last:%Y-%m-%d}"
    starts = [moment for moment in (eta, decision.queued_at) if moment is not None]
    if not starts:
        late = decision.recovery_time - surroundings.now
        return f"delayed without an eta, and its deadline is {_days(late)} from now" if late > CLOCKS_DIFFER else None
    # The same limits as when a task is delayed. A longer delay, which another program wrote, may not fit a timedelta.
    delay = timedelta(seconds=min(max(decision.delay or 0.0, 0.0), LONGEST))
    late = decision.recovery_time - max(starts) - delay
    return (
        f"delayed until {max(starts):%Y-%m-%d}, and its deadline is {_days(late)} later"
        if late > CLOCKS_DIFFER
        else None
    )


def _never(moment: datetime | None, verb: str, surroundings: Surroundings) -> str | None:
    if moment is None:
        return f"{verb} at no time"
    ahead = moment - surroundings.now
    return f"{verb} {_days(ahead)} from now" if ahead > CLOCKS_DIFFER else None


def _too_late(
    deadline: datetime | None, age: timedelta, seconds: float, surroundings: Surroundings, slack: timedelta = SLACK
) -> str | None:
    if deadline is None or not surroundings.will_look(deadline):
        return None  # DEADLINE_MISSING
    longest = max(age.total_seconds(), seconds) * _LATER + slack.total_seconds()
    ahead = deadline - surroundings.now
    if ahead.total_seconds() <= longest:
        return None
    return f"its deadline is {_days(ahead)} from now, and nobody sets one so far off"


def _days(span: timedelta) -> str:
    return f"{span.days:,} days" if span.days > 1 else f"{span.total_seconds() / 3600:.1f} hours"
