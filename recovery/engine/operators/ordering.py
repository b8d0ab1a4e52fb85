"""Order operations, for an operator or for a schedule."""

from __future__ import annotations

from typing import Any

from recovery.engine.operators.auditing import audited, origin
from recovery.engine.resources import Resources
from recovery.records import Operation, Orders
from recovery.records.schedule import Schedule, SlotOutcome, SlotResult, Starting
from recovery.schedule import instance_id

FIRST_LOOK = 5.0
"""Seconds until a worker looks at a new operation, unless one looks at it earlier."""


def order(resources: Resources, schedule: Schedule, starting: Starting) -> SlotResult:
    """Order the operation of a schedule's occurrence, in the name of the schedule. If it was ordered before, return the
    same operation."""
    wanted = schedule.orders
    assert wanted is not None, "the schedule orders operations"
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
    """Save an operation that is checked, and return it as it was saved. The audit log gets these details."""
    arguments = {**details, "apply": bool(wanted.apply_at_once)}
    with audited(resources, "operation start", wanted.kind.value, wanted.why, by=wanted.who, **arguments) as outcome:
        saved = resources.store.operations.insert(wanted.evolve(origin=origin()), FIRST_LOOK)
        outcome.operation, outcome.text = saved.id, f"operation {saved.id} is ordered"
    return saved


def order_details(orders: Orders, *, saved: str | None = None) -> dict[str, Any]:
    """Return the parameters of an operation, without its kind, for the audit log. `saved` is the name under which it
    was saved."""
    options = {name: value for name, value in orders.what().items() if name != "kind"}
    return {**options, "selection": orders.selection or "all", "saved": saved}
