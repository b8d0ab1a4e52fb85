"""Where a phase of an operation runs: in recovery workers when it is small, in Spark when it is big."""

from __future__ import annotations

from datetime import timedelta

from recovery.engine import Resources
from recovery.operations.selection import Selected
from recovery.records import Operation, Phase

LEFT_ALONE = timedelta(seconds=60)
"""After which workers go on with what was left to Spark. A driver that begins, or a busy cluster, takes less."""


def is_for_spark(resources: Resources, operation: Operation) -> bool:
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


def is_left_alone(resources: Resources, operation: Operation) -> bool:
    """Whether nobody in Spark has been at a phase for long. Notes it down if somebody is."""
    store, now = resources.store, resources.store.now()
    if store.operation_ranges.leased(operation.id, operation.phase):
        store.operations.attend([operation.id])
        return False
    # A moment to come is no sign of anybody: a clock was wrong, or another program wrote it.
    seen = [moment for moment in (operation.begun_at, operation.attended_at) if moment is not None and moment <= now]
    return not seen or now - max(seen) > LEFT_ALONE
