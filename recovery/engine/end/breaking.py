"""Ends a process with an error: the interruption is listed, the process breaks, and its type may ask for a marker.

    listed → marker ordered → process: running → broken, its marker due → marker written → no longer due

The interruption is listed for the life in which the process breaks; both writes name this life. So a late removal of
the interruptions of an earlier life leaves it alone.

One write both breaks the process and notes that its marker is due. So no marker is written for a process that did not
break, and none is forgotten. Until the marker is written, the process keeps a deadline, and MARKER_MISSING writes it
then. Any worker may write the marker if it was ordered; a mark on the process is not enough, because every client that
starts processes can write them. The marker is not written if an operator has cleared the marker of the same type and
key since the process broke, or if the process was set running and has finished.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from recovery import tracing
from recovery.engine.resources import Resources
from recovery.errors import InputError
from recovery.limits import REASON_LENGTH
from recovery.metrics.registry import count_ended
from recovery.records import (
    ENDED_PROCESSES,
    AuditEntry,
    ErrorInfo,
    Interruption,
    Marker,
    OrderKind,
    Process,
    ProcessState,
    mark_of,
    marker_name,
)
from recovery.records.failure import fingerprint
from recovery.records.ids import new_pass, new_process_id, record_id
from recovery.records.preferences import FailureAction
from recovery.retry import GENERIC_ERROR, ErrorClass
from recovery.retry.codes import class_of
from recovery.store import MarkerDue


def break_process(resources: Resources, process_id: str, epoch: int, error: ErrorInfo) -> bool:
    """Break a process with an error of the process as a whole: running → broken. Return False if it had ended before.

    The interruption is listed under the start task. Siblings of a failed task continue.
    """
    process = resources.store.processes.brief(process_id)
    if process is None or process.epoch != epoch or process.state is not ProcessState.RUNNING:
        return False
    return break_off(resources, process, error, restarts=process.times_reopened)


def break_off(resources: Resources, process: Process, error: ErrorInfo, *, restarts: int, attempt: int = 0) -> bool:
    """List the interruption, then break the process, unless it has ended or was reopened since it was read. Return
    whether it broke."""
    list_interruption(resources, process, error, restarts=restarts, attempt=attempt)
    marker = order_markers(resources, [process], error)
    ended = resources.store.processes.break_(process.id, process.epoch, error, process.reopened, marker)
    if ended:
        count_ended(ProcessState.BROKEN, [process])
        tracing.event("process broken", error_kind=error.kind)
        if marker is not None:
            mark(resources, [process.id])
    else:
        remove_superseded(resources, [process.id], error)
        if marker is not None:
            resources.store.orders.fulfil([record_id(process.id, marker.key)])
    return ended


def remove_superseded(resources: Resources, process_ids: Sequence[str], error: ErrorInfo) -> None:
    """Remove the interruptions of processes that were about to break with this error but did not.

    They ended in another way at the same time. If the error is of processes as a whole, they may also have broken for
    one of their tasks, or have been set running again.
    """
    store = resources.store
    processes = store.processes.briefs(process_ids)
    store.interruptions.remove_all(
        [key for key in process_ids if key not in processes or processes[key].state in ENDED_PROCESSES]
    )
    if error.task is None:
        # A failure of the start task itself is listed under the same id, and must stay.
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
    """Remove interruptions of these processes, as a whole or of their start tasks, that date from before they were set
    running again."""
    store = resources.store
    store.interruptions.remove_lives(store.processes.committed_lives(process_ids).items())


def list_interruption(
    resources: Resources, process: Process, error: ErrorInfo, *, restarts: int, attempt: int = 0
) -> bool:
    """List the interruption for which a process is about to break: under the error's task, or under the start task.

    Return False if this interruption, or one of a later break, is already listed.
    """
    return resources.store.interruptions.add(
        Interruption(
            id=record_id(process.id, error.task or process.start_task),
            type=process.type,
            actor=error.actor or process.type,
            kind=error.kind,
            message=error.message,
            code=error.code,
            exhausted=error.exhausted,
            fingerprint=error.fingerprint or fingerprint(error.kind),
            attempt=attempt,
            restarts=restarts,
            reopened=process.times_reopened,
        )
    )


log = logging.getLogger(__name__)

ITSELF = "recovery"
"""Author of changes that no person made, such as a cleared marker."""


def code_of(code: int | None) -> int:
    """Return an error's code, or the generic code if no catalogue classified the error."""
    return GENERIC_ERROR.number if code is None else code


def class_of_error(code: int | None) -> ErrorClass:
    """Return the class of an error's code. A code outside all ranges, as from another program, is not retriable."""
    try:
        return class_of(code_of(code))
    except InputError:
        return ErrorClass.NOT_RETRIABLE


