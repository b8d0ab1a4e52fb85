"""Processes done again, from the beginning or from the tasks of an actor: their data was wrong, and nothing failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from recovery.engine.operations.redo import redo
from recovery.operations.kinds.base import Kind, Planned, ended, found, totals_of
from recovery.plurals import count
from recovery.records import Decision, DecisionState, Operation, OperationResult, Process, ProcessState, ResultState
from recovery.rules import redo_of


class RestartFrom(Kind):
    """Has processes done again, but those that were aborted or are being restarted."""

    def plan(self, operation: Operation, process_ids: Sequence[str]) -> Planned:
        store, results = self.resources.store, list[OperationResult]()
        at, processes = store.now(), store.processes.committed_briefs(process_ids)
        may = [key for key, one in processes.items() if one.state is not ProcessState.ABORTED and not one.redo]
        for page in store.portions(may):
            links = store.redos.links(page) if operation.from_actor is not None else {}
            for key, decisions in store.decisions.of_processes(page):
                roots = _roots(operation, processes[key], decisions)
                if roots and operation.from_actor is not None:
                    plan = redo_of(roots, links[key])
                    gone = plan.again | {*plan.dropped}
                elif roots:
                    gone = frozenset(decisions)
                if roots:
                    results.append(found(operation, processes[key], _told(gone, decisions), at))
        return Planned(results, totals_of(results, processes=len(processes)))

    def do(self, operation: Operation, result: OperationResult, process: Process) -> OperationResult:
        decisions = dict(self.resources.store.decisions.of_processes([process.id])).get(process.id, {})
        roots = _roots(operation, process, decisions)
        if not roots:
            return ended(result, ResultState.NOTHING, process)
        redo(self.resources, process.id, operation.why, roots, by=operation.who, operation=operation.id)
        return ended(result, ResultState.DONE, self.resources.store.processes.briefs([process.id]).get(process.id))

    def is_done(self, operation: Operation, result: OperationResult, process: Process) -> bool:  # noqa: ARG002
        return any(life.operation == operation.id for life in process.lives)


def _roots(operation: Operation, process: Process, decisions: Mapping[str, Decision]) -> list[str]:
    if operation.from_actor is None:
        return [process.start_task] if process.start_task in decisions else []
    return [task for task, one in decisions.items() if one.actor == operation.from_actor]


def _told(gone: frozenset[str], decisions: Mapping[str, Decision]) -> str:
    done = sum(decisions[task].state is DecisionState.FINISHED for task in gone if task in decisions)
    return f"{count(len(gone), 'task')} of {len(decisions)} done again or dropped, {count(done, 'result')} thrown away"
