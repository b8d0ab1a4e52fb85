"""Operators' commands that redo a process from any of its tasks: first a preview, then the redo itself.

A finished task can be redone as well, for example if its result was wrong. All tasks that depend on its result are
redone with it. All other tasks are kept. A redo from the start task redoes the whole process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from recovery import metrics
from recovery.engine.end.redo import carry_out
from recovery.engine.lookup import find_process, hint
from recovery.engine.operators.auditing import audited, reason_of, who
from recovery.engine.resources import Resources
from recovery.errors import InputError, StoreUnavailable
from recovery.records import Decision, DecisionState, Life, OrderKind, Process, ProcessState, given, mark_of
from recovery.records.ids import new_pass, record_id
from recovery.rules import redo_of
from recovery.wording import count


@dataclass(frozen=True, slots=True)
class Preview:
    """What a redo of a process from some tasks would change."""

    process: Process
    tasks: tuple[str, ...]
    """Ids of the tasks from which the process is redone."""
    again: Mapping[str, Decision]
    """{task id: decision} of the tasks that are done again."""
    dropped: Mapping[str, Decision]
    """{task id: decision} of the tasks that these had scheduled. They schedule new tasks instead."""
    kept: int
    """Number of tasks that stay as they are."""
    failed: tuple[str, ...]
    """Ids of the kept tasks that have failed. The process breaks again because of them."""

    @property
    def thrown_away(self) -> int:
        """Number of results that are thrown away."""
        decisions = (*self.again.values(), *self.dropped.values())
        return sum(decision.state is DecisionState.FINISHED for decision in decisions)

    @property
    def seconds(self) -> float:
        """Total seconds of the last attempts of the tasks that are done again or dropped."""
        return sum(map(_seconds, (*self.again.values(), *self.dropped.values())))


def preview_redo(resources: Resources, process_id: str, tasks: Sequence[str] = ()) -> Preview:
    """Return what a redo from these tasks would change. Nothing is changed.

    Args:
        resources: The connections.
        process_id: The id of the process.
        tasks: Ids of tasks, unique beginnings of ids, or names of actors. If empty, the whole process is redone.

    Raises:
        ProcessNotFound: No process has this id.
        InputError: A task is not in the process, or the process was aborted, is being removed or redone, or lost its
            custom id to another process.
        DamagedRecord: A record that says which tasks depend on which cannot be read.
    """
    process = find_process(resources, process_id)
    if process.state is ProcessState.ABORTED:
        raise InputError(f"process {process.id} was aborted, which is for good; start another one")
    # A mark that belongs to no standing order may be replaced by a new order.
    ordered = resources.store.orders.standing([mark_of(process)])
    if process.removing and ordered:
        raise InputError(f"process {process.id} is being removed; start another one")
    if process.replaced_by is not None:
        explanation = f"process {process.id} gave its custom id up to process {process.replaced_by}"
        successor = resources.store.processes.get_committed_brief(process.replaced_by)
        raise InputError(
            f"{explanation}; restart that one"
            if successor
            else f"{explanation}, whose start was cut off; start it again"
        )
    if process.redo and ordered:
        raise InputError(f"process {process.id} is just being restarted from {', '.join(process.redo[:3])}; ask again")
    names = [given.text(task, "task") for task in tasks] or [process.start_task]
    decisions = dict(resources.store.decisions.of_processes([process.id])).get(process.id, {})
    roots = tuple(dict.fromkeys(root for name in names for root in _named(process, name, decisions)))
    plan = redo_of(roots, resources.store.redos.links([process.id])[process.id])
    gone = plan.again | {*plan.dropped}
    kept_tasks = {task: decision for task, decision in decisions.items() if task not in gone}
    return Preview(
        process=process,
        tasks=roots,
        again={task: decisions[task] for task in sorted(plan.again) if task in decisions},
        dropped={task: decisions[task] for task in plan.dropped if task in decisions},
        kept=len(kept_tasks),
        failed=tuple(task for task, decision in kept_tasks.items() if decision.failed),
    )


def redo_process(
    resources: Resources, process_id: str, reason: str, tasks: Sequence[str] = (), by: str | None = None
) -> Preview:
    """Redo a process for an operator, with an entry in the audit log. Arguments and errors are those of `redo`."""
    reason = reason_of(reason, "kept with the process")
    with audited(resources, "process restart", process_id, reason, by=by, tasks=list(tasks)) as outcome:
        preview = redo(resources, process_id, reason, tasks, by=by)
        outcome.text = (
            f"{count(len(preview.again), 'task')} done again, {len(preview.dropped)} dropped, {preview.kept} kept"
        )
    return preview


def redo(
    resources: Resources,
    process_id: str,
    reason: str,
    tasks: Sequence[str] = (),
    *,
    by: str | None = None,
    operation: int | None = None,
    as_seen: Process | None = None,
) -> Preview:
    """Redo a process from these tasks, or from its beginning. Return the preview, as it was before.

    Args:
        resources: The connections.
        process_id: The id of the process.
        reason: Why the process is redone. It is kept with the process.
        tasks: As in `preview_redo`.
        by: Who redoes the process. The default is `who()`.
        operation: The number of the operation that redoes the process.
        as_seen: The process as the caller saw it.

    Raises:
        InputError: As in `preview_redo`, or the process is not `as_seen` any more.
        StoreUnavailable: Somebody else changed the process at this moment. Nothing was changed.
    """
    seen = preview_redo(resources, process_id, tasks)
    if as_seen is not None and not seen.process.is_as(as_seen):
        raise InputError(f"process {process_id} was changed by somebody else meanwhile; nothing was done")
    _begin(resources, seen, reason, by or who(), operation)
    carry_out(resources, seen.process.id)
    metrics.OPERATIONS.labels("redo").inc()
    return seen


def _named(process: Process, name: str, decisions: Mapping[str, Decision]) -> list[str]:
    """Return the ids of the tasks that a name means: the task with this id, else all tasks of the actor with this name,
    else the only task whose id begins with it. Raises InputError."""
    if name in decisions:
        return [name]
    if of_actor := sorted(task for task, decision in decisions.items() if decision.actor == name):
        return of_actor
    matches = sorted(task for task in decisions if task.startswith(name))
    if not matches:
        actors = hint(name, sorted({decision.actor for decision in decisions.values()}), "its tasks can't be read")
        raise InputError(
            f"process {process.id} has no task {given.shown(name)}, and none of an actor of that name; {actors}. "
            f"`recovery show {process.id}` lists its tasks"
        )
    if len(matches) > 1:
        listed = ", ".join(matches[:3])
        raise InputError(f"process {process.id}: {len(matches)} tasks begin with {given.shown(name)}, first {listed}")
    return matches


def _begin(resources: Resources, seen: Preview, reason: str, by: str, operation: int | None) -> None:
    """Save the order of the redo and begin it. Raises StoreUnavailable if somebody else changed the process at this
    moment."""
    process, now = seen.process, resources.store.now()
    error = process.error.evolve(stack=None) if process.error is not None else None
    life = Life(
        epoch=process.epoch,
        state=process.state,
        tasks=seen.tasks[:20],
        by=by,
        reason=reason,
        ended_at=now,
        operation=operation,
        error=error,
    )
    store, key = resources.store, new_pass()
    store.orders.give(OrderKind.REDO, {process.id: process.epoch + 1}, key, now, seen.tasks)
    if not store.redos.begin(process, life, seen.tasks, key, resources.settings.apply_timeout):
        store.orders.fulfil([record_id(process.id, key)])
        raise StoreUnavailable(f"process {process.id} was just changed by somebody else; nothing was done, try again")


def _seconds(decision: Decision) -> float:
    """Return how long the last attempt of a task took."""
    ended = decision.outcome.finished_at if decision.outcome is not None else None
    if ended is None or decision.claimed_at is None:
        return 0.0
    return max(0.0, (ended - decision.claimed_at).total_seconds())
