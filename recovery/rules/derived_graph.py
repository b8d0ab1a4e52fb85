"""The graph that a process's decisions come to: for who makes it anew, and who tells whether it has to be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from recovery.limits import LONGEST
from recovery.records import Decision, DecisionState, Graph, Process


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
