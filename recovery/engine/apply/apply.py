"""Apply: finished decisions' effects reach their graphs (docs/records.md, 'The order of writes').

    insert children → graphs: move the tasks, add children and links → claim or enqueue what is ready
    → finish the processes of which nothing is open

Groups of decisions, each of one process and epoch, take each of these steps together: one round trip for all. Every
step may run twice; cut off anywhere, the decisions still have their deadlines, and DECISION_NOT_APPLIED applies them
again. A group that is not as it should be (a task failed or was restarted, its epoch is over, it was applied before,
its graph is gone, or was spoilt) goes the same way by itself, with a look at what is wrong. `outbox` decides when to
apply.
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
"""Children whose records are made at once: each takes some 3 kB, and a task may have a hundred thousand."""

Group = Sequence[Ended]
"""Finished decisions of one process and epoch."""


@dataclass(frozen=True, slots=True)
class Ready:
    """What became ready by a group: {decision: its actor}, in this epoch."""

    group: Group
    actors: Mapping[str, str]
    epoch: int


Take = Callable[[Sequence[Ready]], Sequence[Decision]]
"""Claims for the caller some of what became ready, at most one for each process."""


@dataclass(frozen=True, slots=True)
class Effect:
    """What came of an apply of these. `size` is that of their graph, in bytes; 0 if it is complete or was not changed.
    With `complete` the process has ended, and its graph's deadline is to be cleared."""

    group: Group
    applied: Applied
    size: int = 0
    complete: bool = False


def apply_together(
    resources: Resources, groups: Sequence[Group], take: Take | None = None
) -> tuple[list[Effect], list[Group]]:
    """Apply groups of decisions as far as all is as it should be.

    Args:
        resources: Connections.
        groups: The decisions.
        take: Claims some of the tasks that become ready for the caller. The others are enqueued.

    Returns:
        What came of those that are applied, and the groups that are to be applied by themselves (`apply`), which find
        done what was done of them here.
    """
    regular = {_process_of(group): group for group in groups if _is_regular(group)}
    if not regular:
        return [], list(groups)
    views, _, away = _apply_graphs(resources, list(regular.values()))
    applied = {key: (regular[key], view) for key, view in views.items() if key not in away}
    effects = _go_on(resources, applied, take)
    done = {id(effect.group) for effect in effects}
    return effects, [group for group in groups if id(group) not in done]


def apply(resources: Resources, group: Group, take: Take | None = None) -> list[Effect]:
    """Apply decisions of one process and epoch, whatever is wrong with them: one effect, or several, each of a part of
    the group."""
    if restarted := [ended.decision for ended in group if ended.decision.restarts]:
        reopen_for(resources, restarted)
    left = [ended for ended in group if not ended.failed]
    effects = _apply_finished(resources, left, take) if left else []
    return effects + [Effect([one], interrupt(resources, one.decision)) for one in group if one.failed]


def _process_of(group: Group) -> str:
    return group[0].process_id


def _epoch_of(group: Group) -> int:
    return group[0].decision.epoch


def _is_regular(group: Group) -> bool:
    return not any(ended.failed or ended.decision.restarts for ended in group)


def _apply_graphs(resources: Resources, groups: Sequence[Group]) -> tuple[dict[str, GraphView], int, set[str]]:
    """Write the children, then the graphs: {process: its graph}, of those that are applied; how many records of
    children were not there; and the processes that are to be looked at, since they may be gone (`_is_over`)."""
    missing = _insert_children(resources, groups)
    ended = {_process_of(group): (_epoch_of(group), [_finished(one) for one in group]) for group in groups}
    views = resources.store.graphs.apply(ended)
    # Looked at after children were made, and before anything is enqueued: whoever removes it later finds them.
    parents = {_process_of(group): _epoch_of(group) for group in groups if any(one.decision.children for one in group)}
    standing = resources.store.processes.standing(parents) if parents else {}
    away = {
        key
        for key, epoch in parents.items()
        if (one := standing.get(key)) is None or one.mark is not None or one.epoch > epoch
    }
    return views, missing, away


def _insert_children(resources: Resources, groups: Sequence[Group]) -> int:
    missing, store = 0, resources.store
    some_tasks, some_decisions = [], []
    for ended in (ended for group in groups for ended in group):
        for children in batches(ended.decision.children, CHILDREN):
            tasks, decisions = records_of_children(ended.task, ended.decision, children)
            some_tasks += tasks
            some_decisions += decisions
            if len(some_tasks) >= CHILDREN:
                missing += store.tasks.insert(some_tasks) + store.decisions.insert(some_decisions)
                some_tasks, some_decisions = [], []
    if some_tasks:
        missing += store.tasks.insert(some_tasks) + store.decisions.insert(some_decisions)
    return missing


def _go_on(
    resources: Resources,
    applied: Mapping[str, tuple[Group, GraphView]],
    take: Take | None,
    came_of: Applied = Applied.NOW,
) -> list[Effect]:
    """Claim or enqueue what is ready, and finish processes of which nothing is open: {process: what was applied to its
    graph, and that}."""
    if not applied:
        return []
    ready = [Ready(group, _ready(key, group, view), view.epoch) for key, (group, view) in applied.items() if view.ready]
    claimed = take([one for one in ready if one.actors]) if take is not None else ()
    taken = {one.id for one in claimed}
    enqueue(resources, [key for one in ready for key in one.actors if key not in taken])
    complete = {key: (group, view) for key, (group, view) in applied.items() if view.complete}
    over = _finish(resources, complete) if complete else {}
    return [
        Effect(group, came_of, size=0 if view.complete else view.size, complete=key in over)
        for key, (group, view) in applied.items()
    ]


