"""A graph that is gone, or was spoilt, made again from the decisions: they are what was accepted, the graph only sums
them up.

The graph is inserted, so whoever is first makes it. A decision that finishes meanwhile finds no graph to be applied to
and comes here itself (`apply`), or finds this one; what both miss is open in the graph and finished in its decision,
and the graph's first deadline is soon.

One that somebody else spoilt may be complete, and lack tasks. What they were to do would never be done, or never be
known. So where the decisions are more than it has as finished, the process is looked at with the rules' own eyes.
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
    """Make the graph of a process that has none and goes on, and go on from it; False if there is one, or no decision
    to make it from."""
    return bool(rebuild_graphs(resources, [process_id]))


def rebuild_graphs(resources: Resources, process_ids: Sequence[str]) -> list[str]:
    """The same for many processes; those whose graphs were made."""
    return [made for page in resources.store.portions(process_ids) for made in _rebuild(resources, page)]


def _rebuild(resources: Resources, process_ids: Sequence[str]) -> list[str]:
    store = resources.store
    processes = {k: p for k, p in store.processes.briefs(process_ids).items() if p.state in UNENDED_PROCESSES}
    if not processes:
        return []
    if not store.layout.has_graphs():
        store.layout.create()  # whoever dropped the collection dropped its indexes, and its validator
    now, soon = store.now(), resources.settings.apply_timeout
    found = store.decisions.of_processes(list(processes))
    graphs = [graph_of(processes[key], decisions, now, first_look=soon) for key, decisions in found]
    made = store.graphs.insert(graphs)
    away = withdraw_graphs(resources, [graph for graph in graphs if graph.id in made]) if made else set()
    made, graphs = [key for key in made if key not in away], [graph for graph in graphs if graph.id not in away]
    if not made:
        return []
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
    if says(graph) == says(seen):
        return None
    if process.state not in UNENDED_PROCESSES and graph.not_finished:
        return False
    if not store.graphs.remake(seen, graph):
        note_graph_changed(resources, seen)
        return False
    _go_on(resources, [graph], {process_id: process})
    return True


def _go_on(resources: Resources, graphs: Sequence[Graph], processes: Mapping[str, Process]) -> None:
    """Enqueue what is ready in graphs that were just made, and end what has nothing open."""
    ready = [record_id(graph.id, task) for graph in graphs for task in graph.not_finished if graph.is_ready(task)]
    enqueue(resources, ready)
    complete = [graph.id for graph in graphs if not graph.not_finished]
    over = finish_processes(resources, {key: Complete(processes[key].epoch) for key in complete})
    resources.store.clear_graph_deadlines(list(over))


def finish_whole(resources: Resources, epochs: Mapping[str, int]) -> dict[str, bool]:
    """`finish_processes` of {process: its epoch} whose graphs have nothing open, if they have all tasks as finished.
    One that has not is made anew and gone on from, or looked at soon."""
    store, counts = resources.store, resources.store.decisions.counts(list(epochs))
    whole = [k for k in epochs if counts[k] <= store.graphs.finished(k) or is_whole(resources, k)]
    return finish_processes(resources, {key: Complete(epochs[key]) for key in whole})


def is_whole(resources: Resources, process_id: str) -> bool:
    """Whether a graph that seems to lack tasks lacks none: nobody has scheduled what is more. Else it is made anew."""
    (snapshot,) = resources.store.snapshots([process_id])
    if snapshot.process is None or snapshot.process.state is not ProcessState.RUNNING:
        return True  # it is not finished any more
    made = made_whole(resources, process_id) if is_intact(snapshot) else False
    if made is False:
        # When nobody has been at work on the graph for a while: only then absence is a finding.
        resources.store.graphs.advance_deadline(process_id, 1.2 * resources.settings.apply_timeout)
    return made is None


def made_whole(resources: Resources, process_id: str) -> bool | None:
    """`remake_graph`; False as well where something of the process can't be read."""
    try:
        return remake_graph(resources, process_id)
    except DamagedRecord as damage:
        tell(process_id, damage)
        return False
