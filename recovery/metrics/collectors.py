"""Collects the metrics of a scrape.

`WorkerCounts` returns what the worker's processes counted. `ServerCollector` queries the servers for what no counter
knows. `Shared` keeps each answer for a second, for all scrapes.
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
"""Maximum seconds for all queries of MongoDB: far below the 10 s after which Prometheus gives up a scrape."""

KEPT = 1.0
"""Seconds for which an answer is kept. Prometheus scrapes once in 15 s, so this is fresh enough."""


class ServerCollector(Collector):
    """The metrics that are queried from the servers (`answers`).

    All of them describe the whole cluster and are the same from every worker, except which servers answered this
    worker. If a server does not answer in time, its metrics are left out and the rest is served.
    """

    def __init__(self, store: Store, broker: Messages, *, sweeps: bool = False) -> None:
        """Create the collector. `sweeps`: whether beat orders sweeps, so that workers for Spark are needed."""
        self._store, self._broker = store, broker
        self._cheap = [*answers.CHEAP, answers.spark_workers] if sweeps else answers.CHEAP
        self._said = Seldom(log)

    def describe(self) -> list[Metric]:
        """Return nothing. Otherwise registering this collector would query the servers."""
        return []

    def collect(self) -> list[Metric]:
        """Return the metrics of all servers that answer in time."""
        collected: list[Metric] = [_build()]
        actors: dict[str, ActorQueue] = {}

        def queue_metrics() -> list[Metric]:
            actors.update(self._store.waiting.by_actor(count_served=False))
            return answers.of_queues(actors)

        with time_limit(ASK_TIMEOUT):
            if mongodb_answers := self._answers("MongoDB", self._store.now):
                for query in self._cheap:
                    collected += self._asked(lambda query=query: query(self._store))  # type: ignore[misc]
                # The most expensive queries come last. If time runs out, only they are left out.
                collected += self._asked(queue_metrics)
                collected += self._asked(lambda: answers.overdue(self._store))
        if redis_answers := self._answers("Redis", self._broker.check):
            collected += self._asked(lambda: answers.depths(self._broker, actors))
        return [_up("mongodb", "MongoDB", mongodb_answers), _up("redis", "Redis", redis_answers), *collected]

    def _answers(self, server: str, ask: Callable[[], object]) -> bool:
        try:
            ask()
        except Exception as error:  # any error: the other metrics must be served
            self._said.warning("no metrics of %s: %s", server, error)
            return False
        return True

    def _asked(self, ask: Callable[[], list[Metric]]) -> list[Metric]:
        try:
            return ask()
        except Exception as error:  # any error, as above; the next scrape queries again
            self._said.warning("some metrics could not be queried: %s", error)
            return []


def _build() -> Metric:
    metric = GaugeMetricFamily(
        "recovery_build_info", "Version of this worker; the value is always 1.", labels=["version"]
    )
    metric.add_metric([library_version()], 1)
    return metric


def _up(name: str, server: str, answered: bool) -> Metric:
    return GaugeMetricFamily(f"recovery_{name}_up", f"Whether {server} answered this worker.", value=int(answered))


class WorkerCounts(Collector):
    """The counts of this worker's processes: from the files in `folder` or, without a folder, from this process."""

    def __init__(self, folder: str | None) -> None:
        self._folder = folder

    def describe(self) -> list[Metric]:
        """Return nothing. Otherwise registering this collector would read the counts."""
        return []

    def collect(self) -> Iterable[Metric]:
        """Return the counts as they are at this scrape."""
        return multiprocess.collect(self._folder) if self._folder else REGISTRY.collect()


class Shared(Collector):
    """Keeps another collector's answer for a second. Scrapes that arrive meanwhile share it, or wait for it.

    So each connection to the metrics port costs only the time to write the answer: no query of MongoDB, and no read of
    the files of the worker's processes.
    """

    def __init__(self, collector: Collector) -> None:
        self._collector = collector
        self._lock = threading.Lock()
        self._found: list[Metric] = []
        self._at = float("-inf")

    def describe(self) -> Iterable[Metric]:
        """Return nothing. Otherwise registering this collector would query the other one."""
        return []

    def collect(self) -> list[Metric]:
        """Return the kept answer, or a new one if it is too old. An error is not kept: the next scrape asks again."""
        with self._lock:
            if time.monotonic() - self._at >= KEPT:
                self._found = list(self._collector.collect())
                self._at = time.monotonic()
            return self._found
