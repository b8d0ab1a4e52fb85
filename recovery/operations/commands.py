"""An operator's commands on operations: order, apply, pause, resume, cancel, and set the rate.

Each command is one compare-and-set on the operation as it was read, and adds an entry to the audit log. If another
change came first, the command is decided again on the changed operation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from recovery.engine import Resources
from recovery.engine.operators.auditing import audited, reason_of, who
from recovery.engine.operators.ordering import order_details, order_operation
from recovery.engine.operators.schedules import Schedules
from recovery.errors import DamagedRecord, InputError
from recovery.operations.advance import LOOK_EVERY, advance
from recovery.operations.kinds import why_none
from recovery.operations.request import OperationRequest, checked_priority, checked_rate, no_priority
from recovery.operations.saved import without_name
from recovery.records import Operation, OperationKind, OperationState, Orders, Phase, given
from recovery.records.operation import ACTIVE, OVER
from recovery.records.schedule import Schedule, ScheduledOrders
from recovery.store.schema import KEPT_RESULTS

KEPT = timedelta(seconds=KEPT_RESULTS) - timedelta(days=5)
"""Maximum age of an operation whose plan may be applied. It is five days less than results are kept, because applying
may take some days."""
_CAN_BE_PAUSED = (OperationState.PLANNING, OperationState.RUNNING)
_NOT_OVER = tuple(state for state in OperationState if state not in OVER)
TRIES = 20
"""Maximum attempts at a change that other changes precede. The limiter and the counts of pages do not raise the
operation's version, so they do not cause another attempt."""


def start(resources: Resources, asked: OperationRequest, why: str, *, by: str | None = None) -> Operation:
    """Order an operation, and return it as it was saved.

    Its plan is made first. The plan is applied when an operator applies it, or at once if the request says so. A
    request for `@NAME` orders the saved operation of this name. Raises InputError if the request is invalid; then
    nothing is ordered.
    """
    why = reason_of(why, "kept with the operation and in the audit log")
    asked, name = without_name(resources, asked)
    orders = asked.checked(resources)
    ordered = Operation(
        id=0, **orders.what(), apply_at_once=asked.apply or None, who=by or who(), why=why, slot=asked.slot
    )
    # The audit log shows the selection as it was asked for, with the names of saved searches.
    details = order_details(orders.evolve(selection=asked.selection), saved=name)
    return order_operation(resources, ordered, details)


def schedule_operation(
    resources: Resources,
    name: str,
    asked: OperationRequest,
    said: Mapping[str, Any],
    why: str,
    *,
    by: str | None = None,
    confirm: Callable[[Orders], None] = lambda _: None,
) -> Schedule:
    """Add a schedule that orders this operation at each of its times, for example a collect every night.

    Each operation is applied at once. A request for `@NAME` copies the saved operation of this name as it is now.

    Args:
        resources: The databases to use.
        name: The name of the new schedule.
        asked: The operation to order.
        said: The schedule's settings, as in `recovery schedule add`.
        why: The reason, kept with each operation and in the audit log.
        by: Who adds the schedule. By default the user of this process.
        confirm: Called with the operation before the schedule is saved. It raises to prevent that.

    Raises:
        InputError: The request is invalid. Nothing is saved.
    """
    why = reason_of(why, "kept with each operation and in the audit log")
    asked, saved = without_name(resources, replace(asked, none_is_fine=True))
    orders = asked.checked(resources)
    if orders.kind is OperationKind.COLLECT and not orders.selection:
        raise InputError(
            "a scheduled collect needs a selection, for example ended:before(90d) for processes that ended "
            "more than 90 days ago"
        )
    confirm(orders)
    scheduled = ScheduledOrders(**orders.what(), reason=why, saved=saved)
    return Schedules(resources, by=by).add_ordering(name, scheduled, said)


def find(resources: Resources, number: int) -> Operation:
    """Return the operation with this number. Raises InputError if none has it, or if its record is damaged."""
    try:
        operation = resources.store.operations.get(number)
    except DamagedRecord as damage:
        raise InputError(
            f"operation {number} can't be read: {damage}. No worker runs it. Correct it in MongoDB's collection "
            f"`operations`, or end it with `recovery operation cancel {number} --reason ...`"
        ) from None
    if operation is None:
        newest = resources.store.operations.newest(1)
        last_number = f"the last one is {newest[0].id}" if newest else "there is none yet"
        raise InputError(f"no operation has the number {number}; {last_number} (`recovery operation list`)")
    return operation


def apply(resources: Resources, number: int, why: str = "", *, by: str | None = None) -> Operation:
    """Apply the plan of an operation. Raises InputError if the plan is not complete, the operation is over, or another
    operation is applied to one of its processes."""
    now = resources.store.now()

    def decide(operation: Operation) -> Operation:
        if not operation.changes:
            raise InputError(f"operation {number} is a check: it changes nothing, so there is nothing to apply")
        if operation.state is not OperationState.PLANNED:
            raise InputError(
                f"operation {number} is {_state_text(operation)}; only a plan that is complete can be applied"
            )
        if not operation.planned or not operation.planned.found:
            raise InputError(f"operation {number} has nothing to do: {why_none(operation)}")
        _check_age(operation, now)
        return operation.evolve(state=OperationState.ADMITTING, refusal=None)

    with audited(resources, "operation apply", str(number), why, by=by, operation=number):
        changed = _change(resources, number, decide)
        while changed.state is OperationState.ADMITTING:
            changed = advance(resources, changed) or find(resources, number)
        if changed.refusal:
            raise InputError(f"operation {number} is not applied: {changed.refusal}")
        return changed


