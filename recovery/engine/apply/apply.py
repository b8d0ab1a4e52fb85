"""Apply: finished decisions' effects reach the graph (docs/records.md, 'The order of writes').

    insert children → graph: move the tasks, add children and links → enqueue what is ready
    → if nothing is open, finish the process

Every step may run twice; cut off anywhere, the decisions still have their deadlines, and DECISION_NOT_APPLIED
applies them again. `applier` decides when to apply, and takes the deadlines off.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from recovery.engine.apply.complete import are_all, finish_process, known_values, lacks_tasks, too_large
from recovery.engine.apply.interrupt import interrupt
from recovery.engine.apply.rebuild import is_whole, made_whole, rebuild_graph
from recovery.engine.apply.reopen import reopen_for
from recovery.engine.end.breaking import break_process
from recovery.engine.end.fencing import there
from recovery.engine.resources import Resources
from recovery.engine.steps import Applied, Effect, Ended, Take, enqueue, records_of_children
from recovery.errors import RecordTooLarge
from recovery.records import Outcome
from recovery.records.ids import record_id, split_record_id
from recovery.store import Finished, GraphView, batches

CHILDREN = 5000
"""Children whose records are made at once: each takes some 3 kB, and a task may have a hundred thousand."""


def apply(resources: Resources, together: Sequence[Ended], take: Take | None = None) -> Effect | None:
    """Apply decisions of one process and epoch in one update of the graph.

    None: not all of several could be applied at once; apply them one by one. A failed one comes alone. Of the tasks
    that become ready `take` may claim one for the caller; the others are enqueued.
    """
    first = together[0]
    if restarted := [ended.decision for ended in together if ended.decision.restarts]:
        reopen_for(resources, restarted)
    if first.failed:
        return Effect(interrupt(resources, first.decision))
    missing = 0
    for ended in together:
        for children in batches(ended.decision.children, CHILDREN):
            tasks, decisions = records_of_children(ended.task, ended.decision, children)
            missing += resources.store.tasks.insert(tasks) + resources.store.decisions.insert(decisions)
    finished = [finished_of(ended) for ended in together]
    try:
        view = resources.store.graphs.apply(first.process_id, first.decision.epoch, finished)
    except RecordTooLarge:
        return _outgrown(resources, together)
    if _is_of_a_life_before(resources, together):
        return Effect(Applied.STALE)
    if view is not None:
        return _go_on(resources, together, view, take, Applied.NOW)
    if len(together) > 1:
        view = resources.store.graphs.view(first.process_id, finished)
        if view is None or view.epoch != first.decision.epoch or not view.applied:
            return None
        return _go_on(resources, together, view, take, Applied.RESTORED if missing else Applied.BEFORE)
    return _applied_before(resources, first, finished[0], take, Applied.RESTORED if missing else Applied.BEFORE)


def _is_of_a_life_before(resources: Resources, together: Sequence[Ended]) -> bool:
    """Whether the process is done again since these ended, or aborted, or gone: then what they had scheduled, and was
    made just now, is taken back. Looked at after it was made and before anything is enqueued: whoever begins later
    finds it."""
    if not any(ended.decision.children for ended in together):
        return False
    first = together[0]
    standing = resources.store.processes.standing([first.process_id]).get(first.process_id)
    if standing is not None and standing.mark is not None:
        standing = there(resources, [first.process_id]).get(first.process_id)
    if standing is not None and standing.epoch <= first.decision.epoch:
        return False
    for ended in together:
        resources.store.redos.discard(standing.epoch if standing is not None else None, ended.decision)
    return True


def _applied_before(
    resources: Resources, ended: Ended, finished: Finished, take: Take | None, applied: Applied
) -> Effect:
    view = resources.store.graphs.view(ended.process_id, [finished])
    if view is None and rebuild_graph(resources, ended.process_id):
        view = resources.store.graphs.view(ended.process_id, [finished])  # made from the decisions, this one among them
        applied = Applied.RESTORED
    elif view is not None and view.complete and not view.applied and made_whole(resources, ended.process_id):
        view = resources.store.graphs.view(ended.process_id, [finished])  # it was lost from the graph
        applied = Applied.RESTORED
    if view is None or view.epoch > ended.decision.epoch:
        return Effect(Applied.STALE)
    # Its parent is not applied, or the graph was made anew a moment ago, or is still to be for a new epoch.
    if view.epoch < ended.decision.epoch or not view.applied:
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
    taken = take(with_actors(together, ready), view.epoch) if take and ready else None
    enqueue(resources, [key for key in ready if taken is None or key != taken.id])
    if view.complete:
        # Of what is applied again the value was not read.
        known = known_values(together)
        return Effect(applied, taken, complete=_finish(resources, together, view, known) is not None)
    return Effect(applied, taken, view.size)


def _finish(
    resources: Resources, together: Sequence[Ended], view: GraphView, known: Mapping[str, Outcome]
) -> bool | None:
    process_id = together[0].process_id
    if (
        not are_all(together)
        and lacks_tasks(resources, process_id, view.finished)
        and not is_whole(resources, process_id)
    ):
        return None
    return finish_process(resources, process_id, view.epoch, known)


def _outgrown(resources: Resources, together: Sequence[Ended]) -> Effect:
    """The graph can't take these tasks: break the process, or it would be tried for ever."""
    process_id, epoch = together[0].process_id, together[0].decision.epoch
    for ended in together:
        resources.store.graphs.fail(process_id, epoch, ended.task.task_id, ended.decision.restarts)
    broken = break_process(resources, process_id, epoch, too_large("graph"))
    return Effect(Applied.NOW if broken else Applied.BEFORE)


def finished_of(ended: Ended) -> Finished:
    """A task that ended, as its graph has to learn it."""
    outcome = ended.decision.outcome
    return Finished(
        task=ended.task.task_id,
        children={child.id: child.deps for child in ended.decision.children},
        dependents=ended.task.dependents,
        waits=outcome.waits if outcome else (),
    )


def with_actors(together: Sequence[Ended], ready: Sequence[str]) -> dict[str, str]:
    """{ready decision: its actor}, as those say that it waited for, or that scheduled it."""
    actors: dict[str, str] = {}
    for ended in together:
        actors |= ended.task.dependents
        actors |= {child.id: child.actor for child in ended.decision.children}
    return {key: actors[split_record_id(key)[1]] for key in ready}
