"""Drives Spark: a worker that serves the queue `spark` takes operations that are left to it, in one session.

In a thread of the worker's parent process. The first operation starts Spark; after that a session is there, until the
worker ends or Spark fails. Operations take turns, a job each; one that fails has its next turn later.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

from recovery.engine import Recovery, Resources
from recovery.engine.isolation import in_a_line
from recovery.errors import RecoveryError, StoreError
from recovery.settings import Settings
from recovery.worker.lifeline.lifeline import Lifeline

if TYPE_CHECKING:
    from recovery.sweep.drive import Driver

log = logging.getLogger(__name__)

LOOK_EVERY = 1.0
"""Seconds. One small query."""
ATTEND_EVERY = 10.0
"""Seconds, while a job runs: so the operations that wait for their turn are not left alone."""
RETRY_AFTER = 10.0
"""Seconds until Spark is started again that failed."""
LATER = 120.0
"""Seconds until an operation that failed has its next turn: workers take it over, if they can."""
STOP_TIMEOUT = 8.0
"""Seconds that a worker waits for its Spark when it ends."""


class Driving:
    """The threads of a worker that drive Spark, and tell that they do."""

    def __init__(self, app: Recovery, lifeline: Lifeline) -> None:
        self._settings: Settings = app.settings
        self._resources: Resources = app.resources
        self._lifeline = lifeline
        self._ending = threading.Event()
        self._driver: Driver | None = None
        self._driven: int | None = None
        self._later: dict[int, float] = {}
        self._threads = [
            threading.Thread(target=self._run, name="spark", daemon=True),
            threading.Thread(target=self._attend, name="spark turns", daemon=True),
        ]

    def start(self) -> None:
        """Begin to look for operations."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Give up what is under way, which others go on with, and end Spark."""
        self._ending.set()
        if self._driver is not None:
            self._driver.stop()
        self._threads[0].join(STOP_TIMEOUT)

    def _run(self) -> None:
        while not self._ending.is_set():
            try:
                if self._waiting():
                    self._with_spark()
                self._ending.wait(LOOK_EVERY)
            except RecoveryError as error:
                log.warning("Spark: %s", in_a_line(error))
                self._ending.wait(RETRY_AFTER)
            except Exception:  # of Spark, or of whatever another program wrote
                log.exception("Spark failed; it is started again")
                self._ending.wait(RETRY_AFTER)

    def _waiting(self) -> list[int]:
        now = time.monotonic()
        found = [one.id for one in self._resources.store.operations.at_work() if one.is_drivers]
        return [number for number in found if self._later.get(number, 0.0) <= now]

    def _with_spark(self) -> None:
        """A session, in which operations have their turns as long as it lives. Raises whatever it ends with."""
        from recovery.sweep.drive import Driver
        from recovery.sweep.session import spark

        with spark(self._settings) as cluster:
            self._driver = driver = Driver(cluster, self._resources, self._lifeline.worker.id)
            try:
                while not self._ending.is_set() and driver.is_alive:
                    if not self._round(driver):
                        self._ending.wait(LOOK_EVERY)
            finally:
                self._driver = self._driven = None

    def _round(self, driver: Driver) -> bool:
        """A turn for each operation that waits; whether any does."""
        waiting = self._waiting()
        for number in waiting:
            if self._ending.is_set():
                break
            self._driven = number
            try:
                driver.step(number, others_wait=len(waiting) > 1)
            except StoreError as error:
                log.warning("operation %d in Spark: %s", number, in_a_line(error))
                self._ending.wait(RETRY_AFTER)
            except Exception as error:  # of Spark, or of whatever another program wrote
                if not driver.is_alive:
                    raise
                told = in_a_line(error) if isinstance(error, RecoveryError) else ""
                log.warning("operation %d in Spark: %s; the others go on", number, told, exc_info=not told)
                self._later[number] = time.monotonic() + LATER
            finally:
                self._driven = None
        return bool(waiting)

    def _attend(self) -> None:
        """Tell that there is a Spark, for what it is at and for what waits."""
        from recovery.sweep.drive import DRIVEN

        while not self._ending.wait(ATTEND_EVERY):
            try:
                if self._driver is not None and (waiting := self._waiting()):
                    self._resources.store.operations.attend(waiting)
                    if (driven := self._driven) is not None:
                        self._resources.store.operations.drive(driven, self._lifeline.worker.id, DRIVEN)
            except Exception as error:  # of the servers, or of whatever another program wrote
                log.warning("operations in Spark: %s", in_a_line(error))
