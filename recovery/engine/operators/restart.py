"""Restart of tasks that failed for good, at an operator's command.

    decision: finished with an error → queued (the commit point) → `reopen` → push

Before the commit point nothing has happened; after it the task is live, and will be run whatever becomes of the
restart. Only tasks of a process that is broken are restarted: what fails in a running process is about to break it.

Of many broken processes at once it costs about as many round trips as of one. What is found of a process while it is
still as it was seen belongs to that life of it. Whoever else restarts it first leaves nothing to be done here, and a
task that fails in the next life is not queued again by who was late.
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
    """What a restart did: tasks that are queued again, and processes that run again by it. A process with further
    failed tasks stays broken."""

    tasks: int = 0
    processes: int = 0

    def __add__(self, other: Restarts) -> Restarts:
        return Restarts(self.tasks + other.tasks, self.processes + other.processes)


def restart_process(
    resources: Resources, process_id: str, task: str | None = None, reason: str = "", *, by: str | None = None
) -> Restarts:
    """`restart`, in the name of an operator, who is on record with it. Raises the same."""
    target = process_id if task is None else f"{process_id}/{task}"
    with audited(resources, "process restart", target, reason, by=by) as outcome:
        done = restart(resources, process_id, task, Restarter(by or who(), reason))
        outcome.text = told(done)
    return done


def restart(resources: Resources, process_id: str, task: str | None, restarter: Restarter) -> Restarts:
    """Restart a failed task of a broken process, or all of them; or the process alone, if no task of it has failed and
    it broke as a whole.

    Raises ProcessNotFound, and InputError for a process that is not broken or a task that has not failed.
    """
    process = find_process(resources, process_id)
    process_id = process.id
    task = given.text(task, "task") if task is not None else None
    if process.state is not ProcessState.BROKEN:
        raise InputError(f"process {process_id} is {process.state}; only tasks of a broken one can be restarted")
    if resources.store.graphs.absent([process_id]):
        rebuild_graph(resources, process_id)  # it tells what failed
    # Before it is asked what has failed: what fails from then on stays listed.
    listed = {one.id: one.restarts for one in resources.store.interruptions.of_process(process_id)}
    tasks = [task] if task is not None else resources.store.restarts.failed([process_id]).get(process_id, [])
    decisions = resources.store.decisions.briefs(record_id(process_id, one) for one in tasks)
    failed = [decision for decision in decisions.values() if decision.failed]
    if not tasks:
        return Restarts(processes=_reopen_whole(resources, [process], listed, restarter))
    under_way = [
        Restarted(one.id, one.restarts, one.epoch)
        for one in decisions.values()
        if one.restarts and one.state is not DecisionState.FINISHED
    ]  # whoever restarted them was cut off
    if not failed and not under_way:
        raise InputError(_nothing_to_restart(process, task, next(iter(decisions.values()), None)))
    again = sum(reopen(resources, some, {process.id: process}) for some in batches(under_way, BATCH))
    done = Restarts(processes=again)
    for some in batches(failed, BATCH):
        done += restart_tasks(resources, {one.id: one.restarts or 0 for one in some}, restarter)
    return done


def restart_if_broken(resources: Resources, process_id: str, reason: str) -> None:
    """Restart the failed tasks of a process that was broken a moment ago, on record as an operator's; if it runs again
    by now, or is over, it is left alone."""
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
    """Restart the tasks of all interruptions selected, of the oldest processes first; at most `limit` tasks."""
    done = Restarts()
    with audited(resources, "broken restart", described(selection), reason, by=by, limit=limit) as outcome:
        for page in pages(resources, selection, BATCH, limit):
            done += restart_tasks(resources, {one.id: one.restarts for one in page}, Restarter(by or who(), reason))
        outcome.text = told(done)
    return done


def told(done: Restarts) -> str:
    """What a restart did, in words."""
    return f"{count(done.tasks, 'task')} restarted, {count(done.processes, 'process')} set running again"


def described(selection: Selection) -> str:
    """Which interruptions are selected, as it stands in the audit log."""
    return " ".join(f"{name}:{value}" for name, value in selection.filter().items()) or "all"


def pages(
    resources: Resources, selection: Selection, size: int, limit: int | None = None
) -> Iterator[list[Interruption]]:
    """The interruptions selected, page by page, at most `limit`."""
    after, left = "", limit
    while page := resources.store.interruptions.page(selection, after, size if left is None else min(size, left)):
        yield page
        after, left = page[-1].id, None if left is None else left - len(page)
        if left == 0:
            break


def restart_tasks(resources: Resources, failed: Mapping[str, int], restarter: Restarter) -> Restarts:
    """Restart a batch of failed tasks, {id: its `restarts` when it failed}, of processes that are broken."""
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
    ids = {one.id for one in queued}
    note_restarts(resources, broken, ids, restarter)
    running = reopen(resources, [one.again() for one in wanted if one.id in ids], broken)
    push(resources, queued)
    return Restarts(len(queued), running + _see_to_others(resources, failed.keys() - ids, failed, seen, restarter))


def _reopen_whole(
    resources: Resources, processes: Sequence[Process], listed: Mapping[str, int], restarter: Restarter
) -> int:
    """`reopen_whole`, with an entry in the histories of these processes."""
    note_restarts(resources, {one.id: one for one in processes}, [f"{one.id}/" for one in processes], restarter)
    return reopen_whole(resources, processes, listed)


def _see_to_others(
    resources: Resources,
    left: Collection[str],
    listed: Mapping[str, int],
    seen: Mapping[str, Process],
    restarter: Restarter,
) -> int:
    """What is listed and was no failed task of a broken process: a process that broke as a whole, a task that somebody
    restarted and was cut off, or something left over. How many processes run again by it."""
    broken = {key: process for key, process in seen.items() if process.state is ProcessState.BROKEN}
    others = {key: listed[key] for key in left}
    running = _reopen_whole(resources, *_whole_process_failures(resources, broken, others), restarter)
    process_ids = {split_record_id(key)[0] for key in listed}
    over = [key for key in process_ids if key not in seen or seen[key].state in ENDED_PROCESSES]
    resources.store.interruptions.remove_all(over)  # of an abort that was cut off, or of what somebody removed
    return running + reopen(resources, _interrupted_restarts(resources, broken, others), broken)


def _failed_starts(resources: Resources, broken: Mapping[str, Process], listed: Iterable[str]) -> dict[str, int]:
    """{start task: its `restarts`} of those that failed in processes that broke as a whole, and are listed as these:
    the number that is listed is not theirs."""
    starts = [key for key in listed for one, task in [split_record_id(key)] if _is_whole(broken.get(one), task)]
    decisions = resources.store.decisions.briefs(starts) if starts else {}
    return {key: decision.restarts or 0 for key, decision in decisions.items() if decision.failed}


def _is_whole(process: Process | None, task: str) -> bool:
    """Whether this task's name stands for a process that broke as a whole."""
    if process is None or process.error is None:
        return False
    return task == process.start_task and process.error.task is None


