"""What a scrape collects: what the worker's processes counted (`WorkerCounts`), and what the servers are asked, where
no counter knows it (`ServerCollector`). Each answer is kept for a second and shared by all who ask (`Shared`).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable

from prometheus_client import REGISTRY, Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from recovery.installed import library_version
from recovery.log_lines import Seldom
from recovery.metrics import answers, multiprocess
from recovery.metrics.answers import Messages
from recovery.store import ActorQueue, Store
from recovery.store.views.overview import time_limit

log = logging.getLogger(__name__)

ASK_TIMEOUT = 3.0
"""For all that MongoDB is asked: far below the 10 s after which Prometheus gives up a scrape."""

KEPT = 1.0
"""Seconds. What is told within 10 s may be as old as this, and Prometheus asks once in 15."""


class ServerCollector(Collector):
    """What the servers say when they are asked, as `answers` asks them.

    All but which servers answered is of the whole cluster, the same from every worker. If a server does not answer in
    time its metrics are left out, and the rest is served.
    """

    def __init__(self, store: Store, broker: Messages, *, sweeps: bool = False) -> None:
        """`sweeps`: whether beat orders sweeps."""
        self._store, self._broker = store, broker
        self._cheap = [*answers.CHEAP, answers.spark_workers] if sweeps else answers.CHEAP
        self._said = Seldom(log)

    def describe(self) -> list[Metric]:
        """Return nothing, because otherwise registering would ask the servers."""
        return []

    def collect(self) -> list[Metric]:
        """Return the metrics of all servers that answer in time."""
        found: list[Metric] = [_build()]
        actors: dict[str, ActorQueue] = {}

        def waiting() -> list[Metric]:
            actors.update(self._store.waiting.by_actor(count_served=False))
            return answers.of_queues(actors)

        with time_limit(ASK_TIMEOUT):
            if mongodb := self._answers("MongoDB", self._store.now):
                for ask in self._cheap:
                    found += self._asked(lambda ask=ask: ask(self._store))  # type: ignore[misc]
                # The dearest last: where the time is not enough they alone are left out.
                found += self._asked(waiting)
                found += self._asked(lambda: answers.overdue(self._store))
        if redis := self._answers("Redis", self._broker.check):
            found += self._asked(lambda: answers.depths(self._broker, actors))
        return [_up("mongodb", "MongoDB", mongodb), _up("redis", "Redis", redis), *found]

    def _answers(self, server: str, ask: Callable[[], object]) -> bool:
        try:
            ask()
        except Exception as error:  # whatever it is, the rest must be served
            self._said.warning("metrics without %s's: %s", server, error)
            return False
        return True

    def _asked(self, ask: Callable[[], list[Metric]]) -> list[Metric]:
        try:
            return ask()
        except Exception as error:  # the same; the next scrape asks again
            self._said.warning("metrics without some that could not be asked: %s", error)
            return []


def _build() -> Metric:
    metric = GaugeMetricFamily("recovery_build_info", "The version of this worker; always 1.", labels=["version"])
    metric.add_metric([library_version()], 1)
    return metric


def _up(name: str, server: str, answered: bool) -> Metric:
    return GaugeMetricFamily(f"recovery_{name}_up", f"Whether {server} answered this worker.", value=int(answered))


class WorkerCounts(Collector):
    """What this worker's processes counted: from the files they keep in `folder`, or, without one, from here."""

    def __init__(self, folder: str | None) -> None:
        self._folder = folder

    def describe(self) -> list[Metric]:
        """Return nothing, because otherwise registering would collect."""
        return []

    def collect(self) -> Iterable[Metric]:
        """Return the counts as they are at this scrape."""
        return multiprocess.collect(self._folder) if self._folder else REGISTRY.collect()


class Shared(Collector):
    """What another collector says, asked once a second at most. Who asks meanwhile waits for that answer.

    So a connection to the metrics' port costs what it takes to write the answer down: no query of MongoDB, and no look
    at the files of a worker's processes.
    """

    def __init__(self, collector: Collector) -> None:
        self._collector = collector
        self._lock = threading.Lock()
        self._found: list[Metric] = []
        self._at = float("-inf")

    def describe(self) -> Iterable[Metric]:
        """Return nothing, because otherwise registering would ask."""
        return []

    def collect(self) -> list[Metric]:
        """Return the kept answer, or a new one if it is too old. An error is not kept: the next scrape asks again."""
        with self._lock:
            if time.monotonic() - self._at >= KEPT:
                self._found = list(self._collector.collect())
                self._at = time.monotonic()
            return self._found