def pause(resources: Resources, number: int, why: str = "", *, by: str | None = None) -> Operation | None:
    """Pause an operation until it is resumed. Pages in progress are finished, within a second or two.

    Return None if the operation's record can't be read. It is paused all the same.
    """

    def decide(operation: Operation) -> Operation:
        if operation.state not in _CAN_BE_PAUSED:
            raise InputError(
                f"operation {number} is {_state_text(operation)}; only a planning or running operation can be paused"
            )
        return operation.evolve(state=OperationState.PAUSED, paused_at=None)

    with audited(resources, "operation pause", str(number), why, by=by, operation=number):
        if resources.store.operations.end_damaged(number, OperationState.PAUSED, _CAN_BE_PAUSED):
            return None
        return _change(resources, number, decide)


def resume(resources: Resources, number: int, why: str = "", *, by: str | None = None) -> Operation:
    """Resume a paused operation where it was."""
    now = resources.store.now()

    def decide(operation: Operation) -> Operation:
        if operation.state is not OperationState.PAUSED:
            raise InputError(f"operation {number} is {_state_text(operation)}; only a paused operation can be resumed")
        _check_age(operation, now)
        paused = (now - operation.paused_at).total_seconds() if operation.paused_at is not None else 0.0
        return operation.evolve(
            state=OperationState.PLANNING if operation.phase is Phase.PLAN else OperationState.RUNNING,
            paused_at=None,
            paused_seconds=operation.paused_seconds + max(0.0, paused),
        )

    with audited(resources, "operation resume", str(number), why, by=by, operation=number):
        changed = _change(resources, number, decide)
        resources.store.operation_ranges.free(number, changed.phase)
        return changed


def cancel(resources: Resources, number: int, why: str, *, by: str | None = None) -> Operation | None:
    """Cancel an operation for good. Completed changes stay, and pages in progress are finished.

    Return None if the operation's record can't be read. It is cancelled all the same.
    """
    why = reason_of(why, "kept in the audit log")

    def decide(operation: Operation) -> Operation:
        if operation.state in OVER:
            raise InputError(f"operation {number} is {_state_text(operation)}; there is nothing to cancel")
        return operation.evolve(state=OperationState.CANCELLED)

    with audited(resources, "operation cancel", str(number), why, by=by, operation=number):
        if resources.store.operations.end_damaged(number, OperationState.CANCELLED, _NOT_OVER):
            return None
        return _change(resources, number, decide)


def set_rate(
    resources: Resources, number: int, rate: float | None, why: str = "", *, by: str | None = None
) -> Operation:
    """Set the maximum processes per second, over all workers. None: no limit. Takes effect within a second or two."""
    rate = checked_rate(rate)

    def decide(operation: Operation) -> Operation:
        if operation.state in OVER:
            raise InputError(f"operation {number} is {_state_text(operation)}; its rate can no longer be changed")
        return operation.evolve(rate=rate)

    with audited(resources, "operation rate", str(number), why, by=by, operation=number, rate=rate or "unlimited"):
        return _change(resources, number, decide, anew=True)


def _change(
    resources: Resources, number: int, decide: Callable[[Operation], Operation], *, anew: bool = False
) -> Operation:
    for _ in range(TRIES):
        wanted = decide(find(resources, number))
        deadline = LOOK_EVERY if wanted.state in ACTIVE else None
        if saved := resources.store.operations.save(wanted, deadline, anew=anew):
            return saved
    raise InputError(f"operation {number} is being changed by others; try again")


def _check_age(operation: Operation, now: datetime) -> None:
    if operation.asked_at is not None and now - operation.asked_at > KEPT:
        raise InputError(
            f"operation {operation.id} was ordered on {operation.asked_at:%Y-%m-%d}; its results are kept for "
            f"{KEPT_RESULTS // 86_400} days, so its plan is no longer complete: cancel it, and order it again"
        )


def _state_text(operation: Operation) -> str:
    if operation.state is OperationState.PLANNING:
        return "still making its plan"
    if operation.state in OVER and operation.ended_at is not None:
        return f"{operation.state}, since {operation.ended_at:%Y-%m-%d %H:%M:%S} UTC"
    return str(operation.state)


def priorities_of(texts: Mapping[str, Any] | list[str]) -> dict[str, int]:
    """Parse priorities: `["order=10"]` → {"order": 10}. Raises InputError."""
    pairs = texts.items() if isinstance(texts, Mapping) else (_pair(text) for text in texts)
    return {name: _priority(name, value) for name, value in pairs}


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise InputError(f"--priority {given.shown(text)}: give a process type and a number, as in order=10")
    return name, value


def _priority(name: str, value: Any) -> int:
    try:
        return checked_priority(name, int(value))
    except (TypeError, ValueError):
        raise no_priority(name, value) from None