def _interrupted_restarts(
    resources: Resources, broken: Mapping[str, Process], left: Mapping[str, int]
) -> list[Restarted]:
    """Tasks that are listed for an earlier life, since who restarted them, or listed them just then, was cut off:
    reopened, they are listed no longer."""
    decisions = resources.store.decisions.briefs(left) if left else {}
    return [
        Restarted(key, decision.restarts, decision.epoch)
        for key, decision in decisions.items()
        if (process := broken.get(decision.process_id)) is not None
        and decision.restarts is not None
        and decision.restarts > left[key]
        and not _is_whole(process, decision.task_id)
    ]


def _whole_process_failures(
    resources: Resources, broken: Mapping[str, Process], left: Mapping[str, int]
) -> tuple[list[Process], dict[str, int]]:
    """Of what is left, what is listed for a process of which no task has failed; and these processes."""
    candidates = {process_id for key in left if (process_id := split_record_id(key)[0]) in broken}
    whole = candidates - resources.store.restarts.failed(candidates).keys() if candidates else set()
    listed = {key: restarts for key, restarts in left.items() if split_record_id(key)[0] in whole}
    return [broken[process_id] for process_id in whole], listed


def _nothing_to_restart(process: Process, task: str | None, decision: Decision | None) -> str:
    if task is not None and decision is None:
        return f"process {process.id} has no task {task!r}; `recovery broken show {process.id}` lists those that failed"
    if task is not None and decision is not None:
        return f"task {decision.id} is {decision.state} and has not failed; there is nothing to restart"
    why = f"{process.error.kind}: {process.error.message}" if process.error else "no task of it failed"
    return f"process {process.id} can't be restarted, its records are lost ({why}); abort it, and start another"


def restart_many(resources: Resources, seen: Sequence[Process], restarter: Restarter) -> Restarts:
    """Restart what failed in these processes, which were broken, and that of which whoever restarted it was cut off;
    set running those that broke as a whole. A process that is not as it was seen is left alone, and so is one that has
    nothing to be restarted. Raises DamagedRecord where one can't be read."""
    store = resources.store
    if lost := store.graphs.absent([process.id for process in seen]):
        batch_or_each(sorted(lost), lambda some: len(rebuild_graphs(resources, some)))  # they tell what failed
    # Before it is asked what has failed: what fails from then on stays listed.
    listed = {one.id: one.restarts for one in store.interruptions.of_processes([process.id for process in seen])}
    failed = store.restarts.failed([process.id for process in seen])
    keys = [record_id(process_id, task) for process_id, tasks in failed.items() for task in tasks]
    decisions = store.decisions.briefs(keys).values() if keys else ()
    same = _unchanged(resources, seen)
    whole = [process for key, process in same.items() if key not in failed]
    theirs = {key: restarts for key, restarts in listed.items() if split_record_id(key)[0] not in failed}
    done = Restarts(processes=_reopen_whole(resources, whole, theirs, restarter))
    ours = [decision for decision in decisions if decision.process_id in same]
    cut_off = [one for one in ours if one.restarts and one.state is not DecisionState.FINISHED]
    again = [Restarted(one.id, one.restarts or 0, one.epoch) for one in cut_off]
    done += Restarts(processes=reopen(resources, again, same))
    wanted = {one.id: one.restarts or 0 for one in ours if one.failed}
    return done + restart_tasks(resources, wanted, restarter) if wanted else done


def _unchanged(resources: Resources, seen: Sequence[Process]) -> dict[str, Process]:
    now = resources.store.processes.briefs([process.id for process in seen])
    return {one.id: now[one.id] for one in seen if one.id in now and now[one.id].is_as(one)}
