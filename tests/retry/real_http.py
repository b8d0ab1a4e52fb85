"""A real HTTP server that answers, or misbehaves, as the path says."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

RELEASED = threading.Event()


class Handler(BaseHTTPRequestHandler):
    """Answers `/503` with 503, `/503-later` with Retry-After, or misbehaves as its path says."""

    def do_GET(self) -> None:
        what = self.path.strip("/")
        if what == "reset":  # unread data and no lingering: the kernel says RST
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
        elif what == "hangs-up":
            self.connection.shutdown(socket.SHUT_RDWR)
        elif what == "slow":
            RELEASED.wait(30)
        elif what == "half":
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b"x" * 10)
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)
        else:
            status, _, later = what.partition("-")
            self.send_response(int(status))
            if later:
                self.send_header("Retry-After", "2")
            self.send_header("Content-Length", "0")
            self.end_headers()
        self.close_connection = True

    def log_message(self, *_: Any) -> None:
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: Any) -> None:
        """Of those that hang up."""


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    RELEASED.clear()
    with Server(("127.0.0.1", 0), Handler) as serving:
        threading.Thread(target=serving.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{serving.server_port}"
        RELEASED.set()
        serving.shutdown()
