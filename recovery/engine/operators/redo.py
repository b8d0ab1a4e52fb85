"""What an operator does to have a process done again from any of its tasks: first a preview, then the thing itself.

Any task will do, finished ones too: its result was wrong, and so is all that was made of it. What does not depend on it
is kept. From the start task it is the whole process.
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
    """What would become of a process that is done again from some tasks."""

    process: Process
    tasks: tuple[str, ...]
    again: Mapping[str, Decision]
    """{task: its decision}, of what is done again."""
    dropped: Mapping[str, Decision]
    """What these had scheduled; they schedule anew."""
    kept: int
    """How many tasks stay as they are."""
    failed: tuple[str, ...]
    """Of those that are kept, the ones that have failed: the process breaks for them once more."""

    @property
    def thrown_away(self) -> int:
        """How many results are."""
        done = (*self.again.values(), *self.dropped.values())
        return sum(one.state is DecisionState.FINISHED for one in done)

    @property
    def seconds(self) -> float:
        """How long their last attempts took, together."""
        return sum(map(_seconds, (*self.again.values(), *self.dropped.values())))


def preview_redo(resources: Resources, process_id: str, tasks: Sequence[str] = ()) -> Preview:
    """What would be done again with these tasks, all of the process if none is named. Nothing is changed.

    Raises ProcessNotFound; InputError for a task that is not in the process, and for a process that was aborted or is
    being restarted; DamagedRecord where what depends on what can't be read.
    """
    process = find_process(resources, process_id)
    if process.state is ProcessState.ABORTED:
        raise InputError(f"process {process.id} was aborted, which is for good; start another one")
    # What is marked by nobody's order, an order may take the place of.
    ordered = resources.store.orders.standing([mark_of(process)])
    if process.removing and ordered:
        raise InputError(f"process {process.id} is being removed; start another one")
    if process.replaced_by is not None:
        gave = f"process {process.id} gave its custom id up to process {process.replaced_by}"
        there = resources.store.processes.get_committed_brief(process.replaced_by)
        raise InputError(f"{gave}; restart that one" if there else f"{gave}, whose start was cut off; start it again")
    if process.redo and ordered:
        raise InputError(f"process {process.id} is just being restarted from {', '.join(process.redo[:3])}; ask again")
    asked = [given.text(task, "task") for task in tasks] or [process.start_task]
    decisions = dict(resources.store.decisions.of_processes([process.id])).get(process.id, {})
    roots = tuple(dict.fromkeys(root for name in asked for root in _named(process, name, decisions)))
    plan = redo_of(roots, resources.store.redos.links([process.id])[process.id])
    gone = plan.again | {*plan.dropped}
    kept = {task: one for task, one in decisions.items() if task not in gone}
    return Preview(
        process=process,
        tasks=roots,
        again={task: decisions[task] for task in sorted(plan.again) if task in decisions},
        dropped={task: decisions[task] for task in plan.dropped if task in decisions},
        kept=len(kept),
        failed=tuple(task for task, one in kept.items() if one.failed),
    )


def redo_process(
    resources: Resources, process_id: str, reason: str, tasks: Sequence[str] = (), by: str | None = None
) -> Preview:
    """`redo`, in the name of an operator, who is on record with it. Raises the same."""
    reason = reason_of(reason, "kept with the process")
    with audited(resources, "process restart", process_id, reason, by=by, tasks=list(tasks)) as outcome:
        done = redo(resources, process_id, reason, tasks, by=by)
        outcome.text = f"{count(len(done.again), 'task')} done again, {len(done.dropped)} dropped, {done.kept} kept"
    return done


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
    """Have a process done again from these tasks, or from the beginning. What was, as `preview_redo` has it; raises the
    same, InputError for one that is not `as_seen`, and StoreUnavailable where somebody else changed the process at this
    moment."""
    seen = preview_redo(resources, process_id, tasks)
    if as_seen is not None and not seen.process.is_as(as_seen):
        raise InputError(f"process {process_id} was changed by somebody else meanwhile; nothing was done")
    _begin(resources, seen, reason, by or who(), operation)
    carry_out(resources, seen.process.id)
    metrics.OPERATIONS.labels("redo").inc()
    return seen


def _named(process: Process, name: str, decisions: Mapping[str, Decision]) -> list[str]:
    """Return the task of this id, all tasks of the actor of this name, or the only task whose id begins with it, in
    this order. Raises InputError."""
    if name in decisions:
        return [name]
    if of_actor := sorted(task for task, decision in decisions.items() if decision.actor == name):
        return of_actor
    found = sorted(task for task in decisions if task.startswith(name))
    if not found:
        actors = hint(name, sorted({decision.actor for decision in decisions.values()}), "its tasks can't be read")
        raise InputError(
            f"process {process.id} has no task {given.shown(name)}, and none of an actor of that name; {actors}. "
            f"`recovery show {process.id}` lists its tasks"
        )
    if len(found) > 1:
        listed = ", ".join(found[:3])
        raise InputError(f"process {process.id}: {len(found)} tasks begin with {given.shown(name)}, first {listed}")
    return found


def _begin(resources: Resources, seen: Preview, reason: str, by: str, operation: int | None) -> None:
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
        raise StoreUnavailable(f"process {process.id} was changed at this moment; nothing was done, ask again")


def _seconds(decision: Decision) -> float:
    ended = decision.outcome.finished_at if decision.outcome is not None else None
    if ended is None or decision.claimed_at is None:
        return 0.0
    return max(0.0, (ended - decision.claimed_at).total_seconds())
