"""Abort of processes: they end at once, without a result.

    graph: a deadline, if it is at rest → process: running|broken → aborted, next epoch (the commit point)
    → graph: next epoch → decisions: at rest → no longer listed → graph: at rest

After the graph's step no apply takes place, so nothing is scheduled or enqueued any more; what was until then, the next
step ends. Attempts that run lose their claim, and their results are stale. Cut off anywhere after the commit point, the
graph is live, and ABORT_CUT_OFF does the rest; so does a second abort.
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
    """Abort up to a batch of processes, those in a state `among` these; how many were not aborted, or otherwise over,
    before."""
    store, error = resources.store, _error(reason)
    store.aborts.announce(process_ids)
    ended = list[Process]()
    for epoch, some in _by_epoch(store.processes.briefs(process_ids).values()).items():
        able = [process for process in some if process.state in among]
        ended += able[: store.aborts.end([process.id for process in some], epoch, error, among)]
    return _finish(resources, process_ids, ended)


def abort_as_seen(resources: Resources, seen: Sequence[Process], reason: str) -> int:
    """The same of those of these processes that are as they were seen, running or broken: one that was reopened or done
    again since then is left alone."""
    store, error = resources.store, _error(reason)
    process_ids = [process.id for process in seen]
    store.aborts.announce(process_ids)
    alike: dict[tuple[ProcessState, int, int | None], list[Process]] = defaultdict(list)
    for one in seen:
        alike[one.state, one.epoch, one.reopened].append(one)
    ended = list[Process]()
    for (state, epoch, reopened), some in alike.items():
        if state in UNENDED_PROCESSES:
            ended += some[: store.aborts.end([one.id for one in some], epoch, error, [state], reopened=[reopened])]
    return _finish(resources, process_ids, ended)


def _error(reason: str) -> ErrorInfo:
    return ErrorInfo(kind=ABORTED, message=reason[:REASON_LENGTH])


def _finish(resources: Resources, process_ids: Sequence[str], ended: Sequence[Process]) -> int:
    """`ended`: as many as were aborted, and which they are but where somebody else was first at some."""
    count_ended(ProcessState.ABORTED, ended)
    metrics.OPERATIONS.labels("abort").inc(len(ended))
    finish_abort(resources, process_ids)
    return len(ended)


def finish_abort(resources: Resources, process_ids: Sequence[str]) -> list[str]:
    """Bring the records of those of these processes to rest that are aborted; which they are. May be run again."""
    store, finished = resources.store, list[str]()
    aborted = [p for p in store.processes.briefs(process_ids).values() if p.state is ProcessState.ABORTED]
    for epoch, processes in _by_epoch(aborted).items():
        ids = [process.id for process in processes]
        store.aborts.close_graphs(ids, epoch)
        store.aborts.end_decisions(processes, epoch, new_pass())
        store.interruptions.remove_all(ids)
        store.aborts.clear_graph_deadlines(ids)
        finished += ids
    return finished


def _by_epoch(processes: Iterable[Process]) -> dict[int, list[Process]]:
    alike: dict[int, list[Process]] = defaultdict(list)
    for process in processes:
        alike[process.epoch].append(process)
    return alike
