"""Restart: tasks of processes are done again, those that failed or more.

`Restart` queues the failed tasks of broken processes again. `RestartFrom` is for processes whose data was wrong though
nothing failed: they are done again from the beginning, or from the tasks of an actor.
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
            return f"restart what failed{f', {task} among it' if task else ''}"

        return plan_each(self.resources, operation, process_ids, judge)

    def do(self, operation: Operation, seen: Sequence[Process]) -> Mapping[str, str]:
        restart_many(self.resources, seen, Restarter(operation.who, operation.why, operation.id))
        return {}

    def is_done(self, operation: Operation, result: OperationResult, process: Process) -> bool:  # noqa: ARG002
        return process.times_reopened > int(result.before.rpartition("/")[2])


class RestartFrom(Kind):
    """Has processes done again, but those that were aborted or are being restarted."""

    name = OperationKind.RESTART_FROM
    options = (FROM_ACTOR,)
    none = "each is aborted, is being restarted already, or has no task of the actor"
    undone = "nothing of it is to be done again any more"

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
                    results.append(found(operation, processes[key], _plan(gone, decisions), at))
        return Planned(results, totals_of(results, processes=len(processes)))

    def do(self, operation: Operation, seen: Sequence[Process]) -> Mapping[str, str]:
        """One by one. What becomes of a process that ran on since it was planned is told as it is now."""
        return {process.id: told for process in seen if (told := self._redo(operation, process)) is not None}

    def _redo(self, operation: Operation, seen: Process) -> str | None:
        decisions = dict(self.resources.store.decisions.of_processes([seen.id])).get(seen.id, {})
        roots = _roots(operation, seen, decisions)
        if not roots:
            return None
        by, number = operation.who, operation.id
        done = redo(self.resources, seen.id, operation.why, roots, by=by, operation=number, as_seen=seen)
        gone = len(done.again) + len(done.dropped)
        return _told(gone, gone + done.kept, done.thrown_away)

    def is_done(self, operation: Operation, result: OperationResult, process: Process) -> bool:  # noqa: ARG002
        if process.lives and process.lives[-1].operation == operation.id and process.redo:
            # Begun and cut off. Scanners end it by its order, but a worker of an older version gave none.
            decisions = dict(self.resources.store.decisions.of_processes([process.id])).get(process.id, {})
            take_over(self.resources, process, _roots(operation, process, decisions))
        return any(life.operation == operation.id for life in process.lives)


def _roots(operation: Operation, process: Process, decisions: Mapping[str, Decision]) -> list[str]:
    if operation.from_actor is None:
        return [process.start_task] if process.start_task in decisions else []
    return [task for task, one in decisions.items() if one.actor == operation.from_actor]


def _plan(gone: frozenset[str], decisions: Mapping[str, Decision]) -> str:
    done = sum(decisions[task].state is DecisionState.FINISHED for task in gone if task in decisions)
    return _told(len(gone), len(decisions), done)


def _told(gone: int, among: int, results: int) -> str:
    return f"{count(gone, 'task')} of {among} done again or dropped, {count(results, 'result')} thrown away"
