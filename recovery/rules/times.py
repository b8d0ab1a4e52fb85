"""Rules on time.

Time-outs: a task's time as a whole, from when it was first queued, or a process's, from its start, is over. Nothing
went wrong; it took too long.

Times that can't be: absent where one is always written, years ahead, or a deadline long after what it is there for. A
process that trusted one would wait as long. After a clock was set back, times of a few hours ahead are set to what they
should be as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from recovery.limits import LONGEST, WAITS_FOR
from recovery.records import Decision, DecisionState, Graph, Process
from recovery.rules.findings import Finding, Repair, Rule, Snapshot, Surroundings

SLACK = timedelta(days=1)
"""By how much the deadline of a record may be late that is looked at again and again, because of the pace of requeues
after an outage."""
CLOCKS_DIFFER = timedelta(minutes=10)
"""By how much a time may be ahead because the clocks of MongoDB's members differ."""
MESSAGE_TIMEOUTS = 5 * 30
"""Of a message's margin: what is queued is looked at after 30 message timeouts at the latest, or once a day."""
_LATER = 1.2
"""What is healthy is looked at again when it is twice as old, a tenth more or less."""


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


def deadline_missing(decision: Decision) -> Finding | None:
    """DEADLINE_MISSING: live, and nobody would ever look at it again."""
    if decision.state is DecisionState.FINISHED:
        return None  # at rest, as it should be
    lacks = without(decision.recovery_time)
    return Finding(Rule.DEADLINE_MISSING, decision.id, Repair.STAMP, f"{decision.state} {lacks}", decision)


def without(deadline: datetime | None) -> str:
    """What is wrong with a deadline, in words."""
    return "without recoveryTime" if deadline is None else f"with a recoveryTime in the year {deadline.year}"


def time_impossible(snapshot: Snapshot, around: Surroundings) -> Iterator[Finding]:
    """TIME_IMPOSSIBLE: a time of a process that runs, its graph or a task, that nobody can have written rightly."""
    process, graph = snapshot.process, snapshot.graph
    assert process is not None
    if told := _of_process(process, around):
        yield Finding(Rule.TIME_IMPOSSIBLE, process.id, Repair.SET_TIME, f"process: {told}")
    if graph is not None and (told := _of_graph(graph, process, around)):
        yield Finding(Rule.TIME_IMPOSSIBLE, process.id, Repair.SET_TIME, f"graph: {told}")
    is_open = graph.not_finished if graph is not None else {}
    for task, decision in snapshot.decisions.items():
        state = decision.state
        if state is DecisionState.WAITING or (state is DecisionState.FINISHED and task not in is_open):
            continue  # nobody waits for their times
        if told := _of_decision(decision, around):
            yield Finding(Rule.TIME_IMPOSSIBLE, decision.id, Repair.SET_TIME, told, decision)


def _of_process(process: Process, around: Surroundings) -> str | None:
    if told := _never(process.started_at, "started", around):
        return told
    age = around.now - process.started_at if process.started_at is not None else timedelta()
    return _too_late(process.recovery_time, age, process.idle_timeout, around)


def _of_graph(graph: Graph, process: Process, around: Surroundings) -> str | None:
    if told := _never(graph.touched_at, "touched", around):
        return told
    since = [moment for moment in (graph.touched_at, process.started_at) if moment is not None]
    return _too_late(graph.recovery_time, around.now - min(since), graph.idle_timeout, around)


def _of_decision(decision: Decision, around: Surroundings) -> str | None:
    outcome = decision.outcome
    if decision.state is DecisionState.FINISHED:
        return _never(outcome.finished_at, "finished", around) if outcome is not None else None
    actor = around.actor(decision.actor)
    if decision.state in (DecisionState.WORKING, DecisionState.QUEUED) and not actor.requeue_rate:
        works = decision.state is DecisionState.WORKING
        longest = max(
            MESSAGE_TIMEOUTS * around.message_margin.total_seconds(), actor.worker_timeout if works else WAITS_FOR
        )
        return _too_late(decision.recovery_time, timedelta(), longest, around, CLOCKS_DIFFER if works else SLACK)
    if decision.state is DecisionState.DELAYED and not decision.is_paced:
        return _too_long(decision, around)
    return None


def _too_long(decision: Decision, around: Surroundings) -> str | None:
    """Return why a delayed decision is looked at too late, if it is."""
    if decision.recovery_time is None:
        return None
    retry, refused, eta = decision.retry, decision.refused, decision.eta
    if eta is not None and refused is not None and retry is None and eta - around.now > CLOCKS_DIFFER:
        return f"to be tried again in {eta:%Y-%m-%d}, though only a worker's code has refused its call"
    if eta is not None and retry is not None:
        # A refusal may come long after the retry.
        last = retry.until if refused is None else max(retry.until, around.now)
        if eta - last > CLOCKS_DIFFER:
            return f"to be retried in {eta:%Y-%m-%d}, and not after {last:%Y-%m-%d}"
    starts = [moment for moment in (eta, decision.queued_at) if moment is not None]
    if not starts:
        late = decision.recovery_time - around.now
        return f"delayed without an eta, and its deadline is {_days(late)} from now" if late > CLOCKS_DIFFER else None
    # As whoever delays a task takes it: of a longer one, which another program wrote, there is no timedelta.
    delay = timedelta(seconds=min(max(decision.delay or 0.0, 0.0), LONGEST))
    late = decision.recovery_time - max(starts) - delay
    return (
        f"delayed until {max(starts):%Y-%m-%d}, and its deadline is {_days(late)} later"
        if late > CLOCKS_DIFFER
        else None
    )


def _never(moment: datetime | None, what: str, around: Surroundings) -> str | None:
    if moment is None:
        return f"{what} at no time"
    ahead = moment - around.now
    return f"{what} {_days(ahead)} from now" if ahead > CLOCKS_DIFFER else None


def _too_late(
    deadline: datetime | None, age: timedelta, seconds: float, around: Surroundings, slack: timedelta = SLACK
) -> str | None:
    if deadline is None or not around.will_look(deadline):
        return None  # DEADLINE_MISSING
    longest = max(age.total_seconds(), seconds) * _LATER + slack.total_seconds()
    ahead = deadline - around.now
    if ahead.total_seconds() <= longest:
        return None
    return f"its deadline is {_days(ahead)} from now, and nobody sets one so far off"


def _days(span: timedelta) -> str:
    return f"{span.days:,} days" if span.days > 1 else f"{span.total_seconds() / 3600:.1f} hours"
