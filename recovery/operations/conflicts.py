"""Which operations may be applied at once.

A check changes nothing, and a repair does what the scanners do at any time: both may run beside everything. So may a
set_idle_timeout, which compares and sets a number that none of the others looks at. The others end or begin something
for their processes, so of these only one at a time may be at a process. Which processes that are is known exactly: a
plan names each.
"""

from __future__ import annotations

from recovery.engine import Resources
from recovery.records import Operation, OperationKind, OperationState, ResultState

EXCLUSIVE = (OperationKind.RESTART, OperationKind.RESTART_FROM, OperationKind.ABORT, OperationKind.COLLECT)
AT_IT = (OperationState.ADMITTING, OperationState.RUNNING, OperationState.PAUSED)
OPEN = (ResultState.FOUND,)
SHOWN = 3


def conflict(resources: Resources, operation: Operation) -> str | None:
    """Why an operation that is `admitting` may not be applied now; None if it may. Reads both plans by their ids, at
    most as many as the smaller one has."""
    if operation.kind not in EXCLUSIVE:
        return None
    for other in resources.store.operations.of_kinds(EXCLUSIVE, AT_IT):
        if other.id == operation.id or (other.state is OperationState.ADMITTING and other.id > operation.id):
            continue
        if other.planned is None:
            continue  # it is still making its plan
        if shared := _shared(resources, operation, other):
            named = ", ".join(shared[:SHOWN])
            return (
                f"operation {other.id} ({other.kind}, {other.state}) is at the same processes, {len(shared)} or more, "
                f"first {named}: wait until it is over (`recovery operation watch {other.id}`), or cancel it"
            )
    return None


def _shared(resources: Resources, one: Operation, other: Operation) -> list[str]:
    """Processes that are open in both plans, as far as the first page with one."""
    results = resources.store.operation_results
    small, large = sorted((one, other), key=lambda operation: operation.planned.found if operation.planned else 0)
    for page in results.pages(small.id, OPEN):
        if shared := results.among(large.id, [result.process for result in page], OPEN):
            return shared
    return []
