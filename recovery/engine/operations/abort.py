"""Abort of processes, at an operator's command: they end at once, without a result.

    graph: a deadline, if it is at rest → process: running|broken → aborted, next epoch (the commit point)
    → graph: next epoch → decisions: at rest → no longer listed → graph: at rest

After the graph's step no apply takes place, so nothing is scheduled or enqueued any more; what was until then, the next
step ends. Attempts that run lose their claim, and their results are stale. Cut off anywhere after the commit point, the
graph is live, and ABORT_CUT_OFF does the rest; so does a second abort.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from recovery import metrics
from recovery.engine.lookup import find_process
from recovery.engine.naming import hint
from recovery.engine.operations.auditing import audited
from recovery.engine.operations.restart import described, pages
from recovery.engine.resources import Resources
from recovery.errors import InputError, UnknownActor
from recovery.plurals import count
from recovery.records import ErrorInfo, Process, ProcessState, given
from recovery.records.ids import new_pass
from recovery.store import Selection

ABORTED = "Aborted"
"""Kind of the error that an aborted process, and its tasks that were not finished, end with."""
BATCH = 100
"""Processes that are aborted together: each may have thousands of tasks."""
REASON_LENGTH = 500
CATCH_UP_TIMEOUT = 5.0
"""Seconds that an operator waits for the majority, a thousand times what it takes while all is well: what was queued a
moment ago is not to be overlooked."""


def abort_process(resources: Resources, process_id: str, reason: str) -> None:
    """Abort a process, whether it runs or is broken. One that is aborted already is finished, if it is not.

    Raises ProcessNotFound, and InputError for one that has finished: its result was told.
    """
    reason, process_id = _checked(reason), find_process(resources, process_id).id
    with audited(resources, "process abort", process_id, reason):
        abort(resources, [process_id], reason)
        if find_process(resources, process_id).state is ProcessState.FINISHED:
            raise InputError(f"process {process_id} has finished; there is nothing to abort")


def abort_selected(resources: Resources, selection: Selection, reason: str, limit: int | None = None) -> int:
    """Abort the processes of all interruptions selected, the oldest first, at most `limit` of them; how many were."""
    reason = _checked(reason)
    with audited(resources, "broken abort", described(selection), reason, limit=limit) as outcome:
        done = _abort_selected(resources, selection, reason, limit)
        outcome.text = f"{count(done, 'process')} aborted"
    return done


def _abort_selected(resources: Resources, selection: Selection, reason: str, limit: int | None) -> int:
    done = 0
    for page in pages(resources, selection, BATCH):
        listed = list(dict.fromkeys(one.process_id for one in page))
        while listed and done != limit:  # more than once where some are over by now
            batch = listed if limit is None else listed[: limit - done]
            listed = listed[len(batch) :]
            done += abort(resources, batch, reason)
        if done == limit:
            break
    return done


def waiting_for(resources: Resources, actor: str) -> list[str]:
    """Ids of the processes that have tasks to be done by an actor which no worker serves.

    Raises UnknownActor, and InputError for one that is served: its tasks go on, and may be at it.
    """
    actor = given.text(actor, "actor")
    resources.store.catch_up(CATCH_UP_TIMEOUT)
    queues = resources.store.waiting.by_actor(count_served=False)
    if actor in queues and queues[actor].is_served:
        who = f"by {', '.join(queues[actor].workers[:8])}" if queues[actor].workers else "until a moment ago"
        raise InputError(f"{actor} is served {who}: its tasks go on. Abort processes by their ids")
    found = resources.store.pending.processes_of(actor)
    if not found and actor not in queues:
        raise UnknownActor(f"no actor is named {actor!r}; {hint(actor, list(queues), 'none is known')}")
    return found


def abort_waiting(resources: Resources, actor: str, reason: str, limit: int | None = None) -> int:
    """Abort these processes, at most `limit` of them; how many were. Raises as `waiting_for`."""
    reason = _checked(reason)
    waiting = waiting_for(resources, actor)
    with audited(resources, "abort waiting", actor, reason, limit=limit) as outcome:
        done = _abort_all(resources, waiting, reason, limit)
        outcome.text = f"{count(done, 'process')} aborted"
    return done


def _abort_all(resources: Resources, waiting: Sequence[str], reason: str, limit: int | None) -> int:
    done = 0
    while waiting and done != limit:  # more than once where some are over by now
        batch, waiting = waiting[: _at_most(limit, done)], waiting[_at_most(limit, done) :]
        done += abort(resources, batch, reason)
    return done


def _at_most(limit: int | None, done: int) -> int:
    return BATCH if limit is None else min(BATCH, limit - done)


def abort(resources: Resources, process_ids: Sequence[str], reason: str) -> int:
    """Abort up to a batch of processes; how many were not aborted, or otherwise over, before."""
    store = resources.store
    error = ErrorInfo(kind=ABORTED, message=reason[:REASON_LENGTH])
    ended = 0
    store.aborts.announce(process_ids)
    for epoch, processes in _by_epoch(store.processes.briefs(process_ids).values()).items():
        ended += store.aborts.end([process.id for process in processes], epoch, error)
    metrics.PROCESSES_ENDED.labels(ProcessState.ABORTED.value).inc(ended)
    metrics.OPERATIONS.labels("abort").inc(ended)
    finish_abort(resources, process_ids)
    return ended


def finish_abort(resources: Resources, process_ids: Sequence[str]) -> int:
    """Bring the records of those of these processes to rest that are aborted; how many they are. May be run again."""
    store, finished = resources.store, 0
    aborted = [p for p in store.processes.briefs(process_ids).values() if p.state is ProcessState.ABORTED]
    for epoch, processes in _by_epoch(aborted).items():
        ids = [process.id for process in processes]
        store.aborts.close_graphs(ids, epoch)
        store.aborts.end_decisions(processes, epoch, new_pass())
        store.interruptions.remove_all(ids)
        store.aborts.clear_graph_deadlines(ids)
        finished += len(ids)
    return finished


def _checked(reason: str) -> str:
    plain = given.exact(reason) if isinstance(reason, str) else ""
    if not plain.strip() or not given.is_unicode(plain):
        raise InputError(f"reason={given.shown(reason)}: say in a few words why; it is shown with the process")
    return plain


def _by_epoch(processes: Iterable[Process]) -> dict[int, list[Process]]:
    alike: dict[int, list[Process]] = defaultdict(list)
    for process in processes:
        alike[process.epoch].append(process)
    return alike
