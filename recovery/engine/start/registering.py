"""What follows a start that is acknowledged: the Task, Graph and Decision of its start task, and its message.

What comes after the Process record is restored by START_NOT_REGISTERED, which runs `register` again. So nothing that
goes wrong here is an error to whoever started the process, and nobody has to wait for it: see `registrar`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta

from recovery import metrics
from recovery.engine.end.fencing import withdraw_unwanted
from recovery.engine.resources import Resources
from recovery.engine.steps import first_decision, push
from recovery.errors import StoreError
from recovery.limits import LONGEST
from recovery.records import Graph, Process, Task
from recovery.records.ids import new_pass, record_id
from recovery.store import queued

log = logging.getLogger(__name__)

Register = Callable[[Sequence[Process]], object]


def register(
    resources: Resources,
    started: Mapping[str, datetime],
    processes: Sequence[Process],
    passes: Mapping[str, str] | None = None,
    *,
    again: bool = False,
) -> int:
    """Make the Task, Graph and Decision of the start tasks of processes, as far as they are missing, and push their
    messages. {process: the database's time at its start, or now}. How many records were missing. Raises StoreError.

    {process: the pass that its start task is queued under}; without that, a new one. `again` after a try under the same
    passes whose answer was lost, perhaps: what is there gets a message as well. Whether it is queued, and under that
    pass, a client may not read; a message that comes second, or late, is discarded as stale.

    The Decisions come last, queued already: they are what can be claimed, and by then there are graphs to apply their
    results to. Before their messages it is looked whether the processes are still there (`fencing`).
    """
    store = resources.store
    tasks = [_task(process) for process in processes]
    made = store.tasks.insert(tasks)
    made += len(store.graphs.insert([_graph(process, started[process.id]) for process in processes]))
    if passes is None:
        passes = dict.fromkeys((process.id for process in processes), new_pass())
    decisions = [
        first_decision(
            task,
            trace=process.trace,
            pass_key=passes[process.id],
            queued_at=started[process.id],
            pinned_to=process.version if process.pinned else None,
        )
        for task, process in zip(tasks, processes, strict=True)
    ]
    timeouts = store.preferences.task_timeouts()
    new = store.decisions.insert_queued(decisions, resources.settings.message_timeout, timeouts)
    unverified = {one.id: one for one in decisions if again or one.id in new}
    if unverified:
        unwanted = withdraw_unwanted(resources, {key: one.epoch for key, one in unverified.items()})
        push(resources, [queued(one) for key, one in unverified.items() if key not in unwanted])
    return made + len(new)


def register_all(
    resources: Resources, processes: Sequence[Process], passes: Mapping[str, str] | None = None, *, again: bool = False
) -> None:
    """The same of processes that were saved not long ago, as far as they tell when. Raises StoreError."""
    started = {one.id: one.started_at for one in processes if one.started_at is not None}
    register(resources, started, [one for one in processes if one.id in started], passes, again=again)


def register_now(resources: Resources, processes: Sequence[Process]) -> None:
    """The same of processes that were just saved. Does not raise: their deadlines stand."""
    try:
        register_all(resources, processes)
    except StoreError as error:
        told = "%d processes are saved but not yet registered (%s), first %s: each is within its idle timeout"
        log.warning(told, len(processes), error, processes[0].id)


def after_saving(processes: Sequence[Process], register: Register) -> None:
    """Count processes of one type whose start is acknowledged, and have them registered. Does not raise: whoever is
    told of an error starts them a second time."""
    if not processes:
        return
    kind = processes[0].type
    try:
        metrics.PROCESSES_STARTED.labels(kind).inc(len(processes))
        register(processes)
    except Exception:
        log.exception("%d processes of type %s are started; what follows failed", len(processes), kind)


def _task(process: Process) -> Task:
    return Task(
        id=record_id(process.id, process.start_task),
        actor=process.type,
        args=process.args,
        epoch=process.epoch,
        retry=process.retry,
        context=process.context,
    )


def _graph(process: Process, now: datetime) -> Graph:
    return Graph(
        id=process.id,
        epoch=process.epoch,
        not_finished={process.start_task: now},
        idle_timeout=process.idle_timeout,
        touched_at=now,
        recovery_time=now + timedelta(seconds=min(process.idle_timeout, LONGEST)),
    )
