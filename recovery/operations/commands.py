"""What an operator does with operations: order one, apply its plan, pause, resume, cancel it, and change its rate.

Each is one compare-and-set on the operation as it was read, and an entry in the audit log. A change that somebody else
got ahead of is decided again from what is there then.
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
"""For which a plan can be carried out: it takes some days, perhaps."""
_CAN_BE_PAUSED = (OperationState.PLANNING, OperationState.RUNNING)
_NOT_OVER = tuple(state for state in OperationState if state not in OVER)
TRIES = 20
"""Somebody else may be first each time; a limiter is no version, and pages are none either."""


def start(resources: Resources, asked: OperationRequest, why: str, *, by: str | None = None) -> Operation:
    """Order an operation; as it is in the database. Its plan is made first, and applied once somebody says so, unless
    it is asked to be applied at once. Of the kind `@NAME` it is the operation that is saved under that name. Raises
    InputError, with nothing ordered."""
    why = reason_of(why, "kept with the operation and in the audit log")
    asked, name = without_name(resources, asked)
    orders = asked.checked(resources)
    ordered = Operation(
        id=0, **orders.what(), apply_at_once=asked.apply or None, who=by or who(), why=why, slot=asked.slot
    )
    # As it was asked for, with the names of saved searches.
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
    """Order what is asked for at each slot of a new schedule, as the collection of old processes every night.

    Each operation is applied at once. Of the kind `@NAME` it is the operation that is saved under that name, as it is
    now. `said`: the schedule's settings, as `recovery schedule add` has them. `confirm` is called with the operation
    before the schedule is saved, and raises where it is not agreed to. Raises InputError, with nothing saved.
    """
    why = reason_of(why, "kept with each operation and in the audit log")
    asked, saved = without_name(resources, replace(asked, none_is_fine=True))
    orders = asked.checked(resources)
    if orders.kind is OperationKind.COLLECT and not orders.selection:
        raise InputError(
            "a collection by the clock takes a selection, as `recovery find` has it: ended:before(90d) is what ended "
            "longer than 90 days ago"
        )
    confirm(orders)
    scheduled = ScheduledOrders(**orders.what(), reason=why, saved=saved)
    return Schedules(resources, by=by).add_ordering(name, scheduled, said)


def find(resources: Resources, number: int) -> Operation:
    """The operation of this number. Raises InputError, which says which there are."""
    try:
        found = resources.store.operations.get(number)
    except DamagedRecord as damage:
        raise InputError(
            f"operation {number} can't be read: {damage}. Nobody works at it; correct it in MongoDB's collection "
            f"`operations`, or end it by `recovery operation cancel {number} --reason ...`"
        ) from None
    if found is None:
        newest = resources.store.operations.newest(1)
        there = f"the last one is {newest[0].id}" if newest else "there is none yet"
        raise InputError(f"no operation has the number {number}; {there} (`recovery operation list`)")
    return found


def apply(resources: Resources, number: int, why: str = "", *, by: str | None = None) -> Operation:
    """Run the very plan that was shown. Raises InputError where it is not complete, is over, or another operation is
    at one of its processes."""
    now = resources.store.now()

    def decide(operation: Operation) -> Operation:
        if not operation.changes:
            raise InputError(f"operation {number} is a check: it changes nothing, so there is nothing to apply")
        if operation.state is not OperationState.PLANNED:
            raise InputError(f"operation {number} is {_told(operation)}; only a plan that is complete can be applied")
        if not operation.planned or not operation.planned.found:
            raise InputError(f"operation {number} has nothing to do: {why_none(operation)}")
        _see_that_kept(operation, now)
        return operation.evolve(state=OperationState.ADMITTING, refusal=None)

    with audited(resources, "operation apply", str(number), why, by=by, operation=number):
        changed = _change(resources, number, decide)
        while changed.state is OperationState.ADMITTING:
            changed = advance(resources, changed) or find(resources, number)
        if changed.refusal:
            raise InputError(f"operation {number} is not applied: {changed.refusal}")
        return changed


def pause(resources: Resources, number: int, why: str = "", *, by: str | None = None) -> Operation | None:
    """Let nothing more be done until it is resumed: pages that are under way are finished, within a second or two.
    Return None if its record can't be read; it is paused all the same."""

    def decide(operation: Operation) -> Operation:
        if operation.state not in _CAN_BE_PAUSED:
            raise InputError(f"operation {number} is {_told(operation)}; only one that is at work can be paused")
        return operation.evolve(state=OperationState.PAUSED, paused_at=None)

    with audited(resources, "operation pause", str(number), why, by=by, operation=number):
        if resources.store.operations.end_damaged(number, OperationState.PAUSED, _CAN_BE_PAUSED):
            return None
        return _change(resources, number, decide)


def resume(resources: Resources, number: int, why: str = "", *, by: str | None = None) -> Operation:
    """Let it go on where it was paused."""
    now = resources.store.now()

    def decide(operation: Operation) -> Operation:
        if operation.state is not OperationState.PAUSED:
            raise InputError(f"operation {number} is {_told(operation)}; only one that is paused can be resumed")
        _see_that_kept(operation, now)
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
    """End it for good. What it did stays done; a page that is under way is finished. Return None if its record can't
    be read; it is cancelled all the same."""
    why = reason_of(why, "kept in the audit log")

    def decide(operation: Operation) -> Operation:
        if operation.state in OVER:
            raise InputError(f"operation {number} is {_told(operation)}; there is nothing to cancel")
        return operation.evolve(state=OperationState.CANCELLED)

    with audited(resources, "operation cancel", str(number), why, by=by, operation=number):
        if resources.store.operations.end_damaged(number, OperationState.CANCELLED, _NOT_OVER):
            return None
        return _change(resources, number, decide)


def set_rate(
    resources: Resources, number: int, rate: float | None, why: str = "", *, by: str | None = None
) -> Operation:
    """Change how many processes a second pass in all; None: as fast as it goes. Felt within a second or two."""
    rate = checked_rate(rate)

    def decide(operation: Operation) -> Operation:
        if operation.state in OVER:
            raise InputError(f"operation {number} is {_told(operation)}; its rate can't be changed any more")
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
    raise InputError(f"operation {number} is changed by others all the time; try again")


def _see_that_kept(operation: Operation, now: datetime) -> None:
    if operation.asked_at is not None and now - operation.asked_at > KEPT:
        raise InputError(
            f"operation {operation.id} was ordered on {operation.asked_at:%Y-%m-%d}; what it found is kept for "
            f"{KEPT_RESULTS // 86_400} days, so its plan is not whole any more: cancel it, and order it anew"
        )


def _told(operation: Operation) -> str:
    if operation.state is OperationState.PLANNING:
        return "still making its plan"
    if operation.state in OVER and operation.ended_at is not None:
        return f"{operation.state}, since {operation.ended_at:%Y-%m-%d %H:%M:%S} UTC"
    return str(operation.state)


def priorities_of(texts: Mapping[str, Any] | list[str]) -> dict[str, int]:
    """`["order=10"]` → {"order": 10}. Raises InputError."""
    pairs = texts.items() if isinstance(texts, Mapping) else (_pair(text) for text in texts)
    return {name: _whole(name, value) for name, value in pairs}


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise InputError(f"--priority {given.shown(text)}: give a process type and a number, as in order=10")
    return name, value


def _whole(name: str, value: Any) -> int:
    try:
        return checked_priority(name, int(value))
    except (TypeError, ValueError):
        raise no_priority(name, value) from None
