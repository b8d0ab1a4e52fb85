"""Operations as they are ordered: by an operator, or by a schedule in the place of starting a process."""

from __future__ import annotations

from typing import Any

from recovery.engine.operators.auditing import audited, origin
from recovery.engine.resources import Resources
from recovery.records import Operation, Orders
from recovery.records.schedule import Schedule, SlotOutcome, SlotResult, Starting
from recovery.schedule import instance_id

FIRST_LOOK = 5.0
"""Seconds until it is looked at by whoever looks after operations, if nobody does before."""


def order(resources: Resources, schedule: Schedule, starting: Starting) -> SlotResult:
    """Order the operation of a slot, in the schedule's name; whoever does so again gets the same one."""
    wanted = schedule.orders
    assert wanted is not None, "who asks has seen it"
    ordered = Operation(
        id=0,
        **wanted.what(),
        apply_at_once=wanted.changes or None,
        who=f"schedule {schedule.id}",
        why=wanted.purpose,
        slot=instance_id(schedule, starting),
    )
    saved = order_operation(resources, ordered, order_details(wanted, saved=wanted.saved))
    return SlotResult(slot=starting.slot, outcome=SlotOutcome.STARTED, operation=saved.id, triggered=starting.triggered)


def order_operation(resources: Resources, wanted: Operation, details: dict[str, Any]) -> Operation:
    """Save an operation that was asked for and checked, on record with these details; as it was saved."""
    told = {**details, "apply": bool(wanted.apply_at_once)}
    with audited(resources, "operation start", wanted.kind.value, wanted.why, by=wanted.who, **told) as outcome:
        saved = resources.store.operations.insert(wanted.evolve(origin=origin()), FIRST_LOOK)
        outcome.operation, outcome.text = saved.id, f"operation {saved.id} is ordered"
    return saved


def order_details(orders: Orders, *, saved: str | None = None) -> dict[str, Any]:
    """Return what an operation does as the audit log has it, beside its kind; `saved` is the name that it was saved
    under."""
    options = {name: value for name, value in orders.what().items() if name != "kind"}
    return {**options, "selection": orders.selection or "all", "saved": saved}
