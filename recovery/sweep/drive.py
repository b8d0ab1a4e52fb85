"""Drivers: run operations in Spark, job after job, until no work is left.

All progress is in MongoDB. When a driver, an executor or a Spark worker is killed, only its leases are lost. The next
driver, or this driver's next job, takes them back; without a driver, recovery workers continue. At most one driver at a
time runs an operation.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from recovery.engine import Resources
from recovery.engine.isolation import in_a_line
from recovery.errors import InputError, SweepFailed
from recovery.metrics.carried_counts import as_samples, carry_samples
from recovery.operations.advance import advance
from recovery.records import Operation, OperationState
from recovery.records.operation_parts import RangeState
from recovery.retry import ServerCall, Verdict, maybe_retry
from recovery.retry.orchestrator import decided
from recovery.retry.own_work import SPARK_JOB
from recovery.retry.reasons import SERVICE_NOT_AVAILABLE
from recovery.sweep import sums
from recovery.sweep.job import Work, run
from recovery.sweep.session import is_alive
from recovery.threads import ServiceThread

log = logging.getLogger(__name__)

DRIVEN = 60.0
"""Seconds for which other drivers leave an operation to its driver. Renewed while it is driven."""
ATTEND_EVERY = 10.0
"""Seconds between two renewals. A waiting operation without renewal counts as left alone after 60 s."""
TASKS = 2000
"""Maximum tasks of a job."""
TURN, TURN_SECONDS = 2, 10.0
"""Limits of a job while other operations wait: tasks for each core, and seconds for each task. After that time a task
gives its range back, unless it scans the whole range."""


class Driver:
    """Runs operations in one Spark. `name` identifies it in the leases of its executors."""

    def __init__(self, cluster: SparkContext | SparkSession, resources: Resources, name: str) -> None:
        self._cluster, self._resources, self._name = cluster, resources, name
        self._ending = threading.Event()
        self._fruitless: dict[int, ServerCall] = {}
        self._current: Operation | None = None
        self._job_runs = False

    def stop(self) -> None:
        """Cancel the running jobs. Their ranges can be leased again at once."""
        self._ending.set()
        with suppress(PySparkException, Py4JError, OSError):  # Spark has ended
            if isinstance(self._cluster, SparkContext):
                self._cluster.cancelAllJobs()
            else:
                self._cluster.interruptAll()

    @property
    def is_alive(self) -> bool:
        """Whether this Spark can run jobs."""
        return is_alive(self._cluster)

    def drive(self, number: int) -> None:
        """Run an operation until no work is left or the driver is stopped. Raises what `step` raises."""
        with attended(self._resources, self, list):
            while not self._ending.is_set() and self.step(number):
                pass

    def hold(self) -> bool:
        """Renew the claim of this driver on its current operation. Return whether it is driven.

        Does not renew, and returns False, while a job runs but no range is leased: the job waits for executors, so the
        operation does not count as attended.
        """
        operation, store = self._current, self._resources.store
        if operation is None:
            return True
        if self._job_runs and not store.operation_ranges.leased(operation.id, operation.phase):
            return False
        return store.operations.drive(operation.id, self._name, DRIVEN)

    def step(self, number: int, *, others_wait: bool = False) -> bool:
        """Advance an operation by at most one job, and return whether to continue.

        Raises:
            SweepFailed: Spark can't complete the operation. Contains the error of the last failed range.
            StoreError: MongoDB is unavailable.
        """
        operation = self._drivable(number)
        if operation is None:
            self._fruitless.pop(number, None)
            return False
        store = self._resources.store
        if not store.operations.drive(number, self._name, DRIVEN):
            self._ending.wait(1.0)
            return True
        self._current = operation
        try:
            self._step(operation, others_wait)
        finally:
            self._current = None
        return True

    def _step(self, operation: Operation, others_wait: bool) -> None:
        number, store = operation.id, self._resources.store
        if operation.awaits_parquet and not operation.parquet_checked:
            self._check(operation)
            return
        open_ranges = store.operation_ranges.how_many_open(number, operation.phase) if operation.ready else 0
        if operation.state is OperationState.ADMITTING or not open_ranges:
            if operation.ready and sums.are_wanted(self._resources, operation):
                sums.save(self._cluster, self._resources, operation)
            advance(self._resources, store.operations.get(number) or operation)
            return
        progress_before = self._done(operation)
        tasks, seconds = (self._short_turn_tasks(), TURN_SECONDS) if others_wait else (TASKS, math.inf)
        failure = self._job(operation, min(open_ranges, tasks), seconds)
        if self._done(operation) != progress_before:
            self._fruitless.pop(number, None)
        else:
            self._wait_or_give_up(operation, failure)

    def _done(self, operation: Operation) -> list[tuple[RangeState, str | None]]:
        parts = self._resources.store.operation_ranges.all(operation.id, operation.phase)
        return [(part.state, part.cursor) for part in parts]

    def _drivable(self, number: int) -> Operation | None:
        operation = self._resources.store.operations.get(number)
        return operation if operation is not None and operation.is_drivers else None

    def _short_turn_tasks(self) -> int:
        cores = self._cluster.defaultParallelism if isinstance(self._cluster, SparkContext) else TURN
        return TURN * max(1, cores)

    def _check(self, operation: Operation) -> None:
        """Check that the results can be written, before hours of work. Cancel the operation if not."""
        try:
            sums.check_target(self._cluster, self._resources, operation)
        except InputError as error:
            checked = operation.evolve(state=OperationState.CANCELLED, refusal=str(error))
            self._resources.store.operations.save(checked, None)
        else:
            self._resources.store.operations.save(operation.evolve(parquet_checked=True), SPARK_JOB.delay(1))

    def _job(self, operation: Operation, tasks: int, seconds: float) -> str:
        """Run a job whose tasks take about `seconds` at most. Return the error of a failed task or job, or an empty
        text."""
        work = Work(self._resources.settings, operation.id, self._name, seconds)
        self._job_runs = True
        try:
            results = run(self._cluster, tasks, work)
        except SweepFailed as error:
            results, failure = [], str(error)
        else:
            failure = next((result.error for result in results if result.error), "")
        finally:
            self._job_runs = False
            # The tasks of this job have ended. One may still run on an executor that Spark has lost; its commits will
            # fail.
            self._resources.store.operation_ranges.take_back([operation.id], [self._name])
        for result in results:
            carry_samples(as_samples(result.counted))
        if failure:
            log.warning("operation %d: a job in Spark failed: %s", operation.id, failure)
        return failure

    def _wait_or_give_up(self, operation: Operation, failure: str) -> None:
        number = operation.id
        # Failed ranges can be leased again after this delay.
        delay = SPARK_JOB.delay(1)
        gives_up = not self.is_alive
        if not gives_up and not self._resources.store.operation_ranges.leased(number, operation.phase):
            # Not counted as a failure while others have leases, because they make progress.
            request = self._fruitless.setdefault(number, SPARK_JOB.request(f"operation {number} in Spark"))
            error = SweepFailed(failure or self._reason(operation))
            ruling = decided(maybe_retry(request, SERVICE_NOT_AVAILABLE, error=error))
            delay, gives_up = ruling.delay, ruling.verdict is Verdict.FAIL
        if gives_up:
            self._fruitless.pop(number, None)
            raise SweepFailed(
                f"operation {number} was interrupted: {failure or self._reason(operation)}. What it has done "
                f"stays, and the next driver or worker continues; to end it: `recovery operation cancel {number}`"
            )
        self._ending.wait(delay)

    def _reason(self, operation: Operation) -> str:
        errors = [part.error for part in self._resources.store.operation_ranges.all(operation.id, operation.phase)]
        return next((error for error in errors if error), "Spark has no executor")


@contextmanager
def attended(resources: Resources, driver: Driver, waiting: Callable[[], Sequence[int]]) -> Iterator[None]:
    """Start a thread that reports Spark's presence while the block runs.

    The thread renews the driver's claim on its current operation, so that no other driver takes it, and marks waiting
    operations as attended, so that recovery workers leave them to Spark. It does neither while a job waits for
    executors that do not come, so that workers take over after a minute.

    Args:
        resources: The databases to use.
        driver: The driver of this Spark.
        waiting: Returns the numbers of waiting operations.
    """

    def attend() -> float:
        if driver.hold() and (numbers := waiting()):
            resources.store.operations.attend(numbers)
        return ATTEND_EVERY

    def failed(error: Exception) -> float:  # an error of a server, or of a record that another program wrote
        log.warning("operations in Spark: %s", in_a_line(error))
        return ATTEND_EVERY

    thread = ServiceThread("spark turns", attend, failed, first=ATTEND_EVERY)
    thread.start()
    try:
        yield
    finally:
        thread.stop(timeout=None)
