"""Apply finished decisions: write their effects to the graphs (docs/records.md, 'The order of writes').

    insert children → graphs: move the tasks, add children and links → claim or enqueue ready tasks
    → finish the processes without open tasks

A group holds decisions of one process and epoch. Each step handles many groups in one round trip. Every step may run
twice. If an apply is cut off anywhere, the decisions keep their deadlines, and DECISION_NOT_APPLIED applies them again.

An irregular group takes the same steps on its own, and the cause is examined. A group is irregular if a task failed or
was restarted, if its epoch is over, if it was applied before, or if its graph is missing or damaged. `outbox` decides
when decisions are applied.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from recovery.engine.apply.complete import Complete, finish_processes, too_large
from recovery.engine.apply.interruption import interrupt
from recovery.engine.apply.rebuild import is_whole, made_whole, rebuild_graph
from recovery.engine.apply.reopen import reopen_for
from recovery.engine.end.breaking import break_process
from recovery.engine.end.fencing import there
from recovery.engine.rejections import Guard, Step, note
from recovery.engine.resources import Resources
from recovery.engine.steps import Applied, Ended, enqueue, records_of_children
from recovery.errors import RecordTooLarge
from recovery.records import Decision, Outcome
from recovery.records.ids import record_id
from recovery.store import Finished, GraphView, batches

CHILDREN = 5000
"""Maximum number of children whose records are created in one insert. The records of a child take about 3 kB, and a
task may have a hundred thousand children."""

Group = Sequence[Ended]
"""Finished decisions of one process and epoch."""


@dataclass(frozen=True, slots=True)
class Ready:
    """Tasks that became ready through a group. `actors` maps decision ids to actors; all are of this epoch."""

    group: Group
    actors: Mapping[str, str]
    epoch: int


Take = Callable[[Sequence[Ready]], Sequence[Decision]]
"""Claims some of the ready tasks for the caller, at most one per process, and returns their decisions."""


@dataclass(frozen=True, slots=True)
class Effect:
    """The result of applying a group.

    `size` is the size of the group's graph in bytes, or 0 if the graph is complete or was not changed. `complete` means
    that the process has ended, so the deadline of its graph must be cleared.
    """

    group: Group
    applied: Applied
    size: int = 0
    complete: bool = False


def apply_together(
    resources: Resources, groups: Sequence[Group], take: Take | None = None
) -> tuple[list[Effect], list[Group]]:
    """Apply regular groups in a few round trips.

    Args:
        resources: Connections.
        groups: The decisions, grouped by process and epoch.
        take: Claims some of the tasks that become ready for the caller. The others are enqueued.

    Returns:
        The effects of the applied groups, and the remaining groups. The caller must pass each remaining group to
        `apply`, which detects the steps that were already done here.
    """
    regular = {_process_of(group): group for group in groups if _is_regular(group)}
    if not regular:
        return [], list(groups)
    views, _, doubtful = _apply_graphs(resources, list(regular.values()))
    applied = {key: (regular[key], view) for key, view in views.items() if key not in doubtful}
    effects = _go_on(resources, applied, take)
    done = {id(effect.group) for effect in effects}
    return effects, [group for group in groups if id(group) not in done]


def apply(resources: Resources, group: Group, take: Take | None = None) -> list[Effect]:
    """Apply decisions of one process and epoch, whether or not the group is regular.

    Returns:
        One effect for the whole group, or several effects, each for a part of the group.
    """
    if restarted := [ended.decision for ended in group if ended.decision.restarts]:
        reopen_for(resources, restarted)
    with_values = [ended for ended in group if not ended.failed]
    effects = _apply_finished(resources, with_values, take) if with_values else []
    return effects + [Effect([ended], interrupt(resources, ended.decision)) for ended in group if ended.failed]


def _process_of(group: Group) -> str:
    return group[0].process_id


def _epoch_of(group: Group) -> int:
    return group[0].decision.epoch


def _is_regular(group: Group) -> bool:
    return not any(ended.failed or ended.decision.restarts for ended in group)


def _apply_graphs(resources: Resources, groups: Sequence[Group]) -> tuple[dict[str, GraphView], int, set[str]]:
    """Insert the children, then update the graphs.

    Returns:
        The updated graphs by process id; the number of missing children's records that were inserted; and the ids of
        processes that may be gone, aborted or redone, which `_is_over` must check.
    """
    missing = _insert_children(resources, groups)
    finished_by_process = {
        _process_of(group): (_epoch_of(group), [_finished(ended) for ended in group]) for group in groups
    }
    views = resources.store.graphs.apply(finished_by_process)
    # Check after the children are inserted and before anything is enqueued: a removal that starts later sees them.
    parents = {
        _process_of(group): _epoch_of(group) for group in groups if any(ended.decision.children for ended in group)
    }
    standing = resources.store.processes.standing(parents) if parents else {}
    doubtful = {
        key
        for key, epoch in parents.items()
        if (process := standing.get(key)) is None or process.mark is not None or process.epoch > epoch
    }
    return views, missing, doubtful


def _insert_children(resources: Resources, groups: Sequence[Group]) -> int:
    missing, store = 0, resources.store
    tasks, decisions = [], []
    for ended in (ended for group in groups for ended in group):
        for children in batches(ended.decision.children, CHILDREN):
            new_tasks, new_decisions = records_of_children(ended.task, ended.decision, children)
            tasks += new_tasks
            decisions += new_decisions
            if len(tasks) >= CHILDREN:
                missing += store.tasks.insert(tasks) + store.decisions.insert(decisions)
                tasks, decisions = [], []
    if tasks:
        missing += store.tasks.insert(tasks) + store.decisions.insert(decisions)
    return missing


def _go_on(
    resources: Resources,
    applied: Mapping[str, tuple[Group, GraphView]],
    take: Take | None,
    result: Applied = Applied.NOW,
) -> list[Effect]:
    """Claim or enqueue ready tasks, and finish the processes without open tasks.

    Args:
        resources: Connections.
        applied: The applied group and its updated graph, by process id.
        take: Claims some of the ready tasks for the caller.
        result: The result that the effects report.
    """
    if not applied:
        return []
    ready = [Ready(group, _ready(key, group, view), view.epoch) for key, (group, view) in applied.items() if view.ready]
    claimed = take([tasks for tasks in ready if tasks.actors]) if take is not None else ()
    claimed_ids = {decision.id for decision in claimed}
    enqueue(resources, [key for tasks in ready for key in tasks.actors if key not in claimed_ids])
    complete = {key: (group, view) for key, (group, view) in applied.items() if view.complete}
    ended = _finish(resources, complete) if complete else {}
    return [
        Effect(group, result, size=0 if view.complete else view.size, complete=key in ended)
        for key, (group, view) in applied.items()
    ]


def _ready(process_id: str, group: Group, view: GraphView) -> dict[str, str]:
    """Return {ready decision: its actor}. The actors come from the group's dependents and children.

    The group's own tasks are left out. A task that was already claimed on the spot is included, in case a failover
    rolled back that claim; otherwise enqueuing it changes nothing.
    """
    ended_now, actors = {ended.task.task_id for ended in group}, dict[str, str]()
    for ended in group:
        actors |= ended.task.dependents
        actors |= {child.id: child.actor for child in ended.decision.children}
    return {record_id(process_id, task): actors[task] for task in view.ready if task not in ended_now}


def _finish(resources: Resources, complete: Mapping[str, tuple[Group, GraphView]]) -> dict[str, bool]:
    """Finish processes whose graphs have no open tasks, unless the graph lacks scheduled tasks.

    Another program may have removed tasks from such a graph. Finishing its process would hide them.
    """
    doubtful = {key: view.finished for key, (group, view) in complete.items() if not _are_all(group)}
    counts = resources.store.decisions.counts(list(doubtful))
    lacking = {key for key, finished in doubtful.items() if counts[key] > finished and not is_whole(resources, key)}
    wanted = {
        key: Complete(view.epoch, _known_values(group), _type_of(group) if key not in doubtful else None)
        for key, (group, view) in complete.items()
        if key not in lacking
    }
    return finish_processes(resources, wanted) if wanted else {}


def _are_all(group: Group) -> bool:
    """Return whether the group certainly holds all tasks of its process."""
    scheduled = {child.id for ended in group for child in ended.decision.children}
    scheduled |= {ended.task.task_id for ended in group if ended.task.parent is None}
    return scheduled == {ended.task.task_id for ended in group}


def _type_of(group: Group) -> str | None:
    """Return the process type, which is the start task's actor, or None if a task was restarted or the start task is
    absent."""
    if any(ended.decision.restarts for ended in group):
        return None
    return next((ended.decision.actor for ended in group if ended.task.parent is None), None)


def _known_values(group: Group) -> dict[str, Outcome]:
    """Return outcomes by task id for decisions whose values are in memory. When decisions are applied again, values are
    not read."""
    outcomes = {ended.decision.task_id: ended.decision.outcome for ended in group}
    return {task: outcome for task, outcome in outcomes.items() if outcome is not None and outcome.value is not None}


def _finished(ended: Ended) -> Finished:
    outcome = ended.decision.outcome
    return Finished(
        task=ended.task.task_id,
        children={child.id: child.deps for child in ended.decision.children},
        dependents=ended.task.dependents,
        waits=outcome.waits if outcome else (),
    )


def _apply_finished(resources: Resources, group: Group, take: Take | None) -> list[Effect]:
    process_id, epoch = _process_of(group), _epoch_of(group)
    try:
        views, missing, doubtful = _apply_graphs(resources, [group])
    except RecordTooLarge:
        return [_break_outgrown(resources, group)]
    if doubtful and _is_over(resources, group):
        return [Effect(group, Applied.STALE)]  # `_is_over` has noted the rejection
    if views:
        return _go_on(resources, {process_id: (group, views[process_id])}, take)
    result_if_applied, finished = Applied.RESTORED if missing else Applied.BEFORE, [_finished(ended) for ended in group]
    view = resources.store.graphs.view(process_id, finished)
    if len(group) == 1:
        return _apply_unknown(resources, group, view, take, result_if_applied)
    if view is not None and view.epoch == epoch and view.applied:
        return _go_on(resources, {process_id: (group, view)}, take, result_if_applied)
    return [effect for part in _apart(resources, group) for effect in _apply_finished(resources, part, take)]


def _is_over(resources: Resources, group: Group) -> bool:
    """Return whether the process is gone, aborted or in a later epoch than the group.

    If so, discard the children that were just inserted and note the rejection for each decision.
    """
    process = there(resources, [_process_of(group)]).get(_process_of(group))
    if process is not None and process.epoch <= _epoch_of(group):
        return False
    for ended in group:
        guard = Guard.GONE if process is None else Guard.EPOCH
        note(resources, Step.APPLY, guard, ended.decision.actor, ended.decision.id)
        resources.store.redos.discard(process.epoch if process is not None else None, ended.decision)
    return True


def _apart(resources: Resources, group: Group) -> Sequence[Group]:
    """Split a group that can't be applied at once: into the tasks that are open in the graph and the others, or into
    single tasks."""
    open_tasks = resources.store.graphs.open_among(
        _process_of(group), _epoch_of(group), [ended.task.task_id for ended in group]
    )
    parts = [[ended for ended in group if (ended.task.task_id in open_tasks) == is_open] for is_open in (True, False)]
    return parts if all(parts) else [[ended] for ended in group]


def _apply_unknown(
    resources: Resources, group: Group, view: GraphView | None, take: Take | None, result_if_applied: Applied
) -> list[Effect]:
    """Handle one decision that its graph did not accept.

    Args:
        resources: Connections.
        group: The single decision.
        view: The current graph, or None if it is missing.
        take: Claims some of the ready tasks for the caller.
        result_if_applied: The result to report if the decision was applied before.
    """
    (ended,), applied, process_id = group, result_if_applied, _process_of(group)
    was_rebuilt = rebuild_graph(resources, process_id) if view is None else False
    if view is not None and view.complete and not view.applied:
        was_rebuilt = bool(made_whole(resources, process_id))  # the task is missing from the graph
    if was_rebuilt:  # from all decisions, including this one
        view, applied = resources.store.graphs.view(process_id, [_finished(ended)]), Applied.RESTORED
    if view is None or view.epoch > ended.decision.epoch:
        guard = Guard.GONE if view is None else Guard.EPOCH
        note(resources, Step.APPLY, guard, ended.decision.actor, ended.decision.id)
        return [Effect(group, Applied.STALE)]
    # The parent is not applied yet, or the graph was rebuilt a moment ago, or the new epoch's graph does not exist yet.
    if view.epoch < ended.decision.epoch or not view.applied:
        resources.store.decisions.apply_later(ended.decision.id, resources.settings.apply_timeout)
        return [Effect(group, Applied.NOT_YET)]
    return _go_on(resources, {process_id: (group, view)}, take, applied)


def _break_outgrown(resources: Resources, group: Group) -> Effect:
    """Break the process because its graph would exceed MongoDB's document size. Otherwise the apply would be retried
    forever."""
    process_id, epoch = _process_of(group), _epoch_of(group)
    for ended in group:
        resources.store.graphs.fail(process_id, epoch, ended.task.task_id, ended.decision.restarts)
    broken = break_process(resources, process_id, epoch, too_large("graph"))
    return Effect(group, Applied.NOW if broken else Applied.BEFORE)