def _ready(process_id: str, group: Group, view: GraphView) -> dict[str, str]:
    """{ready decision: its actor}, as those say that it waited for, or that scheduled it. Not what has ended by now:
    but what was claimed on the spot is, in case a failover took that claim back; the guard tells."""
    ended_now, actors = {ended.task.task_id for ended in group}, dict[str, str]()
    for ended in group:
        actors |= ended.task.dependents
        actors |= {child.id: child.actor for child in ended.decision.children}
    return {record_id(process_id, task): actors[task] for task in view.ready if task not in ended_now}


def _finish(resources: Resources, complete: Mapping[str, tuple[Group, GraphView]]) -> dict[str, bool]:
    """Finish processes whose graphs have nothing open, unless they lack tasks that there are: somebody spoilt such a
    graph, and the end of its process would hide them."""
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
    """Whether these are all the tasks of their process, for certain."""
    scheduled = {child.id for ended in group for child in ended.decision.children}
    scheduled |= {ended.task.task_id for ended in group if ended.task.parent is None}
    return scheduled == {ended.task.task_id for ended in group}


def _type_of(group: Group) -> str | None:
    """The process type, which is the start task's actor; None where something was done before."""
    if any(ended.decision.restarts for ended in group):
        return None
    return next((ended.decision.actor for ended in group if ended.task.parent is None), None)


def _known_values(group: Group) -> dict[str, Outcome]:
    """{task: its outcome}, of those whose values are at hand: of what is applied again the value was not read."""
    outcomes = {ended.decision.task_id: ended.decision.outcome for ended in group}
    return {task: one for task, one in outcomes.items() if one is not None and one.value is not None}


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
        views, missing, away = _apply_graphs(resources, [group])
    except RecordTooLarge:
        return [_outgrown(resources, group)]
    if away and _is_over(resources, group):
        return [Effect(group, Applied.STALE)]  # noted there
    if views:
        return _go_on(resources, {process_id: (group, views[process_id])}, take)
    before, finished = Applied.RESTORED if missing else Applied.BEFORE, [_finished(one) for one in group]
    view = resources.store.graphs.view(process_id, finished)
    if len(group) == 1:
        return _apply_unknown(resources, group, view, take, before)
    if view is not None and view.epoch == epoch and view.applied:
        return _go_on(resources, {process_id: (group, view)}, take, before)
    return [effect for some in _apart(resources, group) for effect in _apply_finished(resources, some, take)]


def _is_over(resources: Resources, group: Group) -> bool:
    """Whether the process is done again since these ended, or aborted, or gone: then what they had scheduled, and was
    made just now, is taken back."""
    standing = there(resources, [_process_of(group)]).get(_process_of(group))
    if standing is not None and standing.epoch <= _epoch_of(group):
        return False
    for ended in group:
        guard = Guard.GONE if standing is None else Guard.EPOCH
        note(resources, Step.APPLY, guard, ended.decision.actor, ended.decision.id)
        resources.store.redos.discard(standing.epoch if standing is not None else None, ended.decision)
    return True


def _apart(resources: Resources, group: Group) -> Sequence[Group]:
    """In what parts a group can be applied, which can't be at once: what is open in its graph, and what is not."""
    tasks = resources.store.graphs.open_among(_process_of(group), _epoch_of(group), [one.task.task_id for one in group])
    parts = [[one for one in group if (one.task.task_id in tasks) == is_open] for is_open in (True, False)]
    return parts if all(parts) else [[one] for one in group]


def _apply_unknown(
    resources: Resources, group: Group, view: GraphView | None, take: Take | None, before: Applied
) -> list[Effect]:
    """Go on with one decision that its graph, which looks so, did not take."""
    (ended,), applied, process_id = group, before, _process_of(group)
    made = rebuild_graph(resources, process_id) if view is None else False
    if view is not None and view.complete and not view.applied:
        made = bool(made_whole(resources, process_id))  # it was lost from the graph
    if made:  # from the decisions, this one among them
        view, applied = resources.store.graphs.view(process_id, [_finished(ended)]), Applied.RESTORED
    if view is None or view.epoch > ended.decision.epoch:
        guard = Guard.GONE if view is None else Guard.EPOCH
        note(resources, Step.APPLY, guard, ended.decision.actor, ended.decision.id)
        return [Effect(group, Applied.STALE)]
    # Its parent is not applied, or the graph was made anew a moment ago, or is still to be for a new epoch.
    if view.epoch < ended.decision.epoch or not view.applied:
        resources.store.decisions.apply_later(ended.decision.id, resources.settings.apply_timeout)
        return [Effect(group, Applied.NOT_YET)]
    return _go_on(resources, {process_id: (group, view)}, take, applied)


def _outgrown(resources: Resources, group: Group) -> Effect:
    """The graph can't take these tasks: break the process, or it would be tried for ever."""
    process_id, epoch = _process_of(group), _epoch_of(group)
    for ended in group:
        resources.store.graphs.fail(process_id, epoch, ended.task.task_id, ended.decision.restarts)
    broken = break_process(resources, process_id, epoch, too_large("graph"))
    return Effect(group, Applied.NOW if broken else Applied.BEFORE)
