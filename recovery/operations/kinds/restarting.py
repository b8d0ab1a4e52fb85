"""Restart: run tasks of processes again.

`Restart` requeues the failed tasks of broken processes. `RestartFrom` is for processes that ran with wrong data
although nothing failed. It runs them again from the beginning, or from the tasks of an actor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from recovery.engine import Resources
from recovery.engine.end.redo import take_over
from recovery.engine.lookup import hint
from recovery.engine.operators.redo import redo
from recovery.engine.operators.restart import restart_many
from recovery.engine.operators.restart_history import Restarter
from recovery.errors import InputError
from recovery.operations.kinds.base import Kind, Option, Options, Planned, found, plan_each, totals_of
from recovery.records import (
    Decision,
    DecisionState,
    Operation,
    OperationKind,
    OperationResult,
    Process,
    ProcessState,
    given,
)
from recovery.rules import redo_of
from recovery.wording import count


def _read_actor(resources: Resources, options: Options) -> str:
    name = given.text(options["from_actor"], "--from-actor")
    known = sorted(resources.store.actors.stored())
    if name not in known:
        raise InputError(f"no actor is named {given.shown(name)}; {hint(name, known, 'none is known')}")
    return name


FROM_ACTOR = Option(
    "from_actor",
    "--from-actor",
    "is for restart_from; a {kind} has no tasks to begin from",
    _read_actor,
    shown=lambda name: f" {given.text(name, '--from-actor')}",
)


class Restart(Kind):
    """Restarts the failed tasks of broken processes."""

    name = OperationKind.RESTART
    none = "none of them is broken"
    undone = "nothing of it can be restarted: its records are lost; abort it, and start another"

    def plan(self, operation: Operation, process_ids: Sequence[str]) -> Planned:
        def judge(process: Process) -> str | None:
            if process.state is not ProcessState.BROKEN:
                return None
            task = process.error.task if process.error is not None else None
            return f"restart its failed tasks{f', including {task}' if task else ''}"

        return plan_each(self.resources, operation, process_ids, judge)

    def do(self, operation: Operation, seen: Sequence[Process]) -> Mapping[str, str]:
        restart_many(self.resources, seen, Restarter(operation.who, operation.why, operation.id))
        return {}

    def is_done(self, operation: Operation, result: OperationResult, process: Process) -> bool:  # noqa: ARG002
        return process.times_reopened > int(result.before.rpartition("/")[2])


class RestartFrom(Kind):
    """Runs processes again, except aborted processes and processes that are being restarted."""

    name = OperationKind.RESTART_FROM
    options = (FROM_ACTOR,)
    none = "each is aborted, is being restarted already, or has no task of the actor"
    undone = "none of its tasks is to be done again any more"

    def plan(self, operation: Operation, process_ids: Sequence[str]) -> Planned:
        store, results = self.resources.store, list[OperationResult]()
        at, processes = store.now(), store.processes.committed_briefs(process_ids)
        restartable_ids = [
            process_id
            for process_id, process in processes.items()
            if process.state is not ProcessState.ABORTED and not process.redo
        ]
        for page_ids in store.portions(restartable_ids):
            links = store.redos.links(page_ids) if operation.from_actor is not None else {}
            for process_id, decisions in store.decisions.of_processes(page_ids):
                roots = _roots(operation, processes[process_id], decisions)
                if roots and operation.from_actor is not None:
                    plan = redo_of(roots, links[process_id])
                    replaced = plan.again | {*plan.dropped}
                elif roots:
                    replaced = frozenset(decisions)
                if roots:
                    results.append(found(operation, processes[process_id], _plan(replaced, decisions), at))
        return Planned(results, totals_of(results, processes=len(processes)))

    def do(self, operation: Operation, seen: Sequence[Process]) -> Mapping[str, str]:
        """Restart the processes one by one. If a process has continued since it was planned, its note describes the
        restart as it was made."""
        return {process.id: note for process in seen if (note := self._redo(operation, process)) is not None}

    def _redo(self, operation: Operation, seen: Process) -> str | None:
        decisions = dict(self.resources.store.decisions.of_processes([seen.id])).get(seen.id, {})
        roots = _roots(operation, seen, decisions)
        if not roots:
            return None
        who, operation_id = operation.who, operation.id
        result = redo(self.resources, seen.id, operation.why, roots, by=who, operation=operation_id, as_seen=seen)
        replaced = len(result.again) + len(result.dropped)
        return _replacement_text(replaced, replaced + result.kept, result.thrown_away)

    def is_done(self, operation: Operation, result: OperationResult, process: Process) -> bool:  # noqa: ARG002
        if process.lives and process.lives[-1].operation == operation.id and process.redo:
            # The restart was begun and interrupted. Scanners complete it from its order, but a worker of an older
            # version did not save an order.
            decisions = dict(self.resources.store.decisions.of_processes([process.id])).get(process.id, {})
            take_over(self.resources, process, _roots(operation, process, decisions))
        return any(life.operation == operation.id for life in process.lives)


def _roots(operation: Operation, process: Process, decisions: Mapping[str, Decision]) -> list[str]:
    if operation.from_actor is None:
        return [process.start_task] if process.start_task in decisions else []
    return [task for task, decision in decisions.items() if decision.actor == operation.from_actor]


def _plan(replaced: frozenset[str], decisions: Mapping[str, Decision]) -> str:
    results = sum(decisions[task].state is DecisionState.FINISHED for task in replaced if task in decisions)
    return _replacement_text(len(replaced), len(decisions), results)


def _replacement_text(replaced: int, total: int, results: int) -> str:
    return f"{count(replaced, 'task')} of {total} done again or dropped, {count(results, 'result')} thrown away"
