"""A task that ended with an error: its process is broken, and the task is listed for an operator.

    graph: failed → interruption → process: running → broken

The graph stays open for what does not depend on the task. Whatever was restarted meanwhile is left alone: the graph
compares the task's `restarts`, the process how often it was `reopened`, which is read before the graph is asked. A
process is reopened only while nothing in its graph has failed, so one that could be broken here had this failure.
"""

from __future__ import annotations

from recovery.engine.apply.rebuild import rebuild_graph
from recovery.engine.end.breaking import break_off, unlist_past_lives
from recovery.engine.resources import Resources
from recovery.engine.steps import Applied
from recovery.records import UNENDED_PROCESSES, Decision, Process
from recovery.store import Finished


def interrupt(resources: Resources, decision: Decision) -> Applied:
    """Apply a failed decision. May be run again: it then changes nothing."""
    assert decision.outcome is not None and decision.outcome.error is not None
    store, task = resources.store, decision.task_id
    process = store.processes.brief(decision.process_id)
    if process is None or process.epoch != decision.epoch or process.state not in UNENDED_PROCESSES:
        return Applied.STALE
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
        return interrupt(resources, decision) if rebuild_graph(resources, decision.process_id) else Applied.STALE
    if view.epoch < decision.epoch or (view.epoch == decision.epoch and not view.registered):
        store.decisions.apply_later(decision.id, resources.settings.apply_timeout)
        return Applied.NOT_YET
    return Applied.STALE
