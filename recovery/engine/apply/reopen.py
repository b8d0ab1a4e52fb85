"""Reopens graphs and processes after a restart.

    reopen         tasks were restarted: called by the restart itself
    reopen_for     the same for a restarted task that is about to be applied
    reopen_whole   a process that broke as a whole is set running: none of its tasks is requeued

Each writes in this order:

    graph: no longer failed → process, if none of its tasks is failed: broken → running → check the graph again
    → remove from the list of interruptions

If a restart is cut off after its commit point, the restarted task completes it: the task is live and will run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from recovery import metrics
from recovery.engine.apply.interruption import interrupt
from recovery.engine.apply.rebuild import finish_whole, rebuild_graphs
from recovery.engine.end.breaking import unlist_past_lives
from recovery.engine.isolation import batch_or_each
from recovery.engine.resources import Resources
from recovery.records import Decision, Process, ProcessState
from recovery.records.ids import record_id, split_record_id
from recovery.store import Restarted


def reopen(
    resources: Resources, restarted: Sequence[Restarted], seen: Mapping[str, Process], *, whole: bool = True
) -> int:
    """Reopen the graphs and processes of restarted tasks.

    Args:
        resources: Connections.
        restarted: The restarted tasks.
        seen: The processes as they were before the restart, by process id. A process that was reopened, broken again or
            aborted since then is left alone.
        whole: Whether processes that broke as a whole are reopened too.

    Returns:
        The number of processes that run again.
    """
    store = resources.store
    if not restarted:
        return 0
    damaged = set[str]()
    if lost := store.graphs.absent(task.process_id for task in restarted):
        # After the commit point, a graph that can't be rebuilt must not block the rest of an operator's batch.
        batch_or_each(sorted(lost), lambda page: len(rebuild_graphs(resources, page)))
        damaged = {key for key in store.graphs.absent(lost) if _is_broken(seen.get(key))}
    store.restarts.reopen_graphs(restarted)
    broken = {task.process_id for task in restarted if _is_broken(seen.get(task.process_id), whole)}
    running, unfailed = 0, set[str]()
    if broken and (
        unfailed := store.restarts.without_failure([task for task in restarted if task.process_id in broken])
    ):
        running = store.restarts.reopen_processes([seen[process_id] for process_id in unfailed])
        _break_failed_again(resources, unfailed)
    # A task whose graph could not be rebuilt stays listed until its apply reopens it.
    reopened = [task for task in restarted if task.process_id not in damaged]
    start_processes = {task.process_id for task in reopened if _is_start(task, seen.get(task.process_id))}
    store.interruptions.remove_before(
        (task.id, task.restarts, _life(seen.get(task.process_id)))
        for task in reopened
        if task.process_id not in start_processes
    )
    if unlisted := unfailed | start_processes:
        unlist_past_lives(resources, unlisted)
    return running


def reopen_for(resources: Resources, decisions: Sequence[Decision]) -> None:
    """Reopen the graph and process for restarted decisions of one process that are about to be applied, in case their
    restart was cut off."""
    restarted = [
        Restarted(decision.id, decision.restarts, decision.epoch) for decision in decisions if decision.restarts
    ]
    process = resources.store.processes.brief(restarted[0].process_id)
    # Only an operator reopens a process that broke as a whole meanwhile, for example by its timeout.
    reopen(resources, restarted, {process.id: process} if process is not None else {}, whole=False)


def reopen_whole(resources: Resources, processes: Sequence[Process], listed: Mapping[str, int]) -> int:
    """Set processes that broke as a whole running again: broken → running. Return how many run again.

    Their tasks continued meanwhile, so a process may already be complete. A permanent cause, such as a cycle, is found
    again and breaks the process again.

    Args:
        resources: Connections.
        processes: The broken processes as they were read.
        listed: The `restarts` of their listed interruptions, by record id.
    """
    store, ids = resources.store, [process.id for process in processes]
    if not processes:
        return 0
    running = store.restarts.reopen_processes(processes)
    metrics.OPERATIONS.labels("set running").inc(running)
    _break_failed_again(resources, ids)
    start_records = {record_id(process.id, process.start_task) for process in processes}
    seen = {process.id: process for process in processes}
    store.interruptions.remove_before(
        (key, restarts + 1, _life(seen.get(split_record_id(key)[0])))
        for key, restarts in listed.items()
        if key not in start_records
    )
    unlist_past_lives(resources, ids)
    epochs = {process.id: process.epoch for process in processes}
    ended = finish_whole(resources, {key: epochs[key] for key in store.graphs.complete(ids)})
    store.clear_graph_deadlines(list(ended))
    return running


def _break_failed_again(resources: Resources, process_ids: Iterable[str]) -> None:
    """Break processes of which a task failed between the check of the graph and the reopening.

    The task's own apply found the process broken and did nothing more.
    """
    failed = resources.store.restarts.failed(process_ids)
    if failed:
        batch_or_each(list(failed.items()), lambda page: _break_again(resources, dict(page)), lambda item: item[0])


def _break_again(resources: Resources, failed: Mapping[str, Sequence[str]]) -> int:
    keys = [record_id(process_id, task) for process_id, tasks in failed.items() for task in tasks]
    decisions = [decision for decision in resources.store.decisions.briefs(keys).values() if decision.failed]
    for decision in decisions:
        interrupt(resources, decision)
    return len(decisions)


def _is_broken(process: Process | None, whole: bool = True) -> bool:
    """Return whether a process is broken: for a task or, if `whole`, also as a whole."""
    if process is None or process.state is not ProcessState.BROKEN:
        return False
    return whole or (process.error is not None and process.error.task is not None)


def _is_start(task: Restarted, process: Process | None) -> bool:
    """Return whether the interruption listed under this task's id may be that of the process as a whole."""
    return process is not None and task.task == process.start_task


def _life(process: Process | None) -> int:
    """Return how often the process had been reopened when it was read."""
    return process.times_reopened if process is not None else 0
