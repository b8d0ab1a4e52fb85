"""State transitions of operations: ranges are cut and saved, and a phase ends when all of its ranges are done.

    planning → planned → admitting → running → finished
       │ a check: finished              └ another operation has the same processes: planned, with the refusal
       └ with Parquet: begins when a driver has checked that it can be written, ends when it is written

Each step is one compare-and-set on the operation as it was read. After an interruption the next worker repeats the
step. Any number of workers may advance an operation at the same time.

Each kind declares whether it is exclusive (`Kind.is_exclusive`). Checks change nothing, and repairs do what scanners do
at any time, so both run beside every other operation. Kinds that end or begin something for their processes are
exclusive: at most one of these operations at a time may be applied to a process. The processes are known exactly,
because a plan names each of them.

If two operations are to be applied at the same moment, the older one wins and refuses the younger by a compare-and-set
on its record. A worker that is about to begin the younger one then finds it changed.
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
"""Seconds until an operation in progress is advanced again, unless that happens earlier."""
RESULTS_EACH = 990
"""Maximum results in a range that is applied, unless MAX_RANGES requires more. Slightly less than a page of a repair,
so that the range is a single page."""
MAX_RANGES = 100
"""Maximum ranges of the applying phase. With more results, each range has more of them."""
SHARED_BY = 8
"""Number of workers for which a phase is cut into ranges, unless these would have less than the minimum below. With
fewer ranges, most workers would wait for the last range."""
LEAST_PROCESSES, LEAST_RESULTS = 500, 250
"""Minimum processes in a range that is planned, and results in a range that is applied. Smaller ranges take less time
than the lease and the commit."""
MAX_AHEAD = 600.0
"""Maximum seconds until the deadline of an operation or the end of a lease. Leases last half a minute, and operations
are advanced each minute, so later times are damage."""
LEFT_ALONE = timedelta(seconds=60)
"""Time without a driver after which workers continue an operation that was left to Spark. A driver's start and a busy
cluster take less."""
MAX_SUMS = 1000
"""Maximum sums by type, rule and actor that are saved with an operation. The largest are saved; the results contain
them all."""
AT_IT = (OperationState.ADMITTING, OperationState.RUNNING, OperationState.PAUSED)
CANCELLED_JUST_NOW = timedelta(hours=1)
"""Time after its cancellation for which an operation may still have a page in progress. Its leases show whether it
does."""
OPEN = (ResultState.FOUND,)
SHOWN = 3
"""Process ids that a refusal names."""


def advance(resources: Resources, operation: Operation) -> Operation | None:
    """Do the next step of an operation, and return the changed operation. None: another worker was first."""
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
                log.warning("operation %d: no Spark driver works on it; workers continue", operation.id)
                return _save(resources, operation.evolve(driven=None, spark=False))
    resources.store.operations.postpone(operation.id, LOOK_EVERY)
    return operation


def _restored(resources: Resources, operation: Operation) -> bool:
    """Restore missing or damaged ranges of a phase. Return whether there were any; then the phase has not ended."""
    planned = _ranges(operation) if operation.cuts is not None else []
    restored = resources.store.operation_ranges.restore(planned, MAX_AHEAD)
    if restored:
        log.warning(
            "operation %d: %d ranges were missing or damaged; workers process them again", operation.id, restored
        )
    return restored > 0


def totals_so_far(resources: Resources, operation: Operation) -> Totals:
    """Return the totals of an operation's current phase: results are counted, and what was read is summed over the
    ranges."""
    counted = resources.store.operation_results.totals(operation.id)
    ranges = resources.store.operation_ranges.all(operation.id, operation.phase)
    range_totals = sum((part.totals for part in ranges), Totals())
    return counted.evolve(processes=range_totals.processes, decisions=range_totals.decisions)


def _save(resources: Resources, operation: Operation, *, begins: bool = False) -> Operation | None:
    return resources.store.operations.save(operation, LOOK_EVERY, begins=begins)


def _cuts(resources: Resources, operation: Operation) -> tuple[str, ...]:
    if operation.phase is Phase.PLAN:
        stored = resources.store.ranges
        parts = plan_ranges(stored, max(1, min(SHARED_BY, stored.volume()[0] // (PER_CORE * LEAST_PROCESSES))))
        return tuple(part.start for part in parts if part.start is not None)
    results_found = operation.planned.found if operation.planned is not None else 0
    results_per_range = max(LEAST_RESULTS, ceil(results_found / (PER_CORE * SHARED_BY)))
    results_per_range = max(min(results_per_range, RESULTS_EACH), ceil(results_found / MAX_RANGES))
    return tuple(resources.store.operation_results.walk(operation.id, results_per_range))


def _ranges(operation: Operation) -> list[OperationRange]:
    """Return the ranges of a phase, in descending order of priority."""
    assert operation.cuts is not None
    bounds = list(zip((None, *operation.cuts), (*operation.cuts, None), strict=True))
    priority_of = operation.priorities
    levels = sorted({0, *priority_of.values()}, reverse=True)
    return [
        OperationRange(
            id=range_id(operation, level, index),
            operation=operation.id,
            phase=operation.phase,
            priority=priority,
            only=tuple(sorted(name for name, value in priority_of.items() if value == priority)) if priority else (),
            but=() if priority else tuple(sorted(name for name, value in priority_of.items() if value)),
            start=start,
            end=end,
        )
        for level, priority in enumerate(levels)
        for index, (start, end) in enumerate(bounds)
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
    """Start to apply a plan, unless another operation is applied to one of its processes.

    The operation already is `admitting`, so of two that are admitted at once at least one sees the other, and the older
    one wins.
    """
    if refusal := conflict(resources, operation):
        return refuse(resources, operation, refusal)
    running = operation.evolve(
        state=OperationState.RUNNING, phase=Phase.APPLY, cuts=None, ready=None, refusal=None, paused_seconds=0.0
    )
    return _save(resources, running, begins=True)


def conflict(resources: Resources, operation: Operation) -> str | None:
    """Return why an `admitting` operation may not be applied now, or None if it may.

    Reads both plans by process id, at most as many results as the smaller plan has. Refuses younger operations that are
    admitting too.
    """
    if operation.kind not in EXCLUSIVE:
        return None
    while True:
        others = [other for other in _others(resources, operation) if other.planned is not None]
        conflicts = [(other, shared) for other in others if (shared := _shared(resources, operation, other))]
        younger = [(other, shared) for other, shared in conflicts if _is_younger(other, operation)]
        if older := [pair for pair in conflicts if pair not in younger]:
            return _conflict_text(*older[0])
        refused = [refuse(resources, other, _conflict_text(operation, shared)) for other, shared in younger]
        if None not in refused:
            return None  # otherwise a younger one was changed, and may have begun


def refuse(resources: Resources, operation: Operation, why: str) -> Operation | None:
    """Return an operation to its plan with this refusal. None: another change was first."""
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


def _shared(resources: Resources, operation: Operation, other: Operation) -> list[str]:
    """Return processes that are open in both plans: those of the first page that has any."""
    results = resources.store.operation_results
    smaller, larger = sorted(
        (operation, other), key=lambda operation: operation.planned.found if operation.planned else 0
    )
    for page in results.pages(smaller.id, OPEN):
        if shared := results.among(larger.id, [result.process for result in page], OPEN):
            return shared
    return []


def _conflict_text(other: Operation, shared: list[str]) -> str:
    first_ids = ", ".join(shared[:SHOWN])
    conflict_text = (
        f"operation {other.id} ({other.kind}, {other.state}) already covers at least {len(shared)} of these processes, "
    )
    if other.state is OperationState.CANCELLED:
        return f"{conflict_text}first {first_ids}: it is finishing its last pages; try again in half a minute"
    return (
        f"{conflict_text}first {first_ids}: wait until it is over (`recovery operation watch {other.id}`), or cancel it"
    )


def _is_for_spark(resources: Resources, operation: Operation) -> bool:
    """Return whether a new phase is left to Spark: as the operation says, or by its size."""
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
    """Return whether no Spark driver has worked on a phase for LEFT_ALONE. Records the time if one does."""
    store, now = resources.store, resources.store.now()
    if store.operation_ranges.leased(operation.id, operation.phase):
        store.operations.attend([operation.id])
        return False
    # Times in the future are ignored: a clock was wrong, or another program wrote them.
    moments = [moment for moment in (operation.begun_at, operation.attended_at) if moment is not None and moment <= now]
    return not moments or now - max(moments) > LEFT_ALONE
