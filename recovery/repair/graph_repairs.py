"""Repairs of graphs: rebuild graphs, reopen unfinished tasks, and replace dead links.

Each graph is read again and changed by one update that requires the version that was read. Graphs of many processes are
read at once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from recovery.engine import Resources, enqueue, rebuild_graphs
from recovery.engine.rejections import note_graph_changed
from recovery.records import DecisionState, Graph
from recovery.records.ids import record_id, split_record_id
from recovery.repair.changed import Action, Changed, of_batch, on_batch
from recovery.rules import Finding, Repair, Rule, Surroundings, still_to_come

Tasks = dict[str, list[str]]
"""Names of tasks with findings, by process id."""


class GraphRepairs:
    """Repairs of processes' graphs."""

    def __init__(self, resources: Resources) -> None:
        self._resources, self._store = resources, resources.store
        self.actions: dict[Repair, Action] = {
            Repair.REBUILD_GRAPH: on_batch(lambda ids: rebuild_graphs(resources, ids)),
            Repair.REOPEN: self._by_portion(self._reopen),
            Repair.DROP_LINKS: self._by_portion(self._relink),
        }

    def _reopen(self, tasks_by_process: Tasks) -> Changed:
        graphs = self._store.graphs.get_many(tasks_by_process)
        decision_ids = _keys(tasks_by_process)
        # Read after the graphs: a task that is unfinished now was unfinished when its graph was read.
        states = self._store.decisions.states(decision_ids)
        dependents = self._store.tasks.dependents(decision_ids)
        changed, waiting = Changed(), []
        for graph in graphs.values():
            undecided = {
                task: dependents.get(decision_id, ())
                for task in set(graph.finished).intersection(tasks_by_process[graph.id])
                if states.get(decision_id := record_id(graph.id, task), DecisionState.FINISHED)
                is not DecisionState.FINISHED
            }
            if undecided and self._as_judged(graph, self._store.graphs.reopen(graph, undecided)):
                changed[graph.id] += len(undecided)
                for_others = {dependent for dependent_tasks in undecided.values() for dependent in dependent_tasks}
                waiting += [record_id(graph.id, task) for task in undecided.keys() - for_others]
        enqueue(self._resources, waiting)
        return changed

    def _relink(self, tasks_by_process: Tasks) -> Changed:
        """Replace links to finished tasks.

        A link to a task that promised its children's values becomes links to those children that are open.
        """
        graphs = self._store.graphs.get_many(tasks_by_process)
        changed, ready = Changed(), []
        # Read after the graphs, so tasks that a graph names as finished have finished decisions.
        for process_id, decisions in self._store.decisions.of_processes(list(graphs)):
            graph = graphs[process_id]
            applied = {task: decisions[task] for task in graph.finished if task in decisions}
            parents = {child.id: task for task, decision in applied.items() for child in decision.children}
            waits: dict[str, list[str]] = {}
            for task in graph.not_finished.keys() & set(tasks_by_process[graph.id]):
                dead_links = [dep for dep in graph.links.get(task, ()) if dep not in graph.not_finished]
                # A task never waits for its ancestors, because it is one of their children and would wait for itself.
                replacements = still_to_come(set(dead_links).difference(_ancestors(task, parents)), applied)
                if dead_links:
                    waits[task] = [replacement for replacement in replacements if replacement in graph.not_finished]
            if waits and self._as_judged(graph, self._store.graphs.relink(graph, waits)):
                changed[process_id] += len(waits)
                ready += [
                    record_id(graph.id, task)
                    for task, replacements in waits.items()
                    if _is_free(graph, task, replacements)
                ]
        enqueue(self._resources, ready)
        return changed

    def _as_judged(self, graph: Graph, is_written: bool) -> bool:
        if not is_written:
            note_graph_changed(self._resources, graph)
        return is_written

    def _by_portion(self, step: Callable[[Tasks], Changed]) -> Action:
        """Return an action that runs a step for the tasks with findings.

        The step gets portions of processes that fit into memory.
        """

        def act(_rule: Rule, findings: Sequence[Finding], _surroundings: Surroundings) -> Changed:
            tasks_by_process: Tasks = defaultdict(list)
            for finding in findings:
                process_id, task = split_record_id(finding.record)
                tasks_by_process[process_id].append(task)
            changed = Changed()
            for portion in self._store.portions(tasks_by_process):
                changed += of_batch(
                    portion,
                    lambda process_ids: step({process_id: tasks_by_process[process_id] for process_id in process_ids}),
                )
            return changed

        return act


def _is_free(graph: Graph, task: str, others: Sequence[str]) -> bool:
    """Return whether a task waits for nothing after these tasks replaced its dead links."""
    return not others and not any(dep in graph.not_finished for dep in graph.links.get(task, ()))


def _ancestors(task: str, parents: Mapping[str, str]) -> set[str]:
    """Return the task that scheduled a task, the one that scheduled that, and so on."""
    ancestors: set[str] = set()
    while (parent := parents.get(task)) is not None and parent not in ancestors:
        ancestors.add(parent)
        task = parent
    return ancestors


def _keys(tasks_by_process: Tasks) -> list[str]:
    return [record_id(process_id, task) for process_id, tasks in tasks_by_process.items() for task in tasks]
