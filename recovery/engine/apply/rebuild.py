"""Rebuilds a missing or damaged graph from the decisions.

The decisions are the accepted results; a graph only sums them up. The graph is inserted, so the first worker that
inserts it wins. A decision that finishes meanwhile either finds no graph and rebuilds it too (`apply`), or is applied
to the new graph. If both miss it, the task is open in the graph and finished in its decision. Because the graph's first
deadline is soon, the rules then find the difference.

A graph that another program damaged may have no open tasks although tasks are missing from it. Such tasks would never
run, or their results would never be used. So if there are more decisions than the graph has finished tasks, the rules
judge the whole process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from recovery.engine.apply.complete import Complete, finish_processes
from recovery.engine.end.fencing import withdraw_graphs
from recovery.engine.isolation import tell
from recovery.engine.rejections import note_graph_changed
from recovery.engine.resources import Resources
from recovery.engine.steps import enqueue
from recovery.errors import DamagedRecord
from recovery.records import UNENDED_PROCESSES, Graph, Process, ProcessState
from recovery.records.ids import record_id
from recovery.rules import graph_of, is_intact, says


def rebuild_graph(resources: Resources, process_id: str) -> bool:
    """Rebuild the missing graph of a running or broken process, and continue from it. Return False if a graph exists or
    there are no decisions."""
    return bool(rebuild_graphs(resources, [process_id]))


def rebuild_graphs(resources: Resources, process_ids: Sequence[str]) -> list[str]:
    """Rebuild the missing graphs of processes, and continue from them. Return the ids of these processes."""
    return [rebuilt for page in resources.store.portions(process_ids) for rebuilt in _rebuild(resources, page)]


def _rebuild(resources: Resources, process_ids: Sequence[str]) -> list[str]:
    store = resources.store
    processes = {
        key: process
        for key, process in store.processes.briefs(process_ids).items()
        if process.state in UNENDED_PROCESSES
    }
    if not processes:
        return []
    if not store.layout.has_graphs():
        store.layout.create()  # dropping the collection also dropped its indexes and validator
    now, first_deadline = store.now(), resources.settings.apply_timeout
    decisions_by_process = store.decisions.of_processes(list(processes))
    graphs = [
        graph_of(processes[key], decisions, now, first_look=first_deadline) for key, decisions in decisions_by_process
    ]
    inserted = store.graphs.insert(graphs)
    gone = withdraw_graphs(resources, [graph for graph in graphs if graph.id in inserted]) if inserted else set()
    inserted, graphs = [key for key in inserted if key not in gone], [graph for graph in graphs if graph.id not in gone]
    if not inserted:
        return []
    # If another worker continues from the same graphs, the second of both finds their tasks enqueued.
    _go_on(resources, graphs, processes)
    return inserted


def remake_graph(resources: Resources, process_id: str) -> bool | None:
    """Replace a graph that contradicts the decisions by one made from them, and continue from it.

    Returns:
        True if the graph was replaced; None if it does not contradict the decisions; False if it can't be replaced. It
        can't if it has changed since it was read, if the process was aborted, or if the process has finished but the
        new graph would have open tasks: the result has already been reported.

    Raises:
        DamagedRecord: A decision can't be read.
    """
    store = resources.store
    current = store.graphs.get(process_id)
    process = store.processes.briefs([process_id]).get(process_id)
    if current is None or process is None or process.state is ProcessState.ABORTED or current.epoch != process.epoch:
        return False
    # Read after the graph, so that they include everything that the graph has as finished.
    decisions = dict(store.decisions.of_processes([process_id])).get(process_id, {})
    graph = graph_of(process, decisions, store.now(), first_look=resources.settings.apply_timeout)
    if says(graph) == says(current):
        return None
    if process.state not in UNENDED_PROCESSES and graph.not_finished:
        return False
    if not store.graphs.remake(current, graph):
        note_graph_changed(resources, current)
        return False
    _go_on(resources, [graph], {process_id: process})
    return True


def _go_on(resources: Resources, graphs: Sequence[Graph], processes: Mapping[str, Process]) -> None:
    """Enqueue the ready tasks of graphs that were just made, and end the processes without open tasks."""
    ready = [record_id(graph.id, task) for graph in graphs for task in graph.not_finished if graph.is_ready(task)]
    enqueue(resources, ready)
    complete = [graph.id for graph in graphs if not graph.not_finished]
    ended = finish_processes(resources, {key: Complete(processes[key].epoch) for key in complete})
    resources.store.clear_graph_deadlines(list(ended))


def finish_whole(resources: Resources, epochs: Mapping[str, int]) -> dict[str, bool]:
    """Call `finish_processes` for processes without open tasks whose graphs have all tasks as finished.

    Other graphs are rebuilt, or their deadlines are advanced.

    Args:
        resources: Connections.
        epochs: The epoch of each process, by process id.
    """
    store, counts = resources.store, resources.store.decisions.counts(list(epochs))
    whole = [key for key in epochs if counts[key] <= store.graphs.finished(key) or is_whole(resources, key)]
    return finish_processes(resources, {key: Complete(epochs[key]) for key in whole})


def is_whole(resources: Resources, process_id: str) -> bool:
    """Return whether a graph with fewer finished tasks than there are decisions nevertheless lacks nothing.

    It lacks nothing if no task scheduled the additional decisions. Otherwise the graph is replaced or, if it can't be
    replaced now, its deadline is advanced.
    """
    (snapshot,) = resources.store.snapshots([process_id])
    if snapshot.process is None or snapshot.process.state is not ProcessState.RUNNING:
        return True  # `finish_processes` leaves such a process alone
    was_remade = made_whole(resources, process_id) if is_intact(snapshot) else False
    if was_remade is False:
        # After a pause in which nobody works on the graph: only then does a missing record prove a loss.
        resources.store.graphs.advance_deadline(process_id, 1.2 * resources.settings.apply_timeout)
    return was_remade is None


def made_whole(resources: Resources, process_id: str) -> bool | None:
    """Call `remake_graph`. Return False also if a record of the process can't be read."""
    try:
        return remake_graph(resources, process_id)
    except DamagedRecord as damage:
        tell(process_id, damage)
        return False
