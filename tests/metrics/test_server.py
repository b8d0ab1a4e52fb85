"""The metrics' server beside connections that say nothing, half of something, or read nothing."""

from __future__ import annotations

import contextlib
import socket
import threading
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psutil
import pytest

from recovery import log_lines as seldom
from recovery.metrics import exporter
from recovery.metrics.exporter import MAX_CONNECTIONS, MetricsServer
from recovery.stack.server_process import HOST, free_port
from tests.waiting import wait_until

HUNDREDS = 400
ANSWER = b"recovery_workers_alive 1.0\n"


class Served:
    """A server, what clients hold open of it, and what it holds itself."""

    def __init__(self, application: Callable[..., Any]) -> None:
        self.server = MetricsServer(HOST, free_port(), application)
        self.server.start()
        self.port = self.server.server_port
        self.clients: list[socket.socket] = []

    def connect(self, said: bytes = b"") -> socket.socket:
        client = socket.create_connection((HOST, self.port), timeout=10)
        self.clients.append(client)
        with contextlib.suppress(OSError):  # it may be closed already
            client.sendall(said)
        return client

    def scrape(self) -> bytes:
        with urllib.request.urlopen(f"http://{HOST}:{self.port}/metrics", timeout=10) as answer:
            return bytes(answer.read())

    def held(self) -> int:
        """Connections whose end this process has, as the server."""
        every = psutil.Process().net_connections("tcp")
        return sum(one.laddr.port == self.port and one.status != psutil.CONN_LISTEN for one in every)


def answer(_environ: Any, start_response: Any) -> list[bytes]:
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [ANSWER]


@pytest.fixture
def serve() -> Iterator[Callable[..., Served]]:
    made: list[Served] = []

    def begin(application: Callable[..., Any] = answer) -> Served:
        made.append(Served(application))
        return made[-1]

    yield begin
    for served in made:
        served.server.shutdown()
        served.server.server_close()
        for client in served.clients:
            client.close()


@pytest.mark.thorough
@pytest.mark.parametrize(
    "said",
    [
        pytest.param(b"", id="silent"),
        pytest.param(b"GET /metr", id="line", marks=pytest.mark.soak),
        pytest.param(b"GET /metrics HTTP/1.1\r\nHost: ", id="head"),
    ],
)
def test_hundreds_that_never_ask(serve: Callable[..., Served], said: bytes) -> None:
    served = serve()
    for number in range(HUNDREDS):
        served.connect(said)
        if number % 100 == 0:
            assert served.scrape() == ANSWER
    assert served.scrape() == ANSWER
    wait_until(lambda: served.held() <= MAX_CONNECTIONS, 10, "no more than it may hold")


def test_who_sends_for_ever_is_ended(serve: Callable[..., Served], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte comes in time; the request never does."""
    monkeypatch.setattr(exporter, "REQUEST_TIMEOUT", 0.5)
    served = serve()
    slow = served.connect(b"GET /metrics HTTP/1.1\r\n")

    def ended() -> bool:
        try:
            slow.sendall(b"X")
        except OSError:
            return True
        return False

    wait_until(ended, 5, "its end")
    assert served.held() == 0


def test_who_does_not_read_is_ended(serve: Callable[..., Served], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporter, "CONNECTION_TIMEOUT", 0.5)

    def much(_environ: Any, start_response: Any) -> list[bytes]:
        start_response("200 OK", [])
        return [bytes(64 << 20)]

    served = serve(much)
    served.connect(b"GET /metrics HTTP/1.1\r\n\r\n")
    wait_until(lambda: served.held() == 1, 5, "the request")
    wait_until(lambda: served.held() == 0, 5, "its end")


def test_who_is_being_answered_is_not_driven_out(serve: Callable[..., Served], monkeypatch: pytest.MonkeyPatch) -> None:
    """While all places are taken by those that asked, one more waits for a place, and no longer than a moment."""
    monkeypatch.setattr(exporter, "PLACE_TIMEOUT", 0.2)
    go = threading.Event()
    begun = threading.Semaphore(0)

    def slowly(environ: Any, start_response: Any) -> list[bytes]:
        begun.release()
        go.wait(10)
        return answer(environ, start_response)

    served = serve(slowly)
    asking = [served.connect(b"GET /metrics HTTP/1.0\r\n\r\n") for _ in range(MAX_CONNECTIONS)]
    assert all(begun.acquire(timeout=10) for _ in asking)
    assert served.connect(b"GET /metrics HTTP/1.0\r\n\r\n").recv(100) == b""
    go.set()
    for client in asking:
        said = b"".join(iter(lambda client=client: client.recv(4096), b""))  # type: ignore[misc]
        assert said.endswith(ANSWER)


def test_more_that_ask_than_there_are_places_wait_in_line(serve: Callable[..., Served]) -> None:
    """Thirty that ask again and again, and everybody is answered."""

    def slowly(environ: Any, start_response: Any) -> list[bytes]:
        threading.Event().wait(0.01)
        return answer(environ, start_response)

    served, together = serve(slowly), threading.Barrier(30)

    def ask() -> list[bytes]:
        together.wait(10)
        return [served.scrape() for _ in range(5)]

    with ThreadPoolExecutor(30) as clients:
        for answers in [clients.submit(ask) for _ in range(30)]:
            assert answers.result(30) == [ANSWER] * 5


@pytest.mark.parametrize("begun", [False, True], ids=["before", "within"])
def test_an_answer_that_fails_is_told_once_a_second(
    serve: Callable[..., Served],
    begun: bool,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(seldom, "EVERY", 60.0)

    def failing(_environ: Any, start_response: Any) -> Iterator[bytes]:
        if begun:
            start_response("200 OK", [])
            yield b"half"
        raise ValueError("a text of the client's")

    served = serve(failing)
    for _ in range(5):
        said = served.connect(b"GET /metrics HTTP/1.0\r\n\r\n").recv(100)
        assert said.startswith(b"HTTP/1.0 200 OK" if begun else b"HTTP/1.0 500 ")
    wait_until(lambda: served.held() == 0, 5, "their end")
    assert caplog.messages == ["a request to the metrics port failed: ValueError: a text of the client's"]
    assert capfd.readouterr().err == ""


def test_an_address_of_the_sixth_version() -> None:
    with MetricsServer("::1", free_port(), answer) as server:
        assert server.address_family is socket.AF_INET6
