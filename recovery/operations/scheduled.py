"""Operations that are ordered by a schedule: the collection of what is old, every night."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from recovery.engine import Resources
from recovery.engine.operators.operator import reason_of
from recovery.engine.operators.schedules import Schedules
from recovery.errors import InputError
from recovery.operations.request import Asked
from recovery.records.schedule import Orders, Schedule


def schedule_operation(
    resources: Resources, name: str, asked: Asked, said: Mapping[str, Any], why: str, *, by: str | None = None
) -> Schedule:
    """Order what is asked for at each slot of a new schedule, and have it applied at once. `said`: its settings, as
    `recovery schedule add` has them. Raises InputError, with nothing saved."""
    why = reason_of(why, "kept with each operation and in the audit log")
    if not asked.selection.strip():
        raise InputError(
            "say which processes, as `recovery find` does: ended:before(90d) is what ended longer than 90 days ago"
        )
    wanted = replace(asked, none_is_fine=True).checked(resources)
    orders = Orders(
        kind=wanted.kind,
        selection=wanted.selection,
        export=wanted.export,
        export_format=wanted.export_format,
        rate=wanted.rate,
        why=why,
    )
    return Schedules(resources, by=by).add_ordering(name, orders, said)
