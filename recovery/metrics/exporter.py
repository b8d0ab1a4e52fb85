"""Serves metrics over HTTP, at `http://RECOVERY_METRICS_HOST:RECOVERY_METRICS_PORT/metrics`, from a worker's parent
process.

`collectors` provides the metrics.

The server shares a process with a worker, so clients must not be able to exhaust it. At most MAX_CONNECTIONS are open,
each with a thread and a file descriptor. A request must arrive within REQUEST_TIMEOUT, and a connection ends after
CONNECTION_TIMEOUT, up to LOOK_EVERY later, however slowly the client sends or reads. If all places are taken, a new
connection waits until an answer is complete, which takes milliseconds. Or it takes the place of the oldest connection
that has not sent a whole request within its ASK_TIMEOUT. So a Prometheus server that sends its request at once is
answered next to any number of silent connections, and next to many busy ones. If no place becomes free within
PLACE_TIMEOUT, the new connection is closed.

Problems that clients cause are logged at most once a second, without a stack trace.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import ServerHandler, WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app, values

from recovery.errors import PortTaken
from recovery.log_lines import Seldom
from recovery.metrics.answers import Messages
from recovery.metrics.collectors import ServerCollector, Shared, WorkerCounts
from recovery.metrics_folder import MULTIPROC_DIR, OFF
from recovery.settings import Settings
from recovery.store import Store

log = logging.getLogger(__name__)


PORTS = range(9101, 9165)
"""Ports that are tried in turn if none is set. A worker takes the first free port."""

MAX_CONNECTIONS = 16
"""Maximum number of open connections: enough for several Prometheus servers and people, few of a worker's 1,024
descriptors."""
REQUEST_TIMEOUT = 5.0
"""Maximum seconds for a request to arrive. A request has a few hundred bytes."""
CONNECTION_TIMEOUT = 20.0
"""Maximum seconds of a connection. Prometheus gives up a scrape after 10 s."""
ASK_TIMEOUT = 0.1
"""Seconds for which a silent connection keeps its place in any case, so that a client whose request is read a little
later is served."""
LOOK_EVERY = 2.0
"""Seconds between two looks for connections that take too long. Shorter intervals would raise the cost of an idle
worker."""
PLACE_TIMEOUT, LOOK = 2.0, 0.02
"""PLACE_TIMEOUT: maximum seconds that a connection waits for a place; all later connections wait behind it. LOOK:
seconds between two looks for a place."""
LONGEST_LINE = 65536
"""Maximum bytes of a request's first line, as in Python's own server."""


def serve(settings: Settings, store: Store, broker: Messages) -> MetricsServer | None:
    """Serve metrics from a thread until the process ends or `shutdown` is called.

    Returns:
        The server; None if metrics are off, or if none of PORTS is free.

    Raises:
        PortTaken: The port that is set, or the host, can't be used.
    """
    if settings.metrics_port == OFF:
        return None
    registry = CollectorRegistry()
    in_files = values.ValueClass._multiprocess
    registry.register(Shared(WorkerCounts(os.environ.get(MULTIPROC_DIR) if in_files else None)))
    registry.register(Shared(ServerCollector(store, broker, sweeps=bool(settings.sweep_interval))))
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


@dataclass(slots=True)
class _Open:
    since: float
    asked: bool = False
    """Whether its whole request has arrived and is being answered."""


class MetricsServer(ThreadingMixIn, WSGIServer):
    """An HTTP server with one thread per connection and few connections. Raises OSError if it can't use its address."""

    daemon_threads = True
    request_queue_size = 128
    """Length of the queue of new connections. The default is 5, and more clients at once would wait a second for their
    next try."""

    def __init__(self, host: str, port: int, application: Callable[..., Any]) -> None:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        self.address_family, _, _, _, address = addresses[0]
        self._open: dict[socket.socket, _Open] = {}
        self._lock = threading.Condition()
        self.said = Seldom(log)
        super().__init__((str(address[0]), port), _Handler)
        self.set_app(application)

    def start(self) -> None:
        """Serve from a thread until the process ends or `shutdown` is called. `shutdown` waits up to LOOK_EVERY
        seconds."""
        threading.Thread(target=self.serve_forever, args=(LOOK_EVERY,), name="metrics", daemon=True).start()

    def heard(self, connection: socket.socket) -> None:
        """Note that a whole request arrived over this connection."""
        with self._lock:
            if connection in self._open:
                self._open[connection].asked = True

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            if self._gets_place():
                self._open[request] = _Open(time.monotonic())
        if request in self._open:
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def _gets_place(self) -> bool:
        """Return whether a new connection gets a place in time. A silent connection may lose its place to it."""
        until = time.monotonic() + PLACE_TIMEOUT
        while len(self._open) >= MAX_CONNECTIONS:
            now = time.monotonic()
            silent = next((connection for connection, state in self._open.items() if not state.asked), None)
            if silent is not None and now - self._open[silent].since >= ASK_TIMEOUT:
                self._break(silent)
            elif now >= until:
                return False
            else:
                self._lock.wait(LOOK)
        return True

    def service_actions(self) -> None:
        """End connections that take too long. The server calls this every LOOK_EVERY seconds and after each
        connection."""
        now = time.monotonic()
        with self._lock:
            for connection, state in list(self._open.items()):
                if now - state.since > (CONNECTION_TIMEOUT if state.asked else REQUEST_TIMEOUT):
                    self._break(connection)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.pop(request, None)
            self._lock.notify()
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        """Log a connection that broke off, at level DEBUG: this is not worth a warning."""
        log.debug("a connection to the metrics failed: %s", sys.exc_info()[1])

    def _break(self, connection: socket.socket) -> None:
        """Shut a connection down, so that its thread stops waiting for it.

        Only that thread closes the connection. Otherwise another connection could get the same descriptor while it is
        in use.
        """
        del self._open[connection]
        with suppress(OSError):  # the connection has already ended
            connection.shutdown(socket.SHUT_RDWR)


class _Answer(ServerHandler):
    """One answer. An error becomes a 500 and is logged without its stack trace."""

    said: Seldom

    def log_exception(self, exc_info: Any) -> None:
        self.said.warning("a request to the metrics port failed: %s: %s", exc_info[0].__name__, str(exc_info[1])[:200])


class _Handler(WSGIRequestHandler):
    """One request of one connection."""

    server: MetricsServer

    def parse_request(self) -> bool:
        is_complete = super().parse_request()
        if is_complete:
            self.server.heard(self.connection)
        return is_complete

    def handle(self) -> None:
        """Do the same as Python's method, which does not let subclasses choose the handler of the answer."""
        self.raw_requestline = self.rfile.readline(LONGEST_LINE + 1)
        if len(self.raw_requestline) > LONGEST_LINE:
            self.requestline = self.request_version = self.command = ""
            self.send_error(HTTPStatus.REQUEST_URI_TOO_LONG)
            return
        if not self.parse_request():
            return
        environ, application = self.get_environ(), self.server.get_app()
        assert application is not None
        handler = _Answer(self.rfile, self.wfile, self.get_stderr(), environ, multithread=True)  # type: ignore[arg-type]
        handler.request_handler = self  # type: ignore[attr-defined]
        handler.said = self.server.said
        handler.run(application)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing about a scrape."""
