"""What the servers are asked for scrapes, since no counter knows it: `answers` tells what each is asked, `Asked` asks.

All but which servers answered are of the whole cluster, the same from every worker. A server that does not answer in
time leaves out its own, and the rest is served.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from recovery.installed import library_version
from recovery.log_lines import Seldom
from recovery.metrics import answers
from recovery.metrics.answers import Messages
from recovery.store import ActorQueue, Store
from recovery.store.views.overview import time_limit

log = logging.getLogger(__name__)

ASK_TIMEOUT = 3.0
"""For all that MongoDB is asked: far below the 10 s after which Prometheus gives up a scrape."""


class Asked(Collector):
    """What the servers say when they are asked."""

    def __init__(self, store: Store, broker: Messages) -> None:
        self._store, self._broker = store, broker
        self._said = Seldom(log)

    def describe(self) -> list[Metric]:
        """Nothing: else registering would ask the servers."""
        return []

    def collect(self) -> list[Metric]:
        """Of all that answer in time."""
        found: list[Metric] = [_build()]
        actors: dict[str, ActorQueue] = {}

        def waiting() -> list[Metric]:
            actors.update(self._store.waiting.by_actor(count_served=False))
            return answers.of_queues(actors)

        with time_limit(ASK_TIMEOUT):
            if mongodb := self._answers("MongoDB", self._store.now):
                for ask in answers.CHEAP:
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
