"""Metrics over HTTP: `http://RECOVERY_METRICS_HOST:RECOVERY_METRICS_PORT/metrics`, from a worker's parent process.
`collectors` says what is served.

The HTTP server shares a process with a worker, so nobody who reaches its port can use it up. MAX_CONNECTIONS are open
at once, each with a thread and a descriptor. A request has REQUEST_TIMEOUT to come, and the whole connection
CONNECTION_TIMEOUT, until the next look, however slowly somebody sends or reads. One connection too many waits in line
until an answer is given, which takes milliseconds, or takes the place of the one that has sent no whole request for the
longest, once that had its ASK_TIMEOUT. So a Prometheus that asks at once is answered beside any number of connections
that send nothing, and beside many that ask. If no place becomes free in PLACE_TIMEOUT the connection is closed.

What a client does is logged at most once a second, and without a stack.
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
"""Ports that are tried one after another if none is set: a worker takes the first that is free."""

MAX_CONNECTIONS = 16
"""Some Prometheus servers that scrape at once, and people; of a worker's 1,024 descriptors nothing."""
REQUEST_TIMEOUT = 5.0
"""Seconds for a request's few hundred bytes."""
CONNECTION_TIMEOUT = 20.0
"""Seconds. Prometheus gives up a scrape after 10."""
ASK_TIMEOUT = 0.1
"""Seconds in which no other takes its place: whoever asks at once, and is read a little later, is not driven out."""
LOOK_EVERY = 2.0
"""Seconds between two looks for connections that take too long. Oftener is a part of what an idle worker costs."""
PLACE_TIMEOUT, LOOK = 2.0, 0.02
"""Seconds that one too many waits, and with it all that come after it; and between two looks for a place."""
LONGEST_LINE = 65536
"""Bytes of a request's first line, as Python's server has it."""


def serve(settings: Settings, store: Store, broker: Messages) -> MetricsServer | None:
    """Serve from a thread until the process ends, or `shutdown` is called; None where it is off, or none of PORTS is
    free. Raises PortTaken for a port that is set."""
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
    """Whether its request has come, and it is being answered."""


class MetricsServer(ThreadingMixIn, WSGIServer):
    """A thread for each connection, of which there are few. Raises OSError for an address that it can't have."""

    daemon_threads = True
    request_queue_size = 128
    """By default five: more at once would wait for a second, until they ask again."""

    def __init__(self, host: str, port: int, application: Callable[..., Any]) -> None:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        self.address_family, _, _, _, address = found[0]
        self._open: dict[socket.socket, _Open] = {}
        self._lock = threading.Condition()
        self.said = Seldom(log)
        super().__init__((str(address[0]), port), _Handler)
        self.set_app(application)

    def start(self) -> None:
        """Serve from a thread until the process ends, or `shutdown` is called, which waits for the next look."""
        threading.Thread(target=self.serve_forever, args=(LOOK_EVERY,), name="metrics", daemon=True).start()

    def heard(self, connection: socket.socket) -> None:
        """Note that a whole request came over this connection."""
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
        """Whether there is room for one more within the time; who says nothing makes room."""
        until = time.monotonic() + PLACE_TIMEOUT
        while len(self._open) >= MAX_CONNECTIONS:
            now = time.monotonic()
            silent = next((one for one, known in self._open.items() if not known.asked), None)
            if silent is not None and now - self._open[silent].since >= ASK_TIMEOUT:
                self._break(silent)
            elif now >= until:
                return False
            else:
                self._lock.wait(LOOK)
        return True

    def service_actions(self) -> None:
        """End what takes too long. Called with each look, and after each connection."""
        now = time.monotonic()
        with self._lock:
            for connection, known in list(self._open.items()):
                if now - known.since > (CONNECTION_TIMEOUT if known.asked else REQUEST_TIMEOUT):
                    self._break(connection)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.pop(request, None)
            self._lock.notify()
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        """A connection that ended in the middle is no news."""
        log.debug("a connection to the metrics failed: %s", sys.exc_info()[1])

    def _break(self, connection: socket.socket) -> None:
        """Have its thread, which waits for it, see its end. Only that one closes it: else another might get its
        number while it is still in use."""
        del self._open[connection]
        with suppress(OSError):  # it has ended by itself
            connection.shutdown(socket.SHUT_RDWR)


class _Answer(ServerHandler):
    """One answer: what fails is a 500, and told without its stack."""

    said: Seldom

    def log_exception(self, exc_info: Any) -> None:
        self.said.warning("a request to the metrics port failed: %s: %s", exc_info[0].__name__, str(exc_info[1])[:200])


class _Handler(WSGIRequestHandler):
    """One request of one connection."""

    server: MetricsServer

    def parse_request(self) -> bool:
        whole = super().parse_request()
        if whole:
            self.server.heard(self.connection)
        return whole

    def handle(self) -> None:
        """As Python's has it, which lets nobody choose who answers."""
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
        """Nothing is logged of a scrape."""
