"""What follows a restart: graphs and processes are reopened. A step of its own, for three who come here.

    reopen         tasks were restarted: by the restart itself
    reopen_for     the same, of a restarted task that is about to be applied
    reopen_whole   a process that broke as a whole is set running: no task of it is queued again

Each in this order:

    graph: not failed → process, if nothing of it is failed: broken → running → look at the graph again → not listed

A restart that was cut off after its commit point is finished by the task, which is live and will be run.
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
    """Reopen the graphs and processes of restarted tasks; how many processes run again.

    `seen` are the processes as they were before: one that was reopened, broken again or aborted since then is left
    alone; and, unless `whole`, one that broke as a whole.
    """
    store = resources.store
    if not restarted:
        return 0
    damaged = set[str]()
    if lost := store.graphs.absent(one.process_id for one in restarted):
        # Past the commit point: one that can't be made must not hold up the others of an operator's batch.
        batch_or_each(sorted(lost), lambda some: len(rebuild_graphs(resources, some)))
        damaged = {key for key in store.graphs.absent(lost) if _is_broken(seen.get(key))}
    store.restarts.reopen_graphs(restarted)
    broken = {one.process_id for one in restarted if _is_broken(seen.get(one.process_id), whole)}
    running, well = 0, set[str]()
    if broken and (well := store.restarts.without_failure([one for one in restarted if one.process_id in broken])):
        running = store.restarts.reopen_processes([seen[process_id] for process_id in well])
        _break_failed_again(resources, well)
    # What could not be reopened stays listed, until its apply can.
    left = [one for one in restarted if one.process_id not in damaged]
    starts = {one.process_id for one in left if _is_start(one, seen.get(one.process_id))}
    store.interruptions.remove_before(
        (one.id, one.restarts, _life(seen.get(one.process_id))) for one in left if one.process_id not in starts
    )
    if lives := well | starts:
        unlist_past_lives(resources, lives)
    return running


def reopen_for(resources: Resources, decisions: Sequence[Decision]) -> None:
    """Reopen for these decisions of one process, which were restarted and are about to be applied: who restarted them
    may have been cut off."""
    restarted = [Restarted(d.id, d.restarts, d.epoch) for d in decisions if d.restarts]
    process = resources.store.processes.brief(restarted[0].process_id)
    # One that broke as a whole meanwhile, for its time-out say, is set running by an operator only.
    reopen(resources, restarted, {process.id: process} if process is not None else {}, whole=False)


def reopen_whole(resources: Resources, processes: Sequence[Process], listed: Mapping[str, int]) -> int:
    """broken → running for processes that broke as a whole; how many. Their tasks went on meanwhile, and they may be
    done. What broke them for good, such as a cycle, is found once more and breaks them again."""
    store, ids = resources.store, [process.id for process in processes]
    if not processes:
        return 0
    running = store.restarts.reopen_processes(processes)
    metrics.OPERATIONS.labels("set running").inc(running)
    _break_failed_again(resources, ids)
    starts = {record_id(process.id, process.start_task) for process in processes}
    seen = {process.id: process for process in processes}
    store.interruptions.remove_before(
        (key, restarts + 1, _life(seen.get(split_record_id(key)[0])))
        for key, restarts in listed.items()
        if key not in starts
    )
    unlist_past_lives(resources, ids)
    epochs = {process.id: process.epoch for process in processes}
    over = finish_whole(resources, {key: epochs[key] for key in store.graphs.complete(ids)})
    store.clear_graph_deadlines(list(over))
    return running


def _break_failed_again(resources: Resources, process_ids: Iterable[str]) -> None:
    """Break processes of which a task failed between the look at the graph and the reopening: its own apply found the
    process broken, and left it at that."""
    failed = resources.store.restarts.failed(process_ids)
    if failed:
        batch_or_each(list(failed.items()), lambda some: _break_again(resources, dict(some)), lambda one: one[0])


def _break_again(resources: Resources, failed: Mapping[str, Sequence[str]]) -> int:
    keys = [record_id(process_id, task) for process_id, tasks in failed.items() for task in tasks]
    again = [decision for decision in resources.store.decisions.briefs(keys).values() if decision.failed]
    for decision in again:
        interrupt(resources, decision)
    return len(again)


def _is_broken(process: Process | None, whole: bool = True) -> bool:
    """`whole`: or for a task only."""
    if process is None or process.state is not ProcessState.BROKEN:
        return False
    return whole or (process.error is not None and process.error.task is not None)


def _is_start(one: Restarted, process: Process | None) -> bool:
    """Whether what is listed under its name may stand for its process as a whole."""
    return process is not None and one.task == process.start_task


def _life(process: Process | None) -> int:
    """The life that a process was seen in: how often it had been set running again."""
    return process.times_reopened if process is not None else 0
