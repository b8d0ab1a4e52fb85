"""Says that Redis is back. Celery warns that the connection was lost, and tells of the next one only as it does of each
worker's first: who reads warnings alone would never know."""

from __future__ import annotations

import logging
import time
from typing import Any

from celery import bootsteps

log = logging.getLogger(__name__)


class OutageEnd(bootsteps.StartStopStep):  # type: ignore[misc]
    """A part of Celery's consumer: stopped when its connection is lost, started once there is another."""

    requires = ("celery.worker.consumer.tasks:Tasks",)

    def __init__(self, consumer: Any, **options: Any) -> None:
        super().__init__(consumer, **options)
        self._lost_at: float | None = None

    def start(self, _consumer: Any) -> None:
        if self._lost_at is not None:
            log.warning("Redis is back, after %.0f s: messages are taken again", time.monotonic() - self._lost_at)
            self._lost_at = None

    def stop(self, _consumer: Any) -> None:
        self._lost_at = self._lost_at or time.monotonic()
