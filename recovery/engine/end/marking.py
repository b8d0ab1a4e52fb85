"""The marker that a process leaves that broke for good, where its type asks for one.

    ordered → process: running → broken, its marker due → marker written → no longer due

That it is due is written with the end itself, in one write: so no marker is written for a process that did not break,
and none is forgotten. Until it is written the process keeps a deadline, and MARKER_MISSING writes it then. Whoever is
first writes it, if it was ordered: who may start processes may write them. It is not written once an operator has
cleared that of the same type and key since the process broke, nor once the process itself has finished, set running
again: whoever is late with it writes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from recovery.engine.resources import Resources
from recovery.errors import InputError
from recovery.records import ErrorInfo, Marker, OrderKind, Process, ProcessState, mark_of, marker_name
from recovery.records.ids import new_pass, record_id
from recovery.retry import GENERIC_ERROR, ErrorClass
from recovery.retry.codes import class_of
from recovery.store import MarkerDue

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
    if first.retried_by_schedule and class_of_error(error.code) is ErrorClass.RETRIABLE:
        return None
    if not store.preferences.writes_markers(first.type):
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
            if write_marker(resources, process):
                written.append(process.id)
            store.processes.settle_marker(process)
    store.orders.fulfil(one.id for one in ordered.values())
    return written


def write_marker(resources: Resources, process: Process) -> bool:
    """Write a broken process's marker, whatever its type says; False if that of its type and key is there, or was
    cleared since it broke. The process is as a majority has it."""
    assert process.state is ProcessState.BROKEN, process.state
    error = process.error or ErrorInfo(kind="Unknown", message="why it broke is not known any more")
    name = marker_name(process.type, process.key)
    marker = Marker(
        id=name,
        type=process.type,
        key=process.key,
        code=code_of(error.code),
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
