"""Repairs of processes: their starts, graphs, records and ends. Each is decided from what is read anew, and its write
repeats that condition; see `store.graphs`."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Sequence

from recovery.engine import Resources, break_process, enqueue, finish_process, rebuild_graph, register
from recovery.engine.abort import settle
from recovery.records import Decision, DecisionState, ErrorInfo, Graph, Process, ProcessState, Task
from recovery.records.ids import record_id, split_record_id
from recovery.repair.applying import Applying, each
from recovery.rules import Finding, Repair, Rule, Surroundings

log = logging.getLogger(__name__)

TaskStep = Callable[[Graph, str], bool]


class ProcessRepairs:
    """What can be done about a process as a whole."""

    def __init__(self, resources: Resources, applying: Applying) -> None:
        self._resources, self._store = resources, resources.store
        self._applying = applying
        self.actions = {
            Repair.STAMP: self._stamp,
            Repair.APPLY: self._apply,
            Repair.ENQUEUE_READY: self._enqueue_ready,
            Repair.REGISTER_START: self._register_start,
            Repair.FINISH_PROCESS: self._finish_process,
            Repair.REBUILD_GRAPH: self._rebuild_graph,
            Repair.REOPEN: self._reopen,
            Repair.RESTORE: self._restore,
            Repair.DROP_LINKS: self._drop_links,
            Repair.BREAK: self._break,
            Repair.SETTLE_ABORT: self._settle_abort,
            Repair.REPORT: self._report,
        }

    def _stamp(self, _rule: Rule, findings: Sequence[Finding], _: Surroundings) -> int:
        ids, store = [f.record for f in findings], self._store
        return store.requeues.stamp(ids) + store.processes.stamp(ids) + store.graphs.stamp(ids)

    def _apply(self, _rule: Rule, findings: Sequence[Finding], _: Surroundings) -> int:
        return self._applying.apply([f.record for f in findings])

    def _enqueue_ready(self, _rule: Rule, findings: Sequence[Finding], _: Surroundings) -> int:
        return enqueue(self._resources, [f.record for f in findings])

    def _register_start(self, _rule: Rule, findings: Sequence[Finding], around: Surroundings) -> int:
        processes = self._store.processes.get_many(f.record for f in findings)
        return each(processes.values(), lambda process: register(self._resources, process, around.now) > 0)

    def _finish_process(self, _rule: Rule, findings: Sequence[Finding], _: Surroundings) -> int:
        processes = self._store.processes.get_many(f.record for f in findings)
        over: list[str] = []

        def finish(process: Process) -> bool:
            ended = finish_process(self._resources, process.id, process.epoch)
            if ended is not None:
                over.append(process.id)
            return bool(ended)

        changed = each(processes.values(), finish)
        self._store.graphs.rest(over)
        return changed

    def _rebuild_graph(self, _rule: Rule, findings: Sequence[Finding], _: Surroundings) -> int:
        return each([f.record for f in findings], lambda process_id: rebuild_graph(self._resources, process_id))

    def _restore(self, rule: Rule, findings: Sequence[Finding], around: Surroundings) -> int:
        """The parents' decisions applied again make what is missing; the start's is made from the process. What that
        does not bring back, since the parent's own records are lost, nobody can."""
        before = len(self._there(findings))
        self._applying.apply(list(dict.fromkeys(f.decision.id for f in findings if f.decision is not None)))
        starts = self._store.processes.get_many(f.process_id for f in findings if f.decision is None)
        each(starts.values(), lambda process: register(self._resources, process, around.now) > 0)
        there = self._there(findings)
        lost = [f for f in findings if not {(Task, f.record), (Decision, f.record)} <= there]
        return len(there) - before + self._break(rule, lost, around)

    def _there(self, findings: Sequence[Finding]) -> set[tuple[type, str]]:
        ids = [f.record for f in findings]
        tasks, decisions = self._store.tasks.get_many(ids), self._store.decisions.get_many(ids)
        return {*((Task, key) for key in tasks), *((Decision, key) for key in decisions)}

    def _reopen(self, _rule: Rule, findings: Sequence[Finding], _: Surroundings) -> int:
        tasks = self._store.tasks.get_many(f.record for f in findings)

        def reopen(graph: Graph, task: str) -> bool:
            key = record_id(graph.id, task)
            decision = self._store.decisions.get(key)  # read after the graph: it can't have finished before
            if decision is None or decision.state is DecisionState.FINISHED or task not in graph.finished:
                return False
            dependents = tasks[key].dependents if key in tasks else {}
            changed = self._store.graphs.reopen(graph, task, dependents)
            if changed:
                enqueue(self._resources, [key])
            return changed

        return self._each_task(findings, reopen)

    def _drop_links(self, _rule: Rule, findings: Sequence[Finding], _: Surroundings) -> int:
        def drop(graph: Graph, task: str) -> bool:
            changed = self._store.graphs.drop_links(graph, task)
            if changed and not any(dep in graph.not_finished for dep in graph.links.get(task, ())):
                enqueue(self._resources, [record_id(graph.id, task)])
            return changed

        return self._each_task(findings, drop)

    def _each_task(self, findings: Sequence[Finding], step: TaskStep) -> int:
        """Take a step for each task with its graph read anew: the one before changed it."""
        by_process: dict[str, list[str]] = defaultdict(list)
        for finding in findings:
            process_id, task = split_record_id(finding.record)
            by_process[process_id].append(task)

        def one(item: tuple[str, str]) -> bool:
            graph = self._store.graphs.get(item[0])
            return graph is not None and step(graph, item[1])

        return each([(process_id, task) for process_id, tasks in by_process.items() for task in tasks], one)

    def _break(self, rule: Rule, findings: Sequence[Finding], _: Surroundings) -> int:
        processes = self._store.processes.get_many({f.process_id for f in findings})

        def one(finding: Finding) -> bool:
            process, task = processes.get(finding.process_id), split_record_id(finding.record)[1]
            if process is None or process.state is not ProcessState.RUNNING:
                return False
            # Noted in the graph, which may then rest: a graph that only is open has to be looked at for ever.
            graph = self._store.graphs.get(process.id)
            restarts = graph.restarted.get(task) if graph is not None else None
            self._store.graphs.fail(process.id, process.epoch, task, restarts)
            error = ErrorInfo(kind=_KINDS.get(rule, rule.value), message=f"{rule}: {finding.evidence}", task=task)
            return break_process(self._resources, process.id, process.epoch, error)

        return each(findings, one)

    def _settle_abort(self, _rule: Rule, findings: Sequence[Finding], _: Surroundings) -> int:
        return settle(self._resources, [f.record for f in findings])

    def _report(self, rule: Rule, findings: Sequence[Finding], _: Surroundings) -> int:
        for finding in findings:
            log.warning("%s: %s: %s; nothing was changed", rule, finding.record, finding.evidence)
        return 0


_KINDS = {Rule.CYCLE: "Cycle", Rule.TASK_MISSING: "RecordsLost", Rule.DECISION_MISSING: "RecordsLost"}
