"""Handles a task that ended with an error: its process breaks, and the task is listed as interrupted for an operator.

    graph: failed → interruption → process: running → broken

The graph stays open for tasks that do not depend on the failed one. A task or process that was restarted meanwhile is
left alone: the graph compares the task's `restarts`, and the process its `reopened`, which is read before the graph is
updated. A process is reopened only while no task in its graph is failed, so a process that breaks here has this
failure.

If the list of interruptions was lost, wholly or in part, `list_again` restores an entry: from the failed decision, or
from the process's own error if the process broke for another reason.
"""

from __future__ import annotations

from recovery.engine.apply.rebuild import rebuild_graph
from recovery.engine.end.breaking import break_off, list_interruption, remove_superseded, unlist_past_lives
from recovery.engine.rejections import Guard, Step, note
from recovery.engine.resources import Resources
from recovery.engine.steps import Applied
from recovery.records import UNENDED_PROCESSES, Decision, DecisionState, ErrorInfo, Process, ProcessState
from recovery.records.ids import record_id, split_record_id
from recovery.store import Finished


def interrupt(resources: Resources, decision: Decision) -> Applied:
    """Apply a failed decision. Running it again changes nothing."""
    assert decision.outcome is not None and decision.outcome.error is not None
    store, task = resources.store, decision.task_id
    process = store.processes.brief(decision.process_id)
    if process is None or process.epoch != decision.epoch or process.state not in UNENDED_PROCESSES:
        guard = Guard.GONE if process is None else Guard.EPOCH if process.epoch != decision.epoch else Guard.STATE
        return _rejected(resources, decision, guard)
    if not store.graphs.fail(process.id, decision.epoch, task, decision.restarts):
        return _unknown(resources, decision)
    error = decision.outcome.error.evolve(task=task, actor=decision.actor)
    if break_off(resources, process, error, attempt=decision.attempts, restarts=decision.restarts or 0):
        return Applied.NOW
    unlist_stale(resources, process, decision)
    return Applied.BEFORE


def unlist_stale(resources: Resources, process: Process, decision: Decision) -> None:
    """Remove the interruption of a task that was restarted while it was being listed. The restart may already be
    complete and would not remove it."""
    restarts = decision.restarts
    if resources.store.graphs.is_failed(process.id, decision.task_id, restarts):
        return
    if decision.task_id == process.start_task:
        # The process as a whole has the same id, and may still be broken.
        unlist_past_lives(resources, [process.id])
    else:
        resources.store.interruptions.remove_before([(decision.id, (restarts or 0) + 1, process.times_reopened)])


def _unknown(resources: Resources, decision: Decision) -> Applied:
    """Handle a failure that the graph did not accept: rebuild a missing graph, postpone the apply, or reject the
    decision."""
    store = resources.store
    view = store.graphs.view(decision.process_id, [Finished(decision.task_id, {}, ())])
    if view is None:
        # Rebuilt from all decisions, including this one.
        was_rebuilt = rebuild_graph(resources, decision.process_id)
        return interrupt(resources, decision) if was_rebuilt else _rejected(resources, decision, Guard.GONE)
    if view.epoch < decision.epoch or (view.epoch == decision.epoch and not view.registered):
        store.decisions.apply_later(decision.id, resources.settings.apply_timeout)
        return Applied.NOT_YET
    return _rejected(resources, decision, Guard.EPOCH)  # the process has a later epoch, or the task was restarted


def _rejected(resources: Resources, decision: Decision, guard: Guard) -> Applied:
    note(resources, Step.INTERRUPT, guard, decision.actor, decision.id)
    return Applied.STALE


UNKNOWN = "Unknown"
"""Kind of an error whose cause was not kept, after another program changed the process."""


def list_again(resources: Resources, record: str) -> bool:
    """List the interruption of a broken process again, for this task (`P/T`).

    The task either failed, or stands for an error of the process. Return False if the process is not broken for this
    task, is no longer broken, or the interruption is already listed.
    """
    store = resources.store
    process_id, task = split_record_id(record)
    process = store.processes.find_committed(process_id)
    if process is None or process.state is not ProcessState.BROKEN:
        return False
    if store.graphs.absent([process_id]):
        rebuild_graph(resources, process_id)  # the graph records which tasks failed
    decision = store.decisions.briefs([record]).get(record)
    as_whole = task == process.start_task and (process.error is None or process.error.task is None)
    if decision is not None and decision.state is DecisionState.FINISHED and decision.failed and not as_whole:
        return _list_failed(resources, process, decision)
    if not as_whole and not _is_cause(resources, process, task, decision):
        return False
    return _list_process(resources, process, task, decision)


def _list_failed(resources: Resources, process: Process, decision: Decision) -> bool:
    """List the interruption of a failed task."""
    assert decision.outcome is not None and decision.outcome.error is not None
    store, restarts = resources.store, decision.restarts
    if decision.epoch != process.epoch or not store.graphs.is_failed(process.id, decision.task_id, restarts):
        return False
    error = decision.outcome.error.evolve(task=decision.task_id, actor=decision.actor)
    listed = list_interruption(resources, process, error, attempt=decision.attempts, restarts=restarts or 0)
    remove_superseded(resources, [process.id], error)
    unlist_stale(resources, process, decision)
    return listed


def _is_cause(resources: Resources, process: Process, task: str, decision: Decision | None) -> bool:
    """Return whether the process is broken because of this task although the task has no failed decision of its own."""
    graph = resources.store.graphs.get(process.id)
    restarts = (decision.restarts if decision is not None else None) or 0
    if graph is None or not graph.failed:
        return process.error is not None and process.error.task == task
    return task in graph.failed and restarts <= graph.restarted.get(task, 0)


def _list_process(resources: Resources, process: Process, task: str, decision: Decision | None) -> bool:
    """List the interruption of the process as a whole, or of a task that did not fail but keeps the process from
    continuing."""
    store, restarts = resources.store, process.times_reopened
    error = process.error
    if error is None or (error.task or process.start_task) != task:
        error = ErrorInfo(kind=UNKNOWN, message="why it can't go on is not known any more", task=task)
    if error.task is not None:
        restarts = max(restarts, (decision.restarts if decision is not None else None) or 0)
    listed = list_interruption(resources, process, error, restarts=restarts)
    remove_superseded(resources, [process.id], error)
    current = store.processes.brief(process.id)
    if current is None or current.state is not ProcessState.BROKEN or current.reopened != process.reopened:
        # The process was reopened since it was read. That restart may already have removed its interruptions.
        if task == process.start_task:
            unlist_past_lives(resources, [process.id])
        else:
            life = process.times_reopened
            store.interruptions.remove_before([(record_id(process.id, task), restarts + 1, life)])
    return listed
