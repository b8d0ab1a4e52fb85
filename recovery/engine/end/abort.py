"""Aborts processes: they end at once, without a result.

    graph: a deadline, if it is at rest → process: running|broken → aborted, next epoch (the commit point)
    → graph: next epoch → decisions: at rest → interruptions removed → graph: at rest

From the graph's next epoch on no apply takes effect, so no task is scheduled or enqueued any more. The next step ends
tasks that were scheduled or enqueued before. Running attempts lose their claims, and their results are stale. If an
abort is cut off after the commit point, the graph is live, and ABORT_CUT_OFF completes the abort. A second abort
completes it too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence

from recovery import metrics
from recovery.engine.resources import Resources
from recovery.limits import REASON_LENGTH
from recovery.metrics.registry import count_ended
from recovery.records import UNENDED_PROCESSES, ErrorInfo, Process, ProcessState
from recovery.records.decision import ABORTED
from recovery.records.ids import new_pass


def abort(
    resources: Resources, process_ids: Sequence[str], reason: str, among: Collection[ProcessState] = UNENDED_PROCESSES
) -> int:
    """Abort at most one batch of processes.

    Args:
        resources: Connections.
        process_ids: The processes.
        reason: Why they are aborted. It becomes the message of their error.
        among: The states in which a process is aborted.

    Returns:
        The number of processes aborted by this call.
    """
    store, error = resources.store, _error(reason)
    store.aborts.announce(process_ids)
    ended = list[Process]()
    for epoch, processes in _by_epoch(store.processes.briefs(process_ids).values()).items():
        abortable = [process for process in processes if process.state in among]
        ended += abortable[: store.aborts.end([process.id for process in processes], epoch, error, among)]
    return _finish(resources, process_ids, ended)


def abort_as_seen(resources: Resources, seen: Sequence[Process], reason: str) -> int:
    """Abort processes that are still running or broken as they were read. Return how many were aborted.

    A process that was reopened or redone since then is left alone.
    """
    store, error = resources.store, _error(reason)
    process_ids = [process.id for process in seen]
    store.aborts.announce(process_ids)
    processes_by_life: dict[tuple[ProcessState, int, int | None], list[Process]] = defaultdict(list)
    for process in seen:
        processes_by_life[process.state, process.epoch, process.reopened].append(process)
    ended = list[Process]()
    for (state, epoch, reopened), processes in processes_by_life.items():
        if state in UNENDED_PROCESSES:
            ended += processes[
                : store.aborts.end([process.id for process in processes], epoch, error, [state], reopened=[reopened])
            ]
    return _finish(resources, process_ids, ended)


def _error(reason: str) -> ErrorInfo:
    return ErrorInfo(kind=ABORTED, message=reason[:REASON_LENGTH])


def _finish(resources: Resources, process_ids: Sequence[str], ended: Sequence[Process]) -> int:
    """Count the aborted processes, and finish the abort.

    `ended` has one entry per process aborted here. The count is exact; the ids may not be if another worker aborted
    some of them at the same time.
    """
    count_ended(ProcessState.ABORTED, ended)
    metrics.OPERATIONS.labels("abort").inc(len(ended))
    finish_abort(resources, process_ids)
    return len(ended)


def finish_abort(resources: Resources, process_ids: Sequence[str]) -> list[str]:
    """Bring the records of the aborted ones of these processes to rest. Return their ids. May run again."""
    store, finished = resources.store, list[str]()
    aborted = [
        process for process in store.processes.briefs(process_ids).values() if process.state is ProcessState.ABORTED
    ]
    for epoch, processes in _by_epoch(aborted).items():
        ids = [process.id for process in processes]
        store.aborts.close_graphs(ids, epoch)
        store.aborts.end_decisions(processes, epoch, new_pass())
        store.interruptions.remove_all(ids)
        store.aborts.clear_graph_deadlines(ids)
        finished += ids
    return finished


def _by_epoch(processes: Iterable[Process]) -> dict[int, list[Process]]:
    processes_by_epoch: dict[int, list[Process]] = defaultdict(list)
    for process in processes:
        processes_by_epoch[process.epoch].append(process)
    return processes_by_epoch
