"""An operation driven in Spark: one job after the other, until nobody has to work at it.

All that counts is in MongoDB. A driver, an executor or a worker of Spark's that is killed costs the leases that it had,
which the next driver, or the next job of this one, takes back; where no driver comes, recovery workers go on.
"""

from __future__ import annotations

import logging
import threading

from pyspark import SparkContext
from pyspark.sql import SparkSession

from recovery.engine import Resources
from recovery.errors import InputError, SweepFailed
from recovery.metrics.carried import carry
from recovery.operations.advance import advance
from recovery.records import Operation, OperationState, Phase
from recovery.sweep import sums
from recovery.sweep.executor import Work
from recovery.sweep.job import run

log = logging.getLogger(__name__)

FRUITLESS = 3
"""jobs, one after the other, that get nothing done before a driver gives up."""
RETRY_AFTER = 6.0
"""Seconds until the next job where the last one brought nothing: ranges that failed are free again by then."""
TASKS = 2000
"""Of one job."""


class Driver:
    """Drives operations in one Spark. `name` is told with what its executors lease."""

    def __init__(self, cluster: SparkContext | SparkSession, resources: Resources, name: str) -> None:
        self._cluster, self._resources, self._name = cluster, resources, name
        self._ending = threading.Event()

    def stop(self) -> None:
        """Give up what is under way: its ranges can be leased again at once."""
        self._ending.set()
        if isinstance(self._cluster, SparkContext):
            self._cluster.cancelAllJobs()
        else:
            self._cluster.interruptAll()

    def drive(self, number: int) -> None:
        """Go on with an operation until nobody has to work at it, or Spark is not to. Raises SweepFailed, with what the
        last range failed for; StoreError."""
        fruitless = 0
        while not self._ending.is_set() and (operation := self._at_work(number)) is not None:
            store = self._resources.store
            store.operations.attend(number)
            if operation.parquet is not None and operation.cuts is None and self._refused(operation):
                return
            left = store.operation_ranges.how_many_open(number, operation.phase) if operation.ready else 0
            if operation.state is OperationState.ADMITTING or not left:
                if operation.ready and sums.are_wanted(self._resources, operation):
                    sums.save(self._cluster, self._resources, operation)
                advance(self._resources, self._at_work(number) or operation)
                continue
            failure = self._job(operation, min(left, TASKS))
            if store.operation_ranges.how_many_open(number, operation.phase) < left:
                fruitless = 0
                continue
            fruitless += 1
            if fruitless == FRUITLESS:
                raise SweepFailed(
                    f"operation {number} was cut off: {failure or self._reason(operation)}. What it did until then "
                    f"stays, and it is gone on with; to end it: `recovery operation cancel {number}`"
                )
            self._ending.wait(RETRY_AFTER)

    def _at_work(self, number: int) -> Operation | None:
        operation = self._resources.store.operations.get(number)
        return operation if operation is not None and operation.is_drivers else None

    def _refused(self, operation: Operation) -> bool:
        """Whether its results can't be written where they are wanted; then it is cancelled before it begins."""
        assert operation.parquet is not None
        if operation.phase is not Phase.PLAN:
            return False
        try:
            sums.check_target(self._cluster, operation.parquet)
        except InputError as error:
            refused = operation.evolve(state=OperationState.CANCELLED, refusal=str(error))
            self._resources.store.operations.save(refused, None)
            return True
        return False

    def _job(self, operation: Operation, tasks: int) -> str:
        """Run one; why it failed, if it did."""
        work = Work(self._resources.settings, operation.id, self._name)
        try:
            for counts in run(self._cluster, tasks, work):
                carry(counts)
        except SweepFailed as error:
            log.warning("operation %d: a job in Spark failed: %s", operation.id, error)
            return str(error)
        finally:
            # None of this job's tasks run any more, but one on an executor that Spark has abandoned: its commits fail.
            self._resources.store.operation_ranges.take_back([operation.id], [self._name])
        return ""

    def _reason(self, operation: Operation) -> str:
        told = [one.error for one in self._resources.store.operation_ranges.all(operation.id, operation.phase)]
        return next((error for error in told if error), "its ranges are leased by others, or Spark has no executor")
