"""The check of the operations: can each that is under way be worked at?"""

from __future__ import annotations

from recovery.engine import Resources
from recovery.errors import InputError
from recovery.health.model import Cause, Check, ok, problem
from recovery.operations.selection import Selected
from recovery.records import Operation
from recovery.records.operation import UNDER_WAY
from recovery.wording import count

MAX_LOOKED_AT = 1000
SHOWN = 5
LENGTH = 200
"""Characters of a reason."""


def operations(resources: Resources) -> Check:
    """Every operation that is under way can be worked at. Costs what is under way."""
    read = resources.store.operations.newest_with_damaged(MAX_LOOKED_AT, UNDER_WAY)
    found = read.records
    damaged = [f"operation {one.record}: {one}"[:LENGTH] for one in read.damaged]
    damaged += [f"operation {one.id}: {wrong}"[:LENGTH] for one in found if (wrong := _wrong(resources, one))]
    if not damaged:
        return ok("operations", f"{count(len(found), 'operation')} under way" if found else "none is under way")
    more = f"; and {len(damaged) - SHOWN} more" if len(damaged) > SHOWN else ""
    return problem(
        "operations",
        Cause.RECORDS_DAMAGED,
        f"nobody can work with {'; '.join(damaged[:SHOWN])}{more}",
        "find out who wrote that; `recovery operation cancel NUMBER --reason ...`, and order it again",
    )


def _wrong(resources: Resources, operation: Operation) -> str | None:
    try:
        Selected(resources, operation)
    except InputError as error:
        return f"its selection can't be read: {error}"
    return None
