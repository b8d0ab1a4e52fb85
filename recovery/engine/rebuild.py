"""A graph that is gone, made again from the decisions: they are what was accepted, the graph only sums them up.

The graph is inserted, so whoever is first makes it. A decision that finishes meanwhile finds no graph to be applied to
and comes here itself (`apply`), or finds this one; what both miss is open in the graph and finished in its decision,
and the graph's first deadline is soon.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from recovery.engine.complete import finish_process
from recovery.engine.dispatch import enqueue
from recovery.engine.resources import Resources
from recovery.limits import LONGEST
from recovery.records import Decision, DecisionState, Graph, Process, ProcessState
from recovery.records.ids import record_id
from recovery.store import schema

_GOES_ON = (ProcessState.RUNNING, ProcessState.BROKEN)
"""Of a broken process the siblings of what failed go on, and what failed may be restarted."""


def rebuild_graph(resources: Resources, process_id: str) -> bool:
    """Make the graph of a process that has none and goes on, and go on from it; False if there is one, or no decision
    to make it from."""
    return rebuild_graphs(resources, [process_id]) == 1


def rebuild_graphs(resources: Resources, process_ids: Sequence[str]) -> int:
    """The same for many processes; how many graphs were made."""
    return sum(_rebuild(resources, page) for page in resources.store.portions(process_ids))


def _rebuild(resources: Resources, process_ids: Sequence[str]) -> int:
    store = resources.store
    processes = {k: p for k, p in store.processes.briefs(process_ids).items() if p.state in _GOES_ON}
    if not processes:
        return 0
    if not schema.has_graphs(store.database):
        schema.create(store.database)  # whoever dropped the collection dropped its indexes, and its validator
    now, soon = store.now(), resources.settings.apply_timeout
    found = store.decisions.of_processes(list(processes))
    graphs = [graph_of(processes[key], decisions, now, first_look=soon) for key, decisions in found]
    made = store.graphs.insert(graphs)
    if not made:
        return 0
    # Of graphs that somebody else made as well: whoever comes second finds their tasks enqueued.
    _go_on(resources, graphs, processes)
    return made


def remake_graph(resources: Resources, process_id: str) -> bool | None:
    """Make a graph that contradicts the decisions anew from them, and go on from it; None if it does not contradict
    them, and False if it can't be made: it has changed since, the process was aborted, or it has finished, and
    something would be open: its result was told. Raises DamagedRecord."""
    store = resources.store
    seen = store.graphs.get(process_id)
    process = store.processes.briefs([process_id]).get(process_id)
    if seen is None or process is None or process.state is ProcessState.ABORTED or seen.epoch != process.epoch:
        return False
    # After the graph: what that has as finished is among them.
    decisions = dict(store.decisions.of_processes([process_id])).get(process_id, {})
    graph = graph_of(process, decisions, store.now(), first_look=resources.settings.apply_timeout)
    if _says(graph) == _says(seen):
        return None
    if process.state not in _GOES_ON and graph.not_finished:
        return False
    if not store.graphs.remake(seen, graph):
        return False
    _go_on(resources, [graph], {process_id: process})
    return True


def _says(graph: Graph) -> tuple[object, ...]:
    """What of a graph follows from the decisions."""
    links = {task: {*waits} for task, waits in graph.links.items() if waits}
    return {*graph.not_finished}, links, {*graph.finished}, {*graph.failed}, graph.restarted


def _go_on(resources: Resources, graphs: Sequence[Graph], processes: Mapping[str, Process]) -> None:
    """Enqueue what is ready in graphs that were just made, and end what has nothing open."""
    ready = [record_id(graph.id, task) for graph in graphs for task in graph.not_finished if graph.is_ready(task)]
    enqueue(resources, ready)
    complete = [graph.id for graph in graphs if not graph.not_finished]
    over = [key for key in complete if finish_process(resources, key, processes[key].epoch) is not None]
    resources.store.rest_graphs(over)


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
