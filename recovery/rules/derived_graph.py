"""Derives the graph of a process from its decisions, and finds records that contradict each other: a graph that lacks
scheduled tasks or names tasks that were never scheduled, and different epochs.

Decisions record what was accepted, and the graph only summarizes them. Therefore, if the decisions are intact, the
graph is made again from them and the process need not break.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta

from recovery.limits import LONGEST
from recovery.records import Decision, DecisionState, Graph, Process, ProcessState
from recovery.records.ids import record_id
from recovery.rules.findings import Finding, Repair, Rule, Snapshot, Surroundings


def graph_of(process: Process, decisions: Mapping[str, Decision], now: datetime, first_look: float) -> Graph:
    """Return the graph that follows from the decisions. Pure.

    A task that waited for a finished task with promises in its value waits for the promised tasks. Failed tasks stay
    open, as in any graph.

    Args:
        process: The process.
        decisions: {task: decision} of all of its tasks.
        now: The time of the last change in the new graph.
        first_look: Seconds from `now` until the graph's deadline.
    """
    applied = {task: d for task, d in decisions.items() if d.state is DecisionState.FINISHED and not d.failed}
    scheduled = {child.id: child for decision in applied.values() for child in decision.children}
    known = [process.start_task, *scheduled]
    open_tasks = [task for task in known if task not in applied]
    links = {
        task: dict.fromkeys(waits, True)
        for task in open_tasks
        if task in scheduled and (waits := still_to_come(scheduled[task].deps, applied))
    }
    return Graph(
        id=process.id,
        epoch=process.epoch,
        not_finished=dict.fromkeys(open_tasks, now),
        links=links,
        finished=tuple(task for task in known if task in applied),
        failed={task: True for task in open_tasks if task in decisions and decisions[task].failed},
        restarted={task: d.restarts for task, d in decisions.items() if d.restarts},
        idle_timeout=process.idle_timeout,
        touched_at=now,
        recovery_time=now + timedelta(seconds=min(first_look, LONGEST)),
    )


def still_to_come(deps: Iterable[str], applied: Mapping[str, Decision]) -> list[str]:
    """Return the open tasks that these dependencies wait for, also through promises within promises. `applied` has the
    decisions of the finished tasks, by task."""
    open_tasks: dict[str, None] = {}
    seen: set[str] = set()
    pending = list(deps)
    while pending:
        if (task := pending.pop()) in seen:
            continue
        seen.add(task)
        if task not in applied:
            open_tasks[task] = None
        elif (outcome := applied[task].outcome) is not None:
            pending += outcome.waits
    return list(open_tasks)


def says(graph: Graph) -> tuple[object, ...]:
    """Return the parts of a graph that follow from the decisions, to compare two graphs."""
    links = {task: {*waits} for task, waits in graph.links.items() if waits}
    return {*graph.not_finished}, links, {*graph.finished}, {*graph.failed}, graph.restarted


def graph_contradicted(snapshot: Snapshot, around: Surroundings) -> Iterator[Finding]:
    """GRAPH_CONTRADICTED: the graph lacks a task that was scheduled, or has a task that no decision scheduled.

    For a finished process with unfinished tasks, the finding is FINISHED_TOO_EARLY instead, so that none is queued.
    """
    process, graph = snapshot.process, snapshot.graph
    if process is None or graph is None or not is_untouched(graph, around) or not is_intact(snapshot):
        return
    scheduled = scheduled_tasks(snapshot)
    named = graph.not_finished.keys() | set(graph.finished)
    lacking = sorted(task for task in scheduled if task in snapshot.decisions and task not in named)
    foreign = sorted(named - scheduled - snapshot.decisions.keys() - snapshot.tasks)
    contradictions = []
    if lacking:
        contradictions.append(
            f"it lacks {len(lacking)} of {len(scheduled)} tasks that were scheduled, first {lacking[0]}"
        )
    if foreign:
        contradictions.append(f"it names {len(foreign)} that nobody scheduled, first {foreign[0]}")
    if not contradictions:
        return
    if process.state is ProcessState.FINISHED and (undone := sorted(t for t in scheduled if not _is_done(snapshot, t))):
        evidence = f"finished, and its graph lacks {len(undone)} tasks that are not done, first {undone[0]}"
        yield Finding(Rule.FINISHED_TOO_EARLY, graph.id, Repair.REPORT, evidence)
    else:
        yield Finding(Rule.GRAPH_CONTRADICTED, graph.id, Repair.REMAKE_GRAPH, "; ".join(contradictions))


def _is_done(snapshot: Snapshot, task: str) -> bool:
    decision = snapshot.decisions.get(task)
    return decision is not None and decision.state is DecisionState.FINISHED and not decision.failed


def is_intact(snapshot: Snapshot) -> bool:
    """Return whether the decisions show all scheduled tasks: each task that the graph has as finished has a finished
    decision, and no record is damaged."""
    graph, decisions = snapshot.graph, snapshot.decisions
    finished = graph.finished if graph is not None else ()
    return (
        not snapshot.damaged
        and snapshot.process is not None
        and snapshot.process.start_task in decisions
        and all(task in decisions and decisions[task].state is DecisionState.FINISHED for task in finished)
    )


def scheduled_tasks(snapshot: Snapshot) -> set[str]:
    """Return the tasks of a process according to its decisions: its start task, and the children of applied decisions.

    A finished decision whose task is open in the graph may not be applied yet. Its children do not count, because they
    may not exist yet.
    """
    process, graph = snapshot.process, snapshot.graph
    assert process is not None and graph is not None
    scheduled: set[str] = {process.start_task}
    for task, decision in snapshot.decisions.items():
        if decision.state is DecisionState.FINISHED and task not in graph.not_finished and not decision.failed:
            scheduled.update(child.id for child in decision.children)
    return scheduled


def epoch_wrong(snapshot: Snapshot, _around: Surroundings) -> Iterator[Finding]:
    """EPOCH_WRONG: a graph or a decision has another epoch than its process, so its results are never accepted."""
    process, graph = snapshot.process, snapshot.graph
    assert process is not None
    affected: list[tuple[str, Graph | Decision]] = []
    if graph is not None and graph.epoch != process.epoch:
        affected.append(("graph", graph))
    affected += [("task", d) for d in snapshot.decisions.values() if d.epoch != process.epoch]
    if affected:
        kind, first = affected[0]
        record = first.id if kind == "graph" else record_id(process.id, first.id.partition("/")[2])
        evidence = (
            f"{len(affected)} records of another epoch than {process.epoch}, first the {kind} {record}: {first.epoch}"
        )
        yield Finding(Rule.EPOCH_WRONG, process.id, Repair.SET_EPOCH, evidence)


def is_untouched(graph: Graph, around: Surroundings) -> bool:
    """Return whether the graph's last change is so long ago that all writes that belong to it are done or were cut
    off."""
    return graph.touched_at is not None and graph.touched_at < around.read_at - around.margin
