"""Drives Spark: a worker that serves the queue `spark` takes operations that are left to it, in one session.

In a thread of the worker's parent process. The first operation starts Spark; after that a session is there, until the
worker ends or Spark fails.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from recovery.engine import Recovery, Resources
from recovery.engine.isolation import in_a_line
from recovery.errors import RecoveryError
from recovery.settings import Settings
from recovery.worker.lifeline.lifeline import Lifeline

if TYPE_CHECKING:
    from recovery.sweep.drive import Driver

log = logging.getLogger(__name__)

LOOK_EVERY = 1.0
"""Seconds. One small query."""
RETRY_AFTER = 10.0
"""Seconds until Spark is started again that failed."""
STOP_TIMEOUT = 8.0
"""Seconds that a worker waits for its Spark when it ends."""


class Driving:
    """The thread of a worker that drives Spark."""

    def __init__(self, app: Recovery, lifeline: Lifeline) -> None:
        self._settings: Settings = app.settings
        self._resources: Resources = app.resources
        self._lifeline = lifeline
        self._ending = threading.Event()
        self._driver: Driver | None = None
        self._thread = threading.Thread(target=self._run, name="spark", daemon=True)

    def start(self) -> None:
        """Begin to look for operations."""
        self._thread.start()

    def stop(self) -> None:
        """Give up what is under way, which others go on with, and end Spark."""
        self._ending.set()
        if self._driver is not None:
            self._driver.stop()
        self._thread.join(STOP_TIMEOUT)

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
        return [one.id for one in self._resources.store.operations.at_work() if one.is_drivers]

    def _with_spark(self) -> None:
        """Drive one operation after the other. Raises whatever Spark and the servers fail with."""
        from recovery.sweep.drive import Driver
        from recovery.sweep.session import spark

        with spark(self._settings) as cluster:
            self._driver = driver = Driver(cluster, self._resources, self._lifeline.worker.id)
            try:
                while not self._ending.wait(LOOK_EVERY):
                    for number in self._waiting():
                        driver.drive(number)
            finally:
                self._driver = None
