"""Metrics over HTTP: `http://RECOVERY_METRICS_HOST:RECOVERY_METRICS_PORT/metrics`, from a worker's parent process.

Beside what the worker's processes counted, each scrape asks the servers for what no counter knows:

    recovery_queue_depth{queue}                messages that wait in Redis
    recovery_oldest_overdue_seconds{record}    how long the longest overdue record is past its deadline; 0: none is
    recovery_workers_alive                     workers whose heartbeat is not overdue

These are of the whole cluster, the same from every worker: take their maximum, not their sum. A server that does
not answer within ASK_WITHIN leaves out its own, and the rest is served.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Iterable, Mapping
from typing import Protocol

from prometheus_client import REGISTRY, CollectorRegistry, Metric, make_wsgi_app
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from recovery.errors import PortTaken
from recovery.metrics import multiprocess
from recovery.metrics.server import MetricsServer
from recovery.settings import Settings
from recovery.store import Store
from recovery.store.overview import DEADLINES, Overview, impatient

log = logging.getLogger(__name__)

ASK_WITHIN = 3.0
"""Far below the 10 s after which Prometheus gives up a scrape."""


class Depths(Protocol):
    """The broker, as far as it is needed here."""

    def depths(self, queues: Iterable[str]) -> Mapping[str, int]:
        """How many messages wait in each queue."""


def serve(settings: Settings, store: Store, broker: Depths) -> MetricsServer:
    """Serve from a thread until the process ends, or `shutdown` is called. Raises PortTaken."""
    assert settings.metrics_port is not None
    registry = CollectorRegistry()
    registry.register(Counted(os.environ.get("PROMETHEUS_MULTIPROC_DIR")))
    registry.register(Asked(store, broker))
    try:
        server = MetricsServer(settings.metrics_host, settings.metrics_port, make_wsgi_app(registry))
    except OSError as error:
        where = f"{settings.metrics_host}:{settings.metrics_port}"
        if error.errno != errno.EADDRINUSE:
            raise PortTaken(
                f"metrics can't be served on {where}: {error.strerror}; set RECOVERY_METRICS_HOST"
            ) from None
        raise PortTaken(
            f"metrics can't be served on {where}: the port is in use. Set RECOVERY_METRICS_PORT to another one, a "
            "different one for each worker of a machine"
        ) from None
    server.start()
    return server


class Counted(Collector):
    """What this worker's processes counted: from the files they keep in `folder`, or, without one, from here."""

    def __init__(self, folder: str | None) -> None:
        self._folder = folder

    def describe(self) -> list[Metric]:
        """Nothing: else registering would collect."""
        return []

    def collect(self) -> Iterable[Metric]:
        """Asked for at every scrape."""
        return multiprocess.collect(self._folder) if self._folder else REGISTRY.collect()


class Asked(Collector):
    """What the servers say when they are asked."""

    def __init__(self, store: Store, broker: Depths) -> None:
        self._overview, self._broker = Overview(store.database), broker

    def describe(self) -> list[Metric]:
        """Nothing: else registering would ask the servers."""
        return []

    def collect(self) -> list[Metric]:
        """Asked for at every scrape."""
        queues: list[str] = []
        found: list[Metric] = []
        try:
            with impatient(ASK_WITHIN):
                found = self._mongo()
                queues = self._overview.actor_names()
        except Exception as error:  # whatever it is, the rest must be served
            log.warning("metrics without MongoDB's: %s", error)
        try:
            found += [self._depths(queues)] if queues else []
        except Exception as error:
            log.warning("metrics without Redis's: %s", error)
        return found

    def _mongo(self) -> list[Metric]:
        overdue = GaugeMetricFamily(
            "recovery_oldest_overdue_seconds", "How long the longest overdue record is past it.", labels=["record"]
        )
        for collection in DEADLINES:
            overdue.add_metric([collection], self._overview.oldest_overdue(collection))
        alive = len(self._overview.workers_alive())
        return [overdue, GaugeMetricFamily("recovery_workers_alive", "Workers that live.", value=alive)]

    def _depths(self, queues: list[str]) -> Metric:
        depth = GaugeMetricFamily("recovery_queue_depth", "Messages that wait in Redis.", labels=["queue"])
        for queue, messages in self._broker.depths(queues).items():
            depth.add_metric([queue], messages)
        return depth
