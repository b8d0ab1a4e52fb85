"""Metrics over HTTP: `http://RECOVERY_METRICS_HOST:RECOVERY_METRICS_PORT/metrics`, from a worker's parent process.

Beside what the worker's processes counted, the servers are asked for what no counter knows: see `asked`. A scrape gets
what was found within the last second: see `shared`.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Iterable
from typing import Any

from prometheus_client import REGISTRY, CollectorRegistry, Metric, make_wsgi_app, values
from prometheus_client.registry import Collector

from recovery.errors import PortTaken
from recovery.metrics import multiprocess
from recovery.metrics.answers import Messages
from recovery.metrics.asked import Asked
from recovery.metrics.server import MetricsServer
from recovery.metrics.shared import Shared
from recovery.settings import Settings
from recovery.store import Store

log = logging.getLogger(__name__)


PORTS = range(9101, 9165)
"""Those that are tried one after the other where none is set: a worker takes the first that is free."""
OFF = 0
"""As the setting: no metrics are served."""


def serve(settings: Settings, store: Store, broker: Messages) -> MetricsServer | None:
    """Serve from a thread until the process ends, or `shutdown` is called; None where it is off, or none of PORTS is
    free. Raises PortTaken for a port that is set."""
    if settings.metrics_port == OFF:
        return None
    registry = CollectorRegistry()
    in_files = values.ValueClass._multiprocess
    registry.register(Shared(Counted(os.environ.get("PROMETHEUS_MULTIPROC_DIR") if in_files else None)))
    registry.register(Shared(Asked(store, broker)))
    server = _listening(settings, make_wsgi_app(registry))
    if server is not None:
        server.start()
        log.info("metrics: http://%s:%d/metrics", settings.metrics_host, server.server_port)
    return server


def _listening(settings: Settings, application: Any) -> MetricsServer | None:
    host, wanted = settings.metrics_host, settings.metrics_port
    for port in PORTS if wanted is None else [wanted]:
        try:
            return MetricsServer(host, port, application)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise PortTaken(
                    f"metrics can't be served on {host}:{port}: {error.strerror}; set RECOVERY_METRICS_HOST"
                ) from None
            if wanted is not None:
                raise PortTaken(
                    f"metrics can't be served on {host}:{port}: the port is in use. Set RECOVERY_METRICS_PORT to "
                    "another one, a different one for each worker of a machine, or unset it: each then takes a free one"
                ) from None
    log.warning("no metrics: ports %d to %d of %s are in use; set RECOVERY_METRICS_PORT", PORTS[0], PORTS[-1], host)
    return None


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
