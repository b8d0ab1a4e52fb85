"""An answer that is shared: however many ask, it is worked out by one at a time, and kept for a moment.

So a connection to the metrics' port costs what it takes to write the answer down: no query of MongoDB, and no look at
the files of a worker's processes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable

from prometheus_client import Metric
from prometheus_client.registry import Collector

KEPT = 1.0
"""Seconds. What is told within 10 s may be as old as this, and Prometheus asks once in 15."""


class Shared(Collector):
    """What another collector says, asked once a second at most. Who asks meanwhile waits for that answer."""

    def __init__(self, collector: Collector) -> None:
        self._collector = collector
        self._lock = threading.Lock()
        self._found: list[Metric] = []
        self._at = float("-inf")

    def describe(self) -> Iterable[Metric]:
        """Nothing: else registering would ask."""
        return []

    def collect(self) -> list[Metric]:
        """Asked for at every scrape. An error is not kept: the next one asks again."""
        with self._lock:
            if time.monotonic() - self._at >= KEPT:
                self._found = list(self._collector.collect())
                self._at = time.monotonic()
            return self._found
