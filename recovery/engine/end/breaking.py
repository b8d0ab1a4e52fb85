"""The end of a process with an error: it is listed for an operator, then broken, and leaves a marker where its type
asks for one.

    listed → marker ordered → process: running → broken, its marker due → marker written → no longer due

It is listed for the life that it is broken in, which both writes name: who takes off the list what an earlier life was
broken for, however late, leaves it.

That the marker is due is written with the end itself, in one write: so no marker is written for a process that did not
break, and none is forgotten. Until it is written the process keeps a deadline, and MARKER_MISSING writes it then.
Whoever is first writes it, if it was ordered: who may start processes may write them. It is not written once an
operator has cleared that of the same type and key since the process broke, nor once the process itself has finished,
set running again: whoever is late with it writes nothing.
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
    """Forget what was listed for processes that were about to be broken with this error, and ended in another way just
    then; or, if the error is of processes as a whole, broke for one of their tasks or were set running again."""
    store = resources.store
    processes = store.processes.briefs(process_ids)
    store.interruptions.remove_all(
        [key for key in process_ids if key not in processes or processes[key].state in ENDED_PROCESSES]
    )
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
            exhausted=error.exhausted,
            fingerprint=error.fingerprint or fingerprint(error.kind),
            attempt=attempt,
            restarts=restarts,
            reopened=process.times_reopened,
        )
    )


log = logging.getLogger(__name__)

ITSELF = "recovery"
"""Who cleared a marker that was cleared by no person."""


def code_of(code: int | None) -> int:
    """An error's code; what no catalogue was asked for is what none knows."""
    return GENERIC_ERROR.number if code is None else code


def class_of_error(code: int | None) -> ErrorClass:
    """The class of an error's code; what is in no range, of another program, no waiting helps."""
    try:
        return class_of(code_of(code))
    except InputError:
        return ErrorClass.NOT_RETRIABLE


def order_markers(resources: Resources, processes: Sequence[Process], error: ErrorInfo) -> MarkerDue | None:
    """Order the markers of processes of a type that are about to break alike; None: they leave none."""
    store, first = resources.store, processes[0]
    if first.retried_by_schedule and class_of_error(error.first_code) is ErrorClass.RETRIABLE:
        return None
    if store.preferences.failure_action(first.type) is FailureAction.OFF:
        return None
    key = new_pass()
    store.orders.give(OrderKind.MARK, {one.id: one.epoch for one in processes}, key, store.now())
    return MarkerDue(key, resources.settings.apply_timeout)


def mark(resources: Resources, process_ids: Iterable[str]) -> list[str]:
    """Write the markers that are due for those of these processes that broke; for which one was written. May be run
    again."""
    store, written = resources.store, list[str]()
    broken = [one for one in store.processes.ended(list(process_ids)).values() if one.state is ProcessState.BROKEN]
    due = {one.id: one for one in broken if one.marker_due}
    ordered = store.orders.standing(map(mark_of, due.values()))
    for process in due.values():
        if process.id in ordered:
            if act_on_failure(resources, process):
                written.append(process.id)
            store.processes.settle_marker(process)
    store.orders.fulfil(one.id for one in ordered.values())
    return written


def act_on_failure(resources: Resources, process: Process) -> bool:
    """Do what the type of a broken process asks for. Return False if that was done, or undone by an operator, since the
    process broke."""
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
    told = "process type %s is disabled: %s; `recovery process-type enable %s` has it started again"
    log.error(told, process.type, reason, process.type)
    return True


def _error_of(process: Process) -> ErrorInfo:
    return process.error or ErrorInfo(kind="Unknown", message="why it broke is not known any more")


def write_marker(resources: Resources, process: Process) -> bool:
    """Write a broken process's marker, whatever its type says; False if that of its type and key is there, or was
    cleared since it broke. The process is as a majority has it."""
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
        told = "marker %s is written, and none of its kind is started: process %s broke with code %d, %s"
        log.error(told, name, process.id, marker.code, error.kind)
    return written


def lift_marker(resources: Resources, process: Process) -> None:
    """Clear the marker that this process left before it was set running again, since now it finishes well; and have
    nobody write it who is late with it."""
    name = marker_name(process.type, process.key)
    mine = Marker(id=name, type=process.type, key=process.key, process=process.id)
    reason = f"process {process.id} was restarted and has finished"
    if resources.store.markers.lift(mine, ITSELF, reason, due=bool(process.marker_due)):
        log.info("marker %s is cleared: %s", name, reason)


def _stack(resources: Resources, process: Process, error: ErrorInfo) -> str | None:
    if error.stack is not None or error.task is None:
        return error.stack
    decision = resources.store.decisions.get_committed(record_id(process.id, error.task))
    failed = decision.outcome.error if decision is not None and decision.outcome is not None else None
    return failed.stack if failed is not None else None
