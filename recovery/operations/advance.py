"""How an operation gets from state to state: ranges are planned and saved; a phase whose ranges are all done ends.

    planning → planned → admitting → running → finished
       │ a check: finished              └ another is at the same processes: planned, and why
       └ with Parquet it begins when a driver has seen that it can be written, and ends when it is

Each step is one compare-and-set on the operation as it was read; cut off anywhere, whoever looks next does it again.
Any number may look at once.

Which operations may be applied at once: each kind declares whether it is exclusive (`Kind.is_exclusive`). A check
changes nothing, and a repair does what the scanners do at any time: these run beside everything. Kinds that end or
begin something for their processes are exclusive: only one such operation at a time may be at a process. Which
processes that are is known exactly, because a plan names each. Of two that are to be applied at the same moment the
older one wins, and says so to the younger, by a compare-and-set on its record: whoever was about to begin that one
finds it changed.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from math import ceil

from recovery.engine import Resources
from recovery.operations.kinds import EXCLUSIVE
from recovery.operations.selection import Selected
from recovery.records import Operation, OperationRange, OperationState, Phase, ResultState, Totals
from recovery.store.operators.operation_ranges import range_id
from recovery.survey.plan import PER_CORE
from recovery.survey.plan import plan as plan_ranges

log = logging.getLogger(__name__)

LOOK_EVERY = 5.0
"""Seconds until an operation at which somebody works is looked at again, if nobody does before."""
RESULTS_EACH = 990
"""Of a range that is applied: a little less than a page of a repair, which is then the only one."""
MAX_RANGES = 100
"""Of what is applied; of more results each has more."""
SHARED_BY = 8
"""So many workers share what there is, however little it is; or the last range would keep all waiting."""
LEAST_PROCESSES, LEAST_RESULTS = 500, 250
"""Of a range that is planned or applied: fewer are done in less time than it takes to lease and commit a range."""
MAX_AHEAD = 600.0
"""Seconds. Ranges are leased for half a minute, and operations looked at each minute: what is further off is damage."""
LEFT_ALONE = timedelta(seconds=60)
"""After which workers go on with what was left to Spark. A driver that begins, or a busy cluster, takes less."""
MAX_SUMS = 1000
"""By type, rule and actor, the largest first; the others are in the results."""
AT_IT = (OperationState.ADMITTING, OperationState.RUNNING, OperationState.PAUSED)
CANCELLED_JUST_NOW = timedelta(hours=1)
"""Since it was cancelled: a page of it may still be under way, whose lease tells."""
OPEN = (ResultState.FOUND,)
SHOWN = 3
"""Processes that a refusal names."""


def advance(resources: Resources, operation: Operation) -> Operation | None:
    """Do the next step of an operation; as it is then. None: somebody else was first."""
    match operation.state:
        case OperationState.ADMITTING:
            return _admit(resources, operation)
        case OperationState.PLANNING | OperationState.RUNNING:
            if operation.cuts is None and (operation.parquet_checked or not operation.awaits_parquet):
                driven = _is_for_spark(resources, operation)
                return _save(resources, operation.evolve(cuts=_cuts(resources, operation), driven=driven or None))
            if operation.cuts is not None and not operation.ready:
                resources.store.operation_ranges.insert(list(_ranges(operation)))
                return _save(resources, operation.evolve(ready=True))
            if operation.ready and _restored(resources, operation):
                return operation
            done = operation.ready and not resources.store.operation_ranges.how_many_open(operation.id, operation.phase)
            if done and not operation.awaits_parquet:
                return _end_phase(resources, operation)
            if operation.driven and not done and _is_left_alone(resources, operation):
                log.warning("operation %d: nobody in Spark works at it; workers go on", operation.id)
                return _save(resources, operation.evolve(driven=None, spark=False))
    resources.store.operations.postpone(operation.id, LOOK_EVERY)
    return operation


def _restored(resources: Resources, operation: Operation) -> bool:
    """Put right what another program wrote into the ranges of a phase. Return whether there was anything: the phase has
    not ended then."""
    planned = _ranges(operation) if operation.cuts is not None else []
    restored = resources.store.operation_ranges.restore(planned, MAX_AHEAD)
    if restored:
        log.warning("operation %d: %d ranges were missing or damaged; they are worked at again", operation.id, restored)
    return restored > 0


def totals_so_far(resources: Resources, operation: Operation) -> Totals:
    """What this phase has come to, counted from the results; what was read in all, from the ranges."""
    counted = resources.store.operation_results.totals(operation.id)
    ranges = resources.store.operation_ranges.all(operation.id, operation.phase)
    read = sum((one.totals for one in ranges), Totals())
    return counted.evolve(processes=read.processes, decisions=read.decisions)


def _save(resources: Resources, operation: Operation, *, begins: bool = False) -> Operation | None:
    return resources.store.operations.save(operation, LOOK_EVERY, begins=begins)


def _cuts(resources: Resources, operation: Operation) -> tuple[str, ...]:
    if operation.phase is Phase.PLAN:
        stored = resources.store.ranges
        parts = plan_ranges(stored, max(1, min(SHARED_BY, stored.volume()[0] // (PER_CORE * LEAST_PROCESSES))))
        return tuple(part.start for part in parts if part.start is not None)
    found = operation.planned.found if operation.planned is not None else 0
    step = max(LEAST_RESULTS, ceil(found / (PER_CORE * SHARED_BY)))
    step = max(min(step, RESULTS_EACH), ceil(found / MAX_RANGES))
    return tuple(resources.store.operation_results.walk(operation.id, step))


def _ranges(operation: Operation) -> list[OperationRange]:
    """Return the ranges of a phase: all of the highest priority first, then those of the next."""
    assert operation.cuts is not None
    bounds = list(zip((None, *operation.cuts), (*operation.cuts, None), strict=True))
    named = operation.priorities
    levels = sorted({0, *named.values()}, reverse=True)
    return [
        OperationRange(
            id=range_id(operation, level, place),
            operation=operation.id,
            phase=operation.phase,
            priority=priority,
            only=tuple(sorted(name for name, value in named.items() if value == priority)) if priority else (),
            but=() if priority else tuple(sorted(name for name, value in named.items() if value)),
            start=start,
            end=end,
        )
        for level, priority in enumerate(levels)
        for place, (start, end) in enumerate(bounds)
    ]


def _end_phase(resources: Resources, operation: Operation) -> Operation | None:
    store, totals = resources.store, totals_so_far(resources, operation)
    if not operation.sums and operation.has_findings:
        operation = operation.evolve(sums=store.operation_results.sums(operation.id, MAX_SUMS))
    if operation.phase is Phase.APPLY:
        return store.operations.save(operation.evolve(state=OperationState.FINISHED, applied=totals), None)
    planned = operation.evolve(planned=totals)
    if not operation.changes:
        return store.operations.save(planned.evolve(state=OperationState.FINISHED), None)
    if operation.apply_at_once:
        return _save(resources, planned.evolve(state=OperationState.ADMITTING))
    return store.operations.save(planned.evolve(state=OperationState.PLANNED), None)


def _admit(resources: Resources, operation: Operation) -> Operation | None:
    """Begin to apply a plan, unless another operation is at one of its processes.

    It is `admitting` already: of two that are admitted at once at least one sees the other, and the older one wins.
    """
    if refusal := conflict(resources, operation):
        return refuse(resources, operation, refusal)
    running = operation.evolve(
        state=OperationState.RUNNING, phase=Phase.APPLY, cuts=None, ready=None, refusal=None, paused_seconds=0.0
    )
    return _save(resources, running, begins=True)


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
        if other.phase is Phase.APPLY and other.ended_at is not None and now - other.ended_at < CANCELLED_JUST_NOW
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


def _is_for_spark(resources: Resources, operation: Operation) -> bool:
    """Whether a phase that begins is left to Spark: as it was asked for, or by its size."""
    if operation.spark is not None:
        return operation.spark
    return _is_big(resources, operation) and resources.store.workers.serve_spark()


def _is_big(resources: Resources, operation: Operation) -> bool:
    big = resources.settings.spark_from
    if operation.phase is Phase.APPLY:
        return operation.planned is not None and operation.planned.found >= big
    processes, _ = resources.store.ranges.volume()
    return processes >= big and (not operation.selection or Selected(resources, operation).at_least(big))


def _is_left_alone(resources: Resources, operation: Operation) -> bool:
    """Whether nobody in Spark has been at a phase for long. Notes it down if somebody is."""
    store, now = resources.store, resources.store.now()
    if store.operation_ranges.leased(operation.id, operation.phase):
        store.operations.attend([operation.id])
        return False
    # A moment to come is no sign of anybody: a clock was wrong, or another program wrote it.
    seen = [moment for moment in (operation.begun_at, operation.attended_at) if moment is not None and moment <= now]
    return not seen or now - max(seen) > LEFT_ALONE
