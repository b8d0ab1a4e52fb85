"""A task that ended with an error: its process is broken, and the task is listed for an operator.

    graph: failed → interruption → process: running → broken

The graph stays open for what does not depend on the task. Whatever was restarted meanwhile is left alone: the graph
compares the task's `restarts`, the process how often it was `reopened`, which is read before the graph is asked. A
process is reopened only while nothing in its graph has failed, so one that could be broken here had this failure.

It is listed again (`list_again`) if the list was lost, or a part of it: as it was listed when it broke, from the failed
decision or, where the process broke for something else, from the process's own error.
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
    """Apply a failed decision. May be run again: it then changes nothing."""
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
    """What was listed while it was restarted is listed no longer: who did that may be through already."""
    restarts = decision.restarts
    if resources.store.graphs.is_failed(process.id, decision.task_id, restarts):
        return
    if decision.task_id == process.start_task:
        # The same name stands for the process as a whole, which may be broken still.
        unlist_past_lives(resources, [process.id])
    else:
        resources.store.interruptions.remove_before([(decision.id, (restarts or 0) + 1, process.times_reopened)])


def _unknown(resources: Resources, decision: Decision) -> Applied:
    """Why the graph does not take a failure."""
    store = resources.store
    view = store.graphs.view(decision.process_id, [Finished(decision.task_id, {}, ())])
    if view is None:
        # Made from the decisions, this one among them.
        made = rebuild_graph(resources, decision.process_id)
        return interrupt(resources, decision) if made else _rejected(resources, decision, Guard.GONE)
    if view.epoch < decision.epoch or (view.epoch == decision.epoch and not view.registered):
        store.decisions.apply_later(decision.id, resources.settings.apply_timeout)
        return Applied.NOT_YET
    return _rejected(resources, decision, Guard.EPOCH)  # of the process, or of the task: restarted since


def _rejected(resources: Resources, decision: Decision, guard: Guard) -> Applied:
    note(resources, Step.INTERRUPT, guard, decision.actor, decision.id)
    return Applied.STALE


UNKNOWN = "Unknown"
"""Kind of the error of what somebody broke, of which nobody has kept why."""


def list_again(resources: Resources, record: str) -> bool:
    """List what a broken process has failed for, or can't go on for, under this task, `P/T`; False if it is not broken
    for that, or no longer, or is listed."""
    store = resources.store
    process_id, task = split_record_id(record)
    process = store.processes.find_committed(process_id)
    if process is None or process.state is not ProcessState.BROKEN:
        return False
    if store.graphs.absent([process_id]):
        rebuild_graph(resources, process_id)  # it tells what failed
    decision = store.decisions.briefs([record]).get(record)
    as_whole = task == process.start_task and (process.error is None or process.error.task is None)
    if decision is not None and decision.state is DecisionState.FINISHED and decision.failed and not as_whole:
        return _list_failed(resources, process, decision)
    if not as_whole and not _given_up(resources, process, task, decision):
        return False
    return _list_process(resources, process, task, decision)


def _list_failed(resources: Resources, process: Process, decision: Decision) -> bool:
    """For a task that failed."""
    assert decision.outcome is not None and decision.outcome.error is not None
    store, restarts = resources.store, decision.restarts
    if decision.epoch != process.epoch or not store.graphs.is_failed(process.id, decision.task_id, restarts):
        return False
    error = decision.outcome.error.evolve(task=decision.task_id, actor=decision.actor)
    listed = list_interruption(resources, process, error, attempt=decision.attempts, restarts=restarts or 0)
    remove_superseded(resources, [process.id], error)
    unlist_stale(resources, process, decision)
    return listed


def _given_up(resources: Resources, process: Process, task: str, decision: Decision | None) -> bool:
    """Whether a task has not failed, and its process can't go on for it or is broken for it alone."""
    graph = resources.store.graphs.get(process.id)
    restarts = (decision.restarts if decision is not None else None) or 0
    if graph is None or not graph.failed:
        return process.error is not None and process.error.task == task
    return task in graph.failed and restarts <= graph.restarted.get(task, 0)


def _list_process(resources: Resources, process: Process, task: str, decision: Decision | None) -> bool:
    """For the process as a whole, or for a task that it can't go on for and that has not failed."""
    store, restarts = resources.store, process.times_reopened
    error = process.error
    if error is None or (error.task or process.start_task) != task:
        error = ErrorInfo(kind=UNKNOWN, message="why it can't go on is not known any more", task=task)
    if error.task is not None:
        restarts = max(restarts, (decision.restarts if decision is not None else None) or 0)
    listed = list_interruption(resources, process, error, restarts=restarts)
    remove_superseded(resources, [process.id], error)
    now = store.processes.brief(process.id)
    if now is None or now.state is not ProcessState.BROKEN or now.reopened != process.reopened:
        # Set running since it was read, and who did that may be through already.
        if task == process.start_task:
            unlist_past_lives(resources, [process.id])
        else:
            life = process.times_reopened
            store.interruptions.remove_before([(record_id(process.id, task), restarts + 1, life)])
    return listed
