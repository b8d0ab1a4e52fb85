"""Metrics over HTTP: `http://RECOVERY_METRICS_HOST:RECOVERY_METRICS_PORT/metrics`, from a worker's parent process.

Beside what the worker's processes counted, the servers are asked for what no counter knows: see `asked`. A scrape gets
what was found within the last second: see `shared`.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable

from prometheus_client import REGISTRY, CollectorRegistry, Metric, make_wsgi_app
from prometheus_client.registry import Collector

from recovery.errors import PortTaken
from recovery.metrics import multiprocess
from recovery.metrics.answers import Messages
from recovery.metrics.asked import Asked
from recovery.metrics.server import MetricsServer
from recovery.metrics.shared import Shared
from recovery.settings import Settings
from recovery.store import Store


def serve(settings: Settings, store: Store, broker: Messages) -> MetricsServer:
    """Serve from a thread until the process ends, or `shutdown` is called. Raises PortTaken."""
    assert settings.metrics_port is not None
    registry = CollectorRegistry()
    registry.register(Shared(Counted(os.environ.get("PROMETHEUS_MULTIPROC_DIR"))))
    registry.register(Shared(Asked(store, broker)))
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
