"""The end of a process with an error: it is listed for an operator, then broken.

Listed for the life that it is broken in, which both writes name: who takes off the list what an earlier life was broken
for, however late, leaves it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from recovery import tracing
from recovery.engine.end.marking import mark, order_markers
from recovery.engine.resources import Resources
from recovery.metrics import counting
from recovery.records import ErrorInfo, Interruption, Process, ProcessState
from recovery.records.failure import fingerprint
from recovery.records.ids import record_id

OVER = (ProcessState.FINISHED, ProcessState.ABORTED)
"""Ends after which nothing is left to be restarted."""


def break_process(resources: Resources, process_id: str, epoch: int, error: ErrorInfo) -> bool:
    """running → broken with this error, which is the process's as a whole; False if it had ended before.

    It is listed under its start task. Siblings of a failed task go on.
    """
    process = resources.store.processes.brief(process_id)
    if process is None or process.epoch != epoch or process.state is not ProcessState.RUNNING:
        return False
    return break_off(resources, process, error, restarts=process.times_reopened)


def break_off(resources: Resources, process: Process, error: ErrorInfo, *, restarts: int, attempt: int = 0) -> bool:
    """List the interruption, then break the process unless it has been reopened, or has ended, since it was read."""
    list_interruption(resources, process, error, restarts=restarts, attempt=attempt)
    marker = order_markers(resources, [process], error)
    ended = resources.store.processes.break_(process.id, process.epoch, error, process.reopened, marker)
    if ended:
        counting.ended(ProcessState.BROKEN, [process])
        tracing.event("process broken", error_kind=error.kind)
        if marker is not None:
            mark(resources, [process.id])
    else:
        remove_superseded(resources, [process.id], error)
        if marker is not None:
            resources.store.orders.fulfil([record_id(process.id, marker.key)])
    return ended


def remove_superseded(resources: Resources, process_ids: Sequence[str], error: ErrorInfo) -> None:
    """Forget what was listed for processes that were about to be broken with this error, and ended in another way just
    then; or, if the error is of processes as a whole, broke for one of their tasks or were set running again."""
    store = resources.store
    processes = store.processes.briefs(process_ids)
    store.interruptions.remove_all([key for key in process_ids if key not in processes or processes[key].state in OVER])
    if error.task is None:
        # What the start task itself failed for is listed under the same name.
        for_a_task = [
            (record_id(process.id, process.start_task), process.times_reopened)
            for process in processes.values()
            if process.state is ProcessState.BROKEN
            and process.error is not None
            and process.error.task not in (None, process.start_task)
        ]
        store.interruptions.remove_kind(for_a_task, error.kind)
        unlist_past_lives(resources, process_ids)


def unlist_past_lives(resources: Resources, process_ids: Iterable[str]) -> None:
    """Forget what these processes were listed for as a whole, or for their start tasks, before they were set running
    again."""
    store = resources.store
    store.interruptions.remove_lives(store.processes.committed_lives(process_ids).items())


def list_interruption(
    resources: Resources, process: Process, error: ErrorInfo, *, restarts: int, attempt: int = 0
) -> bool:
    """List what a process is about to be broken for: under the error's task, or under the start task. False if that,
    or what it broke for later, is listed."""
    return resources.store.interruptions.add(
        Interruption(
            id=record_id(process.id, error.task or process.start_task),
            type=process.type,
            actor=error.actor or process.type,
            kind=error.kind,
            message=error.message,
            code=error.code,
            fingerprint=error.fingerprint or fingerprint(error.kind),
            attempt=attempt,
            restarts=restarts,
            reopened=process.times_reopened,
        )
    )
