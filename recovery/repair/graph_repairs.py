"""Repairs of graphs: made again, tasks put back to not finished, links that lead to nothing.

Each graph is read anew with all that a finding names of it, and changed in one update that holds only for the version
that was read. Reads are made for many processes at once.
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
"""{process: its tasks that were found}."""


class GraphRepairs:
    """What can be done about a process's graph."""

    def __init__(self, resources: Resources) -> None:
        self._resources, self._store = resources, resources.store
        self.actions: dict[Repair, Action] = {
            Repair.REBUILD_GRAPH: on_batch(lambda ids: rebuild_graphs(resources, ids)),
            Repair.REOPEN: self._by_portion(self._reopen),
            Repair.DROP_LINKS: self._by_portion(self._relink),
        }

    def _reopen(self, found: Tasks) -> Changed:
        graphs = self._store.graphs.get_many(found)
        keys = _keys(found)
        states = self._store.decisions.states(keys)  # after the graphs: these can't have been finished by then
        dependents = self._store.tasks.dependents(keys)
        changed, waiting = Changed(), []
        for graph in graphs.values():
            undecided = {
                task: dependents.get(key, ())
                for task in set(graph.finished).intersection(found[graph.id])
                if states.get(key := record_id(graph.id, task), DecisionState.FINISHED) is not DecisionState.FINISHED
            }
            if undecided and self._as_judged(graph, self._store.graphs.reopen(graph, undecided)):
                changed[graph.id] += len(undecided)
                for_others = {dependent for others in undecided.values() for dependent in others}
                waiting += [record_id(graph.id, task) for task in undecided.keys() - for_others]
        enqueue(self._resources, waiting)
        return changed

    def _relink(self, found: Tasks) -> Changed:
        """A link to a task that promised its children's values is one to those children, where they are open."""
        graphs = self._store.graphs.get_many(found)
        changed, ready = Changed(), []
        # Read after the graphs: what they have as finished is decided.
        for process_id, decisions in self._store.decisions.of_processes(list(graphs)):
            graph = graphs[process_id]
            applied = {task: decisions[task] for task in graph.finished if task in decisions}
            parents = {child.id: task for task, decision in applied.items() for child in decision.children}
            waits: dict[str, list[str]] = {}
            for task in graph.not_finished.keys() & set(found[graph.id]):
                dead = [dep for dep in graph.links.get(task, ()) if dep not in graph.not_finished]
                # Nobody ever waits for who scheduled him: with its children he would wait for himself.
                others = still_to_come(set(dead).difference(_ancestors(task, parents)), applied)
                if dead:
                    waits[task] = [one for one in others if one in graph.not_finished]
            if waits and self._as_judged(graph, self._store.graphs.relink(graph, waits)):
                changed[process_id] += len(waits)
                ready += [record_id(graph.id, task) for task, others in waits.items() if _is_free(graph, task, others)]
        enqueue(self._resources, ready)
        return changed

    def _as_judged(self, graph: Graph, is_written: bool) -> bool:
        if not is_written:
            note_graph_changed(self._resources, graph)
        return is_written

    def _by_portion(self, step: Callable[[Tasks], Changed]) -> Action:
        """Return an action that takes a step for all that was found, for as many processes at once as may be held in
        memory."""

        def act(_rule: Rule, findings: Sequence[Finding], _around: Surroundings) -> Changed:
            found: Tasks = defaultdict(list)
            for finding in findings:
                process_id, task = split_record_id(finding.record)
                found[process_id].append(task)
            changed = Changed()
            for portion in self._store.portions(found):
                changed += of_batch(portion, lambda some: step({key: found[key] for key in some}))
            return changed

        return act


def _is_free(graph: Graph, task: str, others: Sequence[str]) -> bool:
    """Whether a task waits for nothing, once its dead links are replaced by these."""
    return not others and not any(dep in graph.not_finished for dep in graph.links.get(task, ()))


def _ancestors(task: str, parents: Mapping[str, str]) -> set[str]:
    """Who scheduled a task, and who scheduled that one, and so on."""
    found: set[str] = set()
    while (parent := parents.get(task)) is not None and parent not in found:
        found.add(parent)
        task = parent
    return found


def _keys(found: Tasks) -> list[str]:
    return [record_id(process_id, task) for process_id, tasks in found.items() for task in tasks]
