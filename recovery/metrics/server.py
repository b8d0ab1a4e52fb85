"""The HTTP server of the metrics, that whoever reaches its port can't use up.

It shares a process with a worker, so what it takes is bounded: MAX_CONNECTIONS at once, each a thread and a
descriptor, REQUEST_WITHIN for a request to come and CONNECTION_WITHIN for the whole of it, however slowly somebody
sends or reads. One too many takes the place of the one that has sent no whole request for the longest, so a Prometheus
that asks at once is answered beside any number that say nothing; if all are being answered it is closed.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

log = logging.getLogger(__name__)

MAX_CONNECTIONS = 16
"""Some Prometheus servers that scrape at once, and people; of a worker's 1,024 descriptors nothing."""
REQUEST_WITHIN = 5.0
"""Seconds for a request's few hundred bytes."""
CONNECTION_WITHIN = 20.0
"""Seconds. Prometheus gives up a scrape after 10."""


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
        self._lock = threading.Lock()
        super().__init__((str(address[0]), port), _Handler)
        self.set_app(application)

    def start(self) -> None:
        """Serve from a thread until the process ends, or `shutdown` is called."""
        threading.Thread(target=self.serve_forever, name="metrics", daemon=True).start()

    def heard(self, connection: socket.socket) -> None:
        """A whole request came."""
        with self._lock:
            if connection in self._open:
                self._open[connection].asked = True

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            silent = next((one for one, known in self._open.items() if not known.asked), None)
            full = len(self._open) >= MAX_CONNECTIONS
            if full and silent is not None:
                self._break(silent)
            if not full or silent is not None:
                self._open[request] = _Open(time.monotonic())
        if request in self._open:
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def service_actions(self) -> None:
        """End what takes too long. Called twice a second, and after each connection."""
        now = time.monotonic()
        with self._lock:
            for connection, known in list(self._open.items()):
                if now - known.since > (CONNECTION_WITHIN if known.asked else REQUEST_WITHIN):
                    self._break(connection)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        """A connection that ended in the middle is no news."""
        log.debug("a connection to the metrics failed", exc_info=True)

    def _break(self, connection: socket.socket) -> None:
        """Have its thread, which waits for it, see its end. Only that one closes it: else another might get its
        number while it is still in use."""
        del self._open[connection]
        with suppress(OSError):  # it has ended by itself
            connection.shutdown(socket.SHUT_RDWR)


class _Handler(WSGIRequestHandler):
    """One request of one connection."""

    server: MetricsServer

    def parse_request(self) -> bool:
        whole = super().parse_request()
        if whole:
            self.server.heard(self.connection)
        return whole

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is logged of a scrape."""
