"""Apply: finished decisions' effects reach the graph (design §3, 'apply').

    insert children → graph: move the tasks, add children and links → enqueue what is ready
    → if nothing is open, finish the process

Every step may run twice; cut off anywhere, the decisions still have their deadlines, and DECISION_NOT_APPLIED
applies them again. `applier` decides when to apply, and takes the deadlines off.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from pymongo.errors import OperationFailure

from recovery.engine.children import records_of_children
from recovery.engine.complete import break_process, finish_process, too_large
from recovery.engine.dispatch import enqueue
from recovery.engine.resources import Resources
from recovery.records import Decision, Task
from recovery.records.ids import record_id, split_record_id
from recovery.store import Finished, GraphView, is_too_large


class Applied(StrEnum):
    """What came of an apply."""

    NOW = "applied"
    BEFORE = "was applied before"
    RESTORED = "was applied before, and children's records were missing"
    NOT_YET = "its parent is not applied yet"
    STALE = "of an earlier epoch, or of no graph"


@dataclass(frozen=True, slots=True)
class Ended:
    """A task and its finished decision; and the task that was claimed on the spot because of it, if one was."""

    task: Task
    decision: Decision
    successor: str | None = None

    @property
    def process_id(self) -> str:
        return self.decision.process_id

    @property
    def failed(self) -> bool:
        return self.decision.outcome is None or self.decision.outcome.error is not None


@dataclass(frozen=True, slots=True)
class Effect:
    """What an apply did. `size` is that of the graph, in bytes; 0 if it is complete or was not changed. With
    `complete` its process has ended, and it is to be laid to rest."""

    applied: Applied
    taken: Decision | None = None
    size: int = 0
    complete: bool = False


Take = Callable[[Mapping[str, str]], Decision | None]
"""Given {ready decision: its actor}, claims one of them for the caller, or none."""


def apply(resources: Resources, together: Sequence[Ended], take: Take | None = None) -> Effect | None:
    """Apply decisions of one process and epoch in one update of the graph.

    None: not all of several could be applied at once; apply them one by one. A failed one comes alone. Of the tasks
    that become ready `take` may claim one for the caller; the others are enqueued.
    """
    first = together[0]
    if first.failed:
        return _fail(resources, first)
    missing = 0
    for ended in together:
        tasks, decisions = records_of_children(ended.task, ended.decision)
        missing += resources.store.tasks.insert(tasks) + resources.store.decisions.insert(decisions)
    finished = [_finished(ended) for ended in together]
    try:
        view = resources.store.graphs.apply(first.process_id, first.decision.epoch, finished)
    except OperationFailure as error:
        if not is_too_large(error):
            raise
        return _outgrown(resources, together)
    if view is not None:
        return _go_on(resources, together, view, take, Applied.NOW)
    if len(together) > 1:
        return None
    return _applied_before(resources, first, finished[0], take, Applied.RESTORED if missing else Applied.BEFORE)


def _applied_before(
    resources: Resources, ended: Ended, finished: Finished, take: Take | None, applied: Applied
) -> Effect:
    view = resources.store.graphs.view(ended.process_id, finished)
    if view is None or view.epoch != ended.decision.epoch:
        return Effect(Applied.STALE)
    if not view.registered:
        resources.store.decisions.apply_later(ended.decision.id, resources.settings.apply_timeout)
        return Effect(Applied.NOT_YET)
    return _go_on(resources, [ended], view, take, applied)


def _go_on(
    resources: Resources, together: Sequence[Ended], view: GraphView, take: Take | None, applied: Applied
) -> Effect:
    """Claim or enqueue what is ready, or finish the process."""
    process_id = together[0].process_id
    ended_now = {ended.task.task_id for ended in together}
    # Among them what was claimed on the spot, in case a failover took that claim back: the guard tells.
    ready = [record_id(process_id, task) for task in view.ready if task not in ended_now]
    taken = take({key: _actor_of(together, key) for key in ready}) if take and ready else None
    enqueue(resources, [key for key in ready if taken is None or key != taken.id])
    if view.complete:
        known = {ended.decision.task_id: ended.decision.outcome for ended in together if ended.decision.outcome}
        over = finish_process(resources, process_id, view.epoch, known) is not None
        return Effect(applied, taken, complete=over)
    return Effect(applied, taken, view.size)


def _fail(resources: Resources, ended: Ended) -> Effect:
    decision = ended.decision
    assert decision.outcome is not None and decision.outcome.error is not None
    known = resources.store.graphs.fail(ended.process_id, decision.epoch, decision.task_id)
    broken = break_process(resources, ended.process_id, decision.epoch, decision.outcome.error)
    return Effect(Applied.NOW if known and broken else Applied.BEFORE)


def _outgrown(resources: Resources, together: Sequence[Ended]) -> Effect:
    """The graph can't take these tasks: break the process, or it would be tried for ever."""
    process_id, epoch = together[0].process_id, together[0].decision.epoch
    for ended in together:
        resources.store.graphs.fail(process_id, epoch, ended.task.task_id)
    broken = break_process(resources, process_id, epoch, too_large("graph"))
    return Effect(Applied.NOW if broken else Applied.BEFORE)


def _finished(ended: Ended) -> Finished:
    outcome = ended.decision.outcome
    return Finished(
        task=ended.task.task_id,
        children={child.id: child.deps for child in ended.decision.children},
        dependents=ended.task.dependents,
        waits=outcome.waits if outcome else (),
    )


def _actor_of(together: Sequence[Ended], key: str) -> str:
    task = split_record_id(key)[1]
    for ended in together:
        if task in ended.task.dependents:
            return ended.task.dependents[task]
        for child in ended.decision.children:
            if child.id == task:
                return child.actor
    raise KeyError(key)
