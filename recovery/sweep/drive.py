"""An operation driven in Spark: step by step, until nobody has to work at it.

All that counts is in MongoDB. A driver, an executor or a worker of Spark's that is killed costs the leases that it had,
which the next driver, or the next job of this one, takes back; where no driver comes, recovery workers go on. Of many
drivers one at a time drives an operation.
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
"""Seconds for which others leave an operation to who drives it, unless he says so again."""
ATTEND_EVERY = 10.0
"""Seconds. What waits is left alone after sixty."""
TASKS = 2000
"""Of one job."""
TURN, TURN_SECONDS = 2, 10.0
"""Tasks for each core, of a job beside which other operations wait, and how long each may take; then its range is given
back, unless it is gone through as a whole."""


class Driver:
    """Drives operations in one Spark. `name` is told with what its executors lease."""

    def __init__(self, cluster: SparkContext | SparkSession, resources: Resources, name: str) -> None:
        self._cluster, self._resources, self._name = cluster, resources, name
        self._ending = threading.Event()
        self._fruitless: dict[int, ServerCall] = {}
        self._at: Operation | None = None
        self._runs = False

    def stop(self) -> None:
        """Give up what is under way: its ranges can be leased again at once."""
        self._ending.set()
        with suppress(PySparkException, Py4JError, OSError):  # it has ended
            if isinstance(self._cluster, SparkContext):
                self._cluster.cancelAllJobs()
            else:
                self._cluster.interruptAll()

    @property
    def is_alive(self) -> bool:
        """Whether its Spark still is."""
        return is_alive(self._cluster)

    def drive(self, number: int) -> None:
        """Go on with an operation until nobody has to work at it, or Spark is not to. Raises what `step` does."""
        with attended(self._resources, self, list):
            while not self._ending.is_set() and self.step(number):
                pass

    def hold(self) -> bool:
        """Have other drivers leave the operation to this one for another while; False where it is not at work: a job
        waits for executors, so the operation is not told to be attended to."""
        at, store = self._at, self._resources.store
        if at is None:
            return True
        if self._runs and not store.operation_ranges.leased(at.id, at.phase):
            return False
        return store.operations.drive(at.id, self._name, DRIVEN)

    def step(self, number: int, *, others_wait: bool = False) -> bool:
        """Take an operation a step further, a job at the most; whether it is to be gone on with. Raises SweepFailed,
        with what the last range failed for; StoreError."""
        operation = self._at_work(number)
        if operation is None:
            self._fruitless.pop(number, None)
            return False
        store = self._resources.store
        if not store.operations.drive(number, self._name, DRIVEN):
            self._ending.wait(1.0)
            return True
        self._at = operation
        try:
            self._step(operation, others_wait)
        finally:
            self._at = None
        return True

    def _step(self, operation: Operation, others_wait: bool) -> None:
        number, store = operation.id, self._resources.store
        if operation.awaits_parquet and not operation.parquet_checked:
            self._check(operation)
            return
        left = store.operation_ranges.how_many_open(number, operation.phase) if operation.ready else 0
        if operation.state is OperationState.ADMITTING or not left:
            if operation.ready and sums.are_wanted(self._resources, operation):
                sums.save(self._cluster, self._resources, operation)
            advance(self._resources, store.operations.get(number) or operation)
            return
        before = self._done(operation)
        tasks, seconds = (self._turn(), TURN_SECONDS) if others_wait else (TASKS, math.inf)
        failure = self._job(operation, min(left, tasks), seconds)
        if self._done(operation) != before:
            self._fruitless.pop(number, None)
        else:
            self._wait_or_give_up(operation, failure)

    def _done(self, operation: Operation) -> list[tuple[RangeState, str | None]]:
        parts = self._resources.store.operation_ranges.all(operation.id, operation.phase)
        return [(part.state, part.cursor) for part in parts]

    def _at_work(self, number: int) -> Operation | None:
        operation = self._resources.store.operations.get(number)
        return operation if operation is not None and operation.is_drivers else None

    def _turn(self) -> int:
        cores = self._cluster.defaultParallelism if isinstance(self._cluster, SparkContext) else TURN
        return TURN * max(1, cores)

    def _check(self, operation: Operation) -> None:
        """See that its results can be written where they are wanted, before an hour's work; if not, it is cancelled."""
        try:
            sums.check_target(self._cluster, self._resources, operation)
        except InputError as error:
            checked = operation.evolve(state=OperationState.CANCELLED, refusal=str(error))
            self._resources.store.operations.save(checked, None)
        else:
            self._resources.store.operations.save(operation.evolve(parquet_checked=True), SPARK_JOB.delay(1))

    def _job(self, operation: Operation, tasks: int, seconds: float) -> str:
        """Run one, each of whose tasks takes about so long at the most; why it failed, if it did."""
        work = Work(self._resources.settings, operation.id, self._name, seconds)
        self._runs = True
        try:
            done = run(self._cluster, tasks, work)
        except SweepFailed as error:
            done, failure = [], str(error)
        else:
            failure = next((one.error for one in done if one.error), "")
        finally:
            self._runs = False
            # None of this job's tasks run any more, but one on an executor that Spark has abandoned: its commits fail.
            self._resources.store.operation_ranges.take_back([operation.id], [self._name])
        for one in done:
            carry_samples(as_samples(one.counted))
        if failure:
            log.warning("operation %d: a job in Spark failed: %s", operation.id, failure)
        return failure

    def _wait_or_give_up(self, operation: Operation, failure: str) -> None:
        number = operation.id
        # Ranges that failed are free again by then.
        delay = SPARK_JOB.delay(1)
        gives_up = not self.is_alive
        if not gives_up and not self._resources.store.operation_ranges.leased(number, operation.phase):
            # Not by others, who get done what there is.
            request = self._fruitless.setdefault(number, SPARK_JOB.request(f"operation {number} in Spark"))
            error = SweepFailed(failure or self._reason(operation))
            ruling = decided(maybe_retry(request, SERVICE_NOT_AVAILABLE, error=error))
            delay, gives_up = ruling.delay, ruling.verdict is Verdict.FAIL
        if gives_up:
            self._fruitless.pop(number, None)
            raise SweepFailed(
                f"operation {number} was cut off: {failure or self._reason(operation)}. What it did until then "
                f"stays, and it is gone on with; to end it: `recovery operation cancel {number}`"
            )
        self._ending.wait(delay)

    def _reason(self, operation: Operation) -> str:
        told = [one.error for one in self._resources.store.operation_ranges.all(operation.id, operation.phase)]
        return next((error for error in told if error), "Spark has no executor")


@contextmanager
def attended(resources: Resources, driver: Driver, waiting: Callable[[], Sequence[int]]) -> Iterator[None]:
    """Have a thread tell meanwhile that there is a Spark at work: for the operation that is driven in it, and for those
    that wait for their turn. So no other driver takes the one, and recovery workers leave all alone. It does not
    tell while a job waits for executors that do not come, so workers go on after a minute.

    Args:
        resources: Where it is told.
        driver: Who drives operations here.
        waiting: Returns the numbers of the operations that wait.
    """

    def attend() -> float:
        if driver.hold() and (numbers := waiting()):
            resources.store.operations.attend(numbers)
        return ATTEND_EVERY

    def failed(error: Exception) -> float:  # of the servers, or of whatever another program wrote
        log.warning("operations in Spark: %s", in_a_line(error))
        return ATTEND_EVERY

    thread = ServiceThread("spark turns", attend, failed, first=ATTEND_EVERY)
    thread.start()
    try:
        yield
    finally:
        thread.stop(timeout=None)