def order_markers(resources: Resources, processes: Sequence[Process], error: ErrorInfo) -> MarkerDue | None:
    """Order the markers of processes of one type that are about to break with the same error.

    Return None if they leave no markers.
    """
    store, first = resources.store, processes[0]
    if first.retried_by_schedule and class_of_error(error.first_code) is ErrorClass.RETRIABLE:
        return None
    if store.preferences.failure_action(first.type) is FailureAction.OFF:
        return None
    key = new_pass()
    store.orders.give(OrderKind.MARK, {process.id: process.epoch for process in processes}, key, store.now())
    return MarkerDue(key, resources.settings.apply_timeout)


def mark(resources: Resources, process_ids: Iterable[str]) -> list[str]:
    """Write the markers that are due for those of these processes that broke. May run again.

    Returns:
        The ids of the processes for which a marker was written.
    """
    store, written = resources.store, list[str]()
    broken = [
        process for process in store.processes.ended(list(process_ids)).values() if process.state is ProcessState.BROKEN
    ]
    due = {process.id: process for process in broken if process.marker_due}
    ordered = store.orders.standing(map(mark_of, due.values()))
    for process in due.values():
        if process.id in ordered:
            if act_on_failure(resources, process):
                written.append(process.id)
            store.processes.settle_marker(process)
    store.orders.fulfil(process.id for process in ordered.values())
    return written


def act_on_failure(resources: Resources, process: Process) -> bool:
    """Act on the failure of a broken process as its type asks: disable the type, or write a marker.

    Return False if this was already done, or was undone by an operator, since the process broke.
    """
    if resources.store.preferences.failure_action(process.type) is FailureAction.DISABLE:
        return _disable_type(resources, process)
    return write_marker(resources, process)


def _disable_type(resources: Resources, process: Process) -> bool:
    error = _error_of(process)
    reason = f"process {process.id} failed with code {code_of(error.code)}, {error.kind}: {error.message}"
    reason = reason[:REASON_LENGTH]
    failed_at = process.ended_at or resources.store.now()
    if not resources.store.process_types.disable_for_failure(process.type, ITSELF, reason, failed_at):
        return False
    entry = AuditEntry(id=new_process_id(), what="process type disable", target=process.type, who=ITSELF, why=reason)
    resources.store.audit_log.begin(entry)
    resources.store.audit_log.end(entry.id, "done")
    resources.store.preferences.invalidate()
    resources.broker.tell_settings_changed()
    message = "process type %s is disabled: %s; `recovery process-type enable %s` allows starts again"
    log.error(message, process.type, reason, process.type)
    return True


def _error_of(process: Process) -> ErrorInfo:
    return process.error or ErrorInfo(kind="Unknown", message="why it broke is not known any more")


def write_marker(resources: Resources, process: Process) -> bool:
    """Write a broken process's marker, whatever its type asks for. The process must have been read with majority.

    Return False if a marker of its type and key exists, or was cleared since the process broke.
    """
    assert process.state is ProcessState.BROKEN, process.state
    error = _error_of(process)
    name = marker_name(process.type, process.key)
    marker = Marker(
        id=name,
        type=process.type,
        key=process.key,
        code=code_of(error.code),
        exhausted=error.exhausted,
        reason=error.reason,
        kind=error.kind,
        message=error.message,
        stack=_stack(resources, process, error),
        fingerprint=error.fingerprint,
        process=process.id,
        actor=error.actor,
        task=error.task,
    )
    written = resources.store.markers.write(marker, process.ended_at or resources.store.now())
    if written:
        message = (
            "marker %s is written, so no process of its type and key is started: process %s broke with code %d, %s"
        )
        log.error(message, name, process.id, marker.code, error.kind)
    return written


def lift_marker(resources: Resources, process: Process) -> None:
    """Clear the marker of a process that broke, was restarted, and now finishes.

    If a write of this marker is still due, a cleared record is stored first, which makes the late write fail.
    """
    name = marker_name(process.type, process.key)
    marker = Marker(id=name, type=process.type, key=process.key, process=process.id)
    reason = f"process {process.id} was restarted and has finished"
    if resources.store.markers.lift(marker, ITSELF, reason, due=bool(process.marker_due)):
        log.info("marker %s is cleared: %s", name, reason)


def _stack(resources: Resources, process: Process, error: ErrorInfo) -> str | None:
    if error.stack is not None or error.task is None:
        return error.stack
    decision = resources.store.decisions.get_committed(record_id(process.id, error.task))
    failed = decision.outcome.error if decision is not None and decision.outcome is not None else None
    return failed.stack if failed is not None else None
