"""A worker's part in operators' operations: in a thread of its own, or in Spark.

`Operating` answers Celery beat as the scanners do: a nudge makes this worker look for operations. It has its own
thread, because scanners must go on finding overdue records while an operation goes through millions of processes. Each
worker works on one range of processes at a time. A worker that is nudged while others work takes the next range, so all
workers take part within seconds.

`Driving` is the thread of a worker that serves the queue `spark`. It takes operations that are left to Spark. The first
operation starts a Spark session, which lives until the worker ends or Spark fails. Operations take turns, one Spark job
each. An operation that fails waits before its next turn.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from recovery.engine import Recovery, Resources
from recovery.engine.isolation import in_a_line, tell
from recovery.errors import RecoveryError, StoreError
from recovery.operations import OperationWorker
from recovery.retry.own_work import OPERATION_IN_SPARK, SPARK_SESSION
from recovery.settings import Settings
from recovery.threads import ServiceThread
from recovery.worker.lifeline.lifeline import Lifeline

if TYPE_CHECKING:
    from recovery.sweep.drive import Driver


TURN = 10.0
"""Seconds that a worker works on one operation before it checks whether other operations need a turn."""
log = logging.getLogger(__name__)
LOOK_EVERY = 1.0
"""Seconds between two looks for operations in Spark. A look is one small query."""
STOP_TIMEOUT = 8.0
"""Seconds that a worker waits for its Spark when it ends."""


class Operating:
    """The thread of a worker that works on operations."""

    def __init__(self, app: Recovery, lifeline: Lifeline) -> None:
        self._worker = OperationWorker(app.resources, app.outbox, lifeline.worker.id)
        self._lifeline = lifeline
        self._thread = ServiceThread("operations", self._work, self._failed)

    def start(self) -> None:
        """Begin to answer nudges."""
        self._thread.start()

    def stop(self) -> None:
        """Answer no more nudges. A page in progress is finished."""
        self._thread.stop()
        self._worker.stop()

    def nudge(self) -> None:
        """Look for operations soon. Does not wait."""
        self._thread.wake()

    def _work(self) -> float | None:
        if self._lifeline.judging.in_outage_grace():
            return None
        return 0.0 if self._worker.run_once(TURN) else None

    def _failed(self, error: Exception) -> None:
        tell("operations", error)  # caused by what another program wrote: the next nudge goes on


class Driving:
    """The thread of a worker that drives Spark."""

    def __init__(self, app: Recovery, lifeline: Lifeline) -> None:
        self._settings: Settings = app.settings
        self._resources: Resources = app.resources
        self._lifeline = lifeline
        self._driver: Driver | None = None
        self._later: dict[int, float] = {}
        self._noted = False
        self._thread = ServiceThread("spark", self._drive, self._failed, first=0.0)

    def start(self) -> None:
        """Begin to look for operations."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the operation in progress, which other workers continue, and end Spark."""
        self._thread.stop()
        if self._driver is not None:
            self._driver.stop()
        self._thread.stop(timeout=STOP_TIMEOUT)

    def _drive(self) -> float:
        if not self._noted:
            self._resources.store.workers.note_spark()
            self._noted = True
        if self._waiting():
            self._with_spark()
        return LOOK_EVERY

    def _failed(self, error: Exception) -> float:
        if isinstance(error, RecoveryError):
            log.warning("Spark: %s", in_a_line(error))
        else:  # an error of Spark, or caused by what another program wrote
            log.error("Spark failed; its session is started again", exc_info=error)
        return SPARK_SESSION.delay(1)

    def _waiting(self) -> list[int]:
        now = time.monotonic()
        numbers = [operation.id for operation in self._resources.store.operations.at_work() if operation.is_drivers]
        return [number for number in numbers if self._later.get(number, 0.0) <= now]

    def _with_spark(self) -> None:
        """Run a Spark session that gives operations their turns as long as it lives. Raises the error that ends the
        session."""
        from recovery.sweep.drive import Driver, attended
        from recovery.sweep.session import spark

        with spark(self._settings) as session:
            self._driver = driver = Driver(session, self._resources, self._lifeline.worker.id)
            try:
                with attended(self._resources, driver, self._waiting):
                    while not self._thread.is_ending and driver.is_alive:
                        if not self._round(driver):
                            self._thread.pause(LOOK_EVERY)
            finally:
                self._driver = None

    def _round(self, driver: Driver) -> bool:
        """Give a turn to each operation that waits. Return whether any waits."""
        waiting = self._waiting()
        for number in waiting:
            if self._thread.is_ending:
                break
            try:
                driver.step(number, others_wait=len(waiting) > 1)
            except StoreError as error:
                log.warning("operation %d: a step in Spark failed: %s", number, in_a_line(error))
                self._thread.pause(SPARK_SESSION.delay(1))
            except Exception as error:  # an error of Spark, or caused by what another program wrote
                if not driver.is_alive:
                    raise
                is_known = isinstance(error, RecoveryError)
                reason = in_a_line(error) if is_known else type(error).__name__
                text = "operation %d: a step in Spark failed: %s; other operations continue"
                log.warning(text, number, reason, exc_info=not is_known)
                # Until then workers take it over, if they can.
                self._later[number] = time.monotonic() + OPERATION_IN_SPARK.delay(1)
        return bool(waiting)
