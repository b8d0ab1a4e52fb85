"""Operations that schedules order, in the place of starting a process."""

from __future__ import annotations

from recovery.engine.operators.auditing import audited, origin
from recovery.engine.resources import Resources
from recovery.records import Operation
from recovery.records.schedule import Schedule, SlotOutcome, SlotResult, Starting
from recovery.schedule import instance_id

FIRST_LOOK = 5.0
"""Seconds until it is looked at by whoever looks after operations, if nobody does before."""


def order(resources: Resources, schedule: Schedule, starting: Starting) -> SlotResult:
    """Order the operation of a slot, in the schedule's name; whoever does so again gets the same one."""
    wanted = schedule.orders
    assert wanted is not None, "who asks has seen it"
    operation = Operation(
        id=0,
        kind=wanted.kind,
        selection=wanted.selection,
        export=wanted.export,
        export_format=wanted.export_format,
        rate=wanted.rate,
        apply_at_once=True,
        who=f"schedule {schedule.id}",
        why=wanted.why,
        origin=origin(),
        slot=instance_id(schedule, starting),
    )
    with audited(
        resources,
        "operation start",
        wanted.kind.value,
        wanted.why,
        by=operation.who,
        selection=wanted.selection,
        export=wanted.export,
        apply=True,
        rate=wanted.rate,
    ) as outcome:
        saved = resources.store.operations.insert(operation, FIRST_LOOK)
        outcome.operation, outcome.text = saved.id, f"operation {saved.id} is ordered"
    return SlotResult(slot=starting.slot, outcome=SlotOutcome.STARTED, operation=saved.id, triggered=starting.triggered)
