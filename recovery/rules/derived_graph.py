"""The graph that a process's decisions come to, and rules on records that contradict each other: a graph that does not
name what was scheduled, or names what never was, and epochs that do not fit.

The decisions are what was accepted, and the graph only sums them up. If they are intact, it is made again from them,
and nothing breaks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta

from recovery.limits import LONGEST
from recovery.records import Decision, DecisionState, Graph, Process, ProcessState
from recovery.records.ids import record_id
from recovery.rules.findings import Finding, Repair, Rule, Snapshot, Surroundings


def graph_of(process: Process, decisions: Mapping[str, Decision], now: datetime, first_look: float) -> Graph:
    """The graph that these decisions, by task, come to. Pure. What waited for a task that promised its children's
    values waits for those; what ended with an error stays open, as it does in any graph."""
    applied = {task: d for task, d in decisions.items() if d.state is DecisionState.FINISHED and not d.failed}
    scheduled = {child.id: child for decision in applied.values() for child in decision.children}
    known = [process.start_task, *scheduled]
    is_open = [task for task in known if task not in applied]
    links = {
        task: dict.fromkeys(waits, True)
        for task in is_open
        if task in scheduled and (waits := still_to_come(scheduled[task].deps, applied))
    }
    return Graph(
        id=process.id,
        epoch=process.epoch,
        not_finished=dict.fromkeys(is_open, now),
        links=links,
        finished=tuple(task for task in known if task in applied),
        failed={task: True for task in is_open if task in decisions and decisions[task].failed},
        restarted={task: d.restarts for task, d in decisions.items() if d.restarts},
        idle_timeout=process.idle_timeout,
        touched_at=now,
        recovery_time=now + timedelta(seconds=min(first_look, LONGEST)),
    )


def still_to_come(deps: Iterable[str], applied: Mapping[str, Decision]) -> list[str]:
    """What of these dependencies is still to come, through promises within promises. `applied` are the decisions that
    are finished, by task."""
    found: dict[str, None] = {}
    seen: set[str] = set()
    left = list(deps)
    while left:
        if (task := left.pop()) in seen:
            continue
        seen.add(task)
        if task not in applied:
            found[task] = None
        elif (outcome := applied[task].outcome) is not None:
            left += outcome.waits
    return list(found)


def says(graph: Graph) -> tuple[object, ...]:
    """What of a graph follows from the decisions."""
    links = {task: {*waits} for task, waits in graph.links.items() if waits}
    return {*graph.not_finished}, links, {*graph.finished}, {*graph.failed}, graph.restarted


def graph_contradicted(snapshot: Snapshot, around: Surroundings) -> Iterator[Finding]:
    """GRAPH_CONTRADICTED: the graph lacks a task that was scheduled, or has one that nobody scheduled.

    Of a process that has finished none is queued that is not done: that is FINISHED_TOO_EARLY.
    """
    process, graph = snapshot.process, snapshot.graph
    if process is None or graph is None or not is_untouched(graph, around) or not is_intact(snapshot):
        return
    scheduled = scheduled_tasks(snapshot)
    named = graph.not_finished.keys() | set(graph.finished)
    lacking = sorted(task for task in scheduled if task in snapshot.decisions and task not in named)
    foreign = sorted(named - scheduled - snapshot.decisions.keys() - snapshot.tasks)
    told = []
    if lacking:
        told.append(f"it lacks {len(lacking)} of {len(scheduled)} tasks that were scheduled, first {lacking[0]}")
    if foreign:
        told.append(f"it names {len(foreign)} that nobody scheduled, first {foreign[0]}")
    if not told:
        return
    if process.state is ProcessState.FINISHED and (undone := sorted(t for t in scheduled if not _is_done(snapshot, t))):
        evidence = f"finished, and {len(undone)} tasks are not done that its graph lacks, first {undone[0]}"
        yield Finding(Rule.FINISHED_TOO_EARLY, graph.id, Repair.REPORT, evidence)
    else:
        yield Finding(Rule.GRAPH_CONTRADICTED, graph.id, Repair.REMAKE_GRAPH, "; ".join(told))


def _is_done(snapshot: Snapshot, task: str) -> bool:
    decision = snapshot.decisions.get(task)
    return decision is not None and decision.state is DecisionState.FINISHED and not decision.failed


def is_intact(snapshot: Snapshot) -> bool:
    """Whether the decisions tell all that was scheduled: each that the graph has as finished is there, and finished."""
    graph, decisions = snapshot.graph, snapshot.decisions
    finished = graph.finished if graph is not None else ()
    return (
        not snapshot.damaged
        and snapshot.process is not None
        and snapshot.process.start_task in decisions
        and all(task in decisions and decisions[task].state is DecisionState.FINISHED for task in finished)
    )


def scheduled_tasks(snapshot: Snapshot) -> set[str]:
    """The tasks of a process by its decisions: its start, and what was scheduled by what is applied.

    Of a decision that is finished and perhaps not applied yet the children may not be there: they do not count, unless
    the graph has it, or lacks it altogether.
    """
    process, graph = snapshot.process, snapshot.graph
    assert process is not None and graph is not None
    found: set[str] = {process.start_task}
    for task, decision in snapshot.decisions.items():
        if decision.state is DecisionState.FINISHED and task not in graph.not_finished and not decision.failed:
            found.update(child.id for child in decision.children)
    return found


def epoch_wrong(snapshot: Snapshot, _around: Surroundings) -> Iterator[Finding]:
    """EPOCH_WRONG: a graph or a decision is of another epoch than its process, so nothing of it is ever accepted."""
    process, graph = snapshot.process, snapshot.graph
    assert process is not None
    odd: list[tuple[str, Graph | Decision]] = []
    if graph is not None and graph.epoch != process.epoch:
        odd.append(("graph", graph))
    odd += [("task", d) for d in snapshot.decisions.values() if d.epoch != process.epoch]
    if odd:
        what, first = odd[0]
        where = first.id if what == "graph" else record_id(process.id, first.id.partition("/")[2])
        evidence = f"{len(odd)} records of another epoch than {process.epoch}, first the {what} {where}: {first.epoch}"
        yield Finding(Rule.EPOCH_WRONG, process.id, Repair.SET_EPOCH, evidence)


def is_untouched(graph: Graph, around: Surroundings) -> bool:
    """Whether nobody is at work on the graph: what was to be written with its last change is written, or never."""
    return graph.touched_at is not None and graph.touched_at < around.read_at - around.margin
