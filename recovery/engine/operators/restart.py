"""Restart tasks that failed for good, at an operator's command.

    decision: finished with an error → queued (the commit point) → `reopen` → push

Before the commit point nothing is changed. After it the task is live, and it will run even if the restart is cut off.
Only tasks of broken processes are restarted. A task that fails in a running process is about to break the process.

A restart of many processes takes about as many round trips as a restart of one. What is read of a process while it is
still as it was seen belongs to the same life of the process. If another restart is first, this one has nothing to do. A
late restart does not queue a task that failed in the next life.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from recovery import metrics
from recovery.engine.apply.rebuild import rebuild_graph, rebuild_graphs
from recovery.engine.apply.reopen import reopen, reopen_whole
from recovery.engine.isolation import batch_or_each
from recovery.engine.lookup import find_process
from recovery.engine.operators.auditing import audited, who
from recovery.engine.operators.restart_history import Restarter, note_restarts
from recovery.engine.resources import Resources
from recovery.engine.steps import BATCH, push
from recovery.errors import InputError
from recovery.records import ENDED_PROCESSES, Decision, DecisionState, Interruption, Process, ProcessState, given
from recovery.records.ids import new_pass, record_id, split_record_id
from recovery.store import Restarted, Selection, batches
from recovery.wording import count


@dataclass(frozen=True, slots=True)
class Restarts:
    """What a restart did. A process that has further failed tasks stays broken."""

    tasks: int = 0
    """Number of tasks that were queued again."""
    processes: int = 0
    """Number of processes that run again."""

    def __add__(self, other: Restarts) -> Restarts:
        return Restarts(self.tasks + other.tasks, self.processes + other.processes)


def restart_process(
    resources: Resources, process_id: str, task: str | None = None, reason: str = "", *, by: str | None = None
) -> Restarts:
    """Restart tasks for an operator, with an entry in the audit log. Arguments and errors are those of `restart`."""
    target = process_id if task is None else f"{process_id}/{task}"
    with audited(resources, "process restart", target, reason, by=by) as outcome:
        restarts = restart(resources, process_id, task, Restarter(by or who(), reason))
        outcome.text = told(restarts)
    return restarts


def restart(resources: Resources, process_id: str, task: str | None, restarter: Restarter) -> Restarts:
    """Restart one failed task of a broken process, or all of them.

    If no task has failed, because the process broke as a whole, only the process is set running again.

    Raises:
        ProcessNotFound: No process has this id.
        InputError: The process is not broken, or the task has not failed.
    """
    process = find_process(resources, process_id)
    process_id = process.id
    task = given.text(task, "task") if task is not None else None
    if process.state is not ProcessState.BROKEN:
        raise InputError(f"process {process_id} is {process.state}; only tasks of a broken process can be restarted")
    if resources.store.graphs.absent([process_id]):
        rebuild_graph(resources, process_id)  # the graph has the failed tasks
    # Read before the failed tasks are: a task that fails afterwards stays listed.
    listed = {
        interruption.id: interruption.restarts for interruption in resources.store.interruptions.of_process(process_id)
    }
    tasks = [task] if task is not None else resources.store.restarts.failed([process_id]).get(process_id, [])
    decisions = resources.store.decisions.briefs(record_id(process_id, failed_task) for failed_task in tasks)
    failed = [decision for decision in decisions.values() if decision.failed]
    if not tasks:
        return Restarts(processes=_reopen_whole(resources, [process], listed, restarter))
    under_way = [
        Restarted(decision.id, decision.restarts, decision.epoch)
        for decision in decisions.values()
        if decision.restarts and decision.state is not DecisionState.FINISHED
    ]  # an earlier restart of them was cut off
    if not failed and not under_way:
        raise InputError(_nothing_to_restart(process, task, next(iter(decisions.values()), None)))
    reopened = sum(reopen(resources, batch, {process.id: process}) for batch in batches(under_way, BATCH))
    restarts = Restarts(processes=reopened)
    for batch in batches(failed, BATCH):
        restarts += restart_tasks(resources, {decision.id: decision.restarts or 0 for decision in batch}, restarter)
    return restarts


def restart_if_broken(resources: Resources, process_id: str, reason: str) -> None:
    """Restart the failed tasks of a process that was broken a moment ago, with an entry in the audit log. A process
    that runs or has ended by now is left alone."""
    with audited(resources, "process restart", process_id, reason) as outcome:
        try:
            outcome.text = told(restart(resources, process_id, None, Restarter(who(), reason)))
        except InputError:
            state = find_process(resources, process_id).state
            if state is ProcessState.BROKEN:
                raise
            outcome.text = f"left alone: it is {state} by now"


def restart_selected(
    resources: Resources, selection: Selection, limit: int | None = None, reason: str = "", *, by: str | None = None
) -> Restarts:
    """Restart the tasks of the selected interruptions, the oldest processes first, and at most `limit` tasks."""
    restarts = Restarts()
    with audited(resources, "broken restart", described(selection), reason, by=by, limit=limit) as outcome:
        for page in pages(resources, selection, BATCH, limit):
            restarts += restart_tasks(
                resources,
                {interruption.id: interruption.restarts for interruption in page},
                Restarter(by or who(), reason),
            )
        outcome.text = told(restarts)
    return restarts


def told(done: Restarts) -> str:
    """Return what a restart did, in words."""
    return f"{count(done.tasks, 'task')} restarted, {count(done.processes, 'process')} set running again"


def described(selection: Selection) -> str:
    """Return which interruptions are selected, as the audit log shows it."""
    return " ".join(f"{name}:{value}" for name, value in selection.filter().items()) or "all"


def pages(
    resources: Resources, selection: Selection, size: int, limit: int | None = None
) -> Iterator[list[Interruption]]:
    """Yield the selected interruptions in pages of up to `size`, and at most `limit` in all."""
    after, remaining = "", limit
    while page := resources.store.interruptions.page(
        selection, after, size if remaining is None else min(size, remaining)
    ):
        yield page
        after, remaining = page[-1].id, None if remaining is None else remaining - len(page)
        if remaining == 0:
            break


def restart_tasks(resources: Resources, failed: Mapping[str, int], restarter: Restarter) -> Restarts:
    """Restart a batch of failed tasks of broken processes. `failed` is {task record id: number of restarts when the
    task failed}."""
    store = resources.store
    process_ids = {split_record_id(key)[0] for key in failed}
    seen = store.processes.briefs(process_ids)
    broken = {key: process for key, process in seen.items() if process.state is ProcessState.BROKEN}
    wanted = [
        Restarted(key, restarts, process.epoch)
        for key, restarts in {**failed, **_failed_starts(resources, broken, failed)}.items()
        if (process := broken.get(split_record_id(key)[0])) is not None
    ]
    queued = store.restarts.queue(wanted, new_pass())
    metrics.OPERATIONS.labels("restart").inc(len(queued))
    ids = {decision.id for decision in queued}
    note_restarts(resources, broken, ids, restarter)
    running = reopen(resources, [task.again() for task in wanted if task.id in ids], broken)
    push(resources, queued)
    return Restarts(len(queued), running + _reopen_others(resources, failed.keys() - ids, failed, seen, restarter))


def _reopen_whole(
    resources: Resources, processes: Sequence[Process], listed: Mapping[str, int], restarter: Restarter
) -> int:
    """Run `reopen_whole`, after adding an entry to the histories of these processes. Return how many processes run
    again."""
    note_restarts(
        resources,
        {process.id: process for process in processes},
        [f"{process.id}/" for process in processes],
        restarter,
    )
    return reopen_whole(resources, processes, listed)


def _reopen_others(
    resources: Resources,
    unqueued: Collection[str],
    listed: Mapping[str, int],
    seen: Mapping[str, Process],
    restarter: Restarter,
) -> int:
    """Handle listed interruptions that were not failed tasks of a broken process. Return how many processes run again.

    Such an interruption stands for a process that broke as a whole, or for a task whose restart was cut off. Others are
    left over.
    """
    broken = {key: process for key, process in seen.items() if process.state is ProcessState.BROKEN}
    others = {key: listed[key] for key in unqueued}
    running = _reopen_whole(resources, *_whole_process_failures(resources, broken, others), restarter)
    process_ids = {split_record_id(key)[0] for key in listed}
    ended = [key for key in process_ids if key not in seen or seen[key].state in ENDED_PROCESSES]
    resources.store.interruptions.remove_all(ended)  # left by an abort that was cut off, or by a removed process
    return running + reopen(resources, _interrupted_restarts(resources, broken, others), broken)


def _failed_starts(resources: Resources, broken: Mapping[str, Process], listed: Iterable[str]) -> dict[str, int]:
    """Return {start task: number of restarts} of the failed start tasks of processes that broke as a whole. Such a
    process is listed under the name of its start task, so the listed number of restarts is not that of the task."""
    starts = [
        key for key in listed for process_id, task in [split_record_id(key)] if _is_whole(broken.get(process_id), task)
    ]
    decisions = resources.store.decisions.briefs(starts) if starts else {}
    return {key: decision.restarts or 0 for key, decision in decisions.items() if decision.failed}


def _is_whole(process: Process | None, task: str) -> bool:
    """Return whether an interruption with the name of this task stands for a process that broke as a whole."""
    if process is None or process.error is None:
        return False
    return task == process.start_task and process.error.task is None


def _interrupted_restarts(
    resources: Resources, broken: Mapping[str, Process], listed: Mapping[str, int]
) -> list[Restarted]:
    """Return the tasks that are listed for an earlier life: an earlier restart was cut off, or the worker that listed
    them was. `reopen` removes them from the list."""
    decisions = resources.store.decisions.briefs(listed) if listed else {}
    return [
        Restarted(key, decision.restarts, decision.epoch)
        for key, decision in decisions.items()
        if (process := broken.get(decision.process_id)) is not None
        and decision.restarts is not None
        and decision.restarts > listed[key]
        and not _is_whole(process, decision.task_id)
    ]


def _whole_process_failures(
    resources: Resources, broken: Mapping[str, Process], interruptions: Mapping[str, int]
) -> tuple[list[Process], dict[str, int]]:
    """Return the processes of which no task has failed, and the interruptions that are listed for them."""
    candidates = {process_id for key in interruptions if (process_id := split_record_id(key)[0]) in broken}
    whole = candidates - resources.store.restarts.failed(candidates).keys() if candidates else set()
    listed = {key: restarts for key, restarts in interruptions.items() if split_record_id(key)[0] in whole}
    return [broken[process_id] for process_id in whole], listed


def _nothing_to_restart(process: Process, task: str | None, decision: Decision | None) -> str:
    """Return the message for a process that has nothing to restart."""
    if task is not None and decision is None:
        return f"process {process.id} has no task {task!r}; `recovery broken show {process.id}` lists those that failed"
    if task is not None and decision is not None:
        return f"task {decision.id} is {decision.state} and has not failed; there is nothing to restart"
    problem = f"{process.error.kind}: {process.error.message}" if process.error else "no task of it failed"
    return f"process {process.id} can't be restarted, its records are lost ({problem}); abort it, and start another"


def restart_many(resources: Resources, seen: Sequence[Process], restarter: Restarter) -> Restarts:
    """Restart the failed tasks of broken processes, and set processes running again that broke as a whole.

    Restarts that were cut off are finished. A process is skipped if it is not as it was seen, or if it has nothing to
    restart.

    Raises:
        DamagedRecord: A record of these processes cannot be read.
    """
    store = resources.store
    if lost := store.graphs.absent([process.id for process in seen]):
        batch_or_each(sorted(lost), lambda ids: len(rebuild_graphs(resources, ids)))  # graphs have the failed tasks
    # Read before the failed tasks are: a task that fails afterwards stays listed.
    listed = {
        interruption.id: interruption.restarts
        for interruption in store.interruptions.of_processes([process.id for process in seen])
    }
    failed = store.restarts.failed([process.id for process in seen])
    keys = [record_id(process_id, task) for process_id, tasks in failed.items() for task in tasks]
    decisions = store.decisions.briefs(keys).values() if keys else ()
    same = _unchanged(resources, seen)
    broken_as_whole = [process for key, process in same.items() if key not in failed]
    of_whole = {key: restarts for key, restarts in listed.items() if split_record_id(key)[0] not in failed}
    restarts_done = Restarts(processes=_reopen_whole(resources, broken_as_whole, of_whole, restarter))
    of_same = [decision for decision in decisions if decision.process_id in same]
    cut_off = [decision for decision in of_same if decision.restarts and decision.state is not DecisionState.FINISHED]
    restarted = [Restarted(decision.id, decision.restarts or 0, decision.epoch) for decision in cut_off]
    restarts_done += Restarts(processes=reopen(resources, restarted, same))
    wanted = {decision.id: decision.restarts or 0 for decision in of_same if decision.failed}
    return restarts_done + restart_tasks(resources, wanted, restarter) if wanted else restarts_done


def _unchanged(resources: Resources, seen: Sequence[Process]) -> dict[str, Process]:
    """Return {process id: the process as it is now} of the processes that have not changed since they were seen."""
    now = resources.store.processes.briefs([process.id for process in seen])
    return {process.id: now[process.id] for process in seen if process.id in now and now[process.id].is_as(process)}
