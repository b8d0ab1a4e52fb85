"""Which operations may be applied at once.

Each kind of operation declares whether it is exclusive (`Kind.is_exclusive`). A check changes nothing, and a repair
does what the scanners do at any time: these run beside everything. Kinds that end or begin something for their
processes are exclusive: only one such operation at a time may be at a process. Which processes that are is known
exactly, because a plan names each.

Of two that are to be applied at the same moment the older one wins, and says so to the younger, by a compare-and-set on
its record: whoever was about to begin that one finds it changed.
"""

from __future__ import annotations

from datetime import timedelta

from recovery.engine import Resources
from recovery.operations.kinds import EXCLUSIVE
from recovery.records import Operation, OperationState, Phase, ResultState

AT_IT = (OperationState.ADMITTING, OperationState.RUNNING, OperationState.PAUSED)
JUST_NOW = timedelta(hours=1)
"""Since it was cancelled: a page of it may still be under way, whose lease tells."""
OPEN = (ResultState.FOUND,)
SHOWN = 3


def conflict(resources: Resources, operation: Operation) -> str | None:
    """Why an operation that is `admitting` may not be applied now; None if it may. Reads both plans by their ids, at
    most as many as the smaller one has. A younger one that is admitting, too, is refused."""
    if operation.kind not in EXCLUSIVE:
        return None
    while True:
        others = [other for other in _others(resources, operation) if other.planned is not None]
        found = [(other, shared) for other in others if (shared := _shared(resources, operation, other))]
        younger = [(other, shared) for other, shared in found if _is_younger(other, operation)]
        if older := [pair for pair in found if pair not in younger]:
            return _told(*older[0])
        refused = [refuse(resources, other, _told(operation, shared)) for other, shared in younger]
        if None not in refused:
            return None  # or one of them was changed, and has begun, perhaps


def refuse(resources: Resources, operation: Operation, why: str) -> Operation | None:
    """Back to its plan; None: somebody else was first."""
    refused = operation.evolve(state=OperationState.PLANNED, refusal=why, apply_at_once=None)
    return resources.store.operations.save(refused, None)


def _others(resources: Resources, operation: Operation) -> list[Operation]:
    store, now = resources.store, resources.store.now()
    at_it = store.operations.of_kinds(EXCLUSIVE, AT_IT)
    cancelled = [
        other
        for other in store.operations.of_kinds(EXCLUSIVE, [OperationState.CANCELLED])
        if other.phase is Phase.APPLY and other.ended_at is not None and now - other.ended_at < JUST_NOW
    ]
    ending = [other for other in cancelled if store.operation_ranges.leased(other.id, Phase.APPLY)]
    return [other for other in (*at_it, *ending) if other.id != operation.id]


def _is_younger(other: Operation, operation: Operation) -> bool:
    return other.state is OperationState.ADMITTING and other.id > operation.id


def _shared(resources: Resources, one: Operation, other: Operation) -> list[str]:
    """Processes that are open in both plans, as far as the first page with one."""
    results = resources.store.operation_results
    small, large = sorted((one, other), key=lambda operation: operation.planned.found if operation.planned else 0)
    for page in results.pages(small.id, OPEN):
        if shared := results.among(large.id, [result.process for result in page], OPEN):
            return shared
    return []


def _told(other: Operation, shared: list[str]) -> str:
    named = ", ".join(shared[:SHOWN])
    first = f"operation {other.id} ({other.kind}, {other.state}) is at the same processes, {len(shared)} or more, "
    if other.state is OperationState.CANCELLED:
        return f"{first}first {named}: it ends what it has begun; ask again in half a minute"
    return f"{first}first {named}: wait until it is over (`recovery operation watch {other.id}`), or cancel it"
