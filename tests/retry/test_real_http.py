"""Answers of a real HTTP server, as each library raises them: what they are, and what becomes of them. Python's own,
requests and httpx; aiohttp where it is installed."""

from __future__ import annotations

import asyncio
import http.client
import importlib
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from recovery.retry import BestEffort, ServerCall
from recovery.retry.in_place import call
from recovery.stack.server_process import free_port
from tests.retry.caught import caught
from tests.retry.outcome import Outcome, outcome
from tests.retry.real_http import server as server
from tests.tls import certificate, terminated

SOON, PATIENT = 0.3, 30.0
"""Seconds that an answer is waited for: where none comes, and else."""

Get = Callable[[str], object]


def timeout(url: str) -> float:
    return SOON if url.endswith("/slow") else PATIENT


def by_urllib(url: str) -> object:
    with urllib.request.urlopen(url, timeout=timeout(url)) as answer:
        return answer.read()


def by_http_client(url: str) -> object:
    host, _, path = url.removeprefix("http://").partition("/")
    connection = http.client.HTTPConnection(host, timeout=timeout(url))
    try:
        connection.request("GET", f"/{path}")
        return connection.getresponse().read()
    finally:
        connection.close()


def by_requests(url: str) -> object:
    answer = importlib.import_module("requests").get(url, timeout=timeout(url))
    answer.raise_for_status()
    return answer.content


def by_httpx(url: str) -> object:
    answer = importlib.import_module("httpx").get(url, timeout=timeout(url))
    answer.raise_for_status()
    return answer.content


def by_aiohttp(url: str) -> object:
    aiohttp = importlib.import_module("aiohttp")

    async def ask() -> object:
        limit = aiohttp.ClientTimeout(total=None, connect=timeout(url), sock_read=timeout(url))
        async with aiohttp.ClientSession(timeout=limit) as session, session.get(url) as answer:
            answer.raise_for_status()
            return await answer.read()

    return asyncio.run(ask())


GETS: dict[str, Get] = {
    "urllib": by_urllib,
    "http.client": by_http_client,
    "requests": by_requests,
    "httpx": by_httpx,
    "aiohttp": by_aiohttp,
}


@pytest.fixture(params=GETS)
def get(request: pytest.FixtureRequest) -> Get:
    pytest.importorskip(request.param)
    return GETS[request.param]


@pytest.fixture(params=[name for name in GETS if name != "http.client"])
def raising(request: pytest.FixtureRequest) -> Get:
    """One that raises an error for a status."""
    pytest.importorskip(request.param)
    return GETS[request.param]


STATUSES = {
    "429": Outcome.passes("HTTP_429", "HTTP_TOO_MANY_REQUESTS"),
    "429-later": Outcome.passes("HTTP_429", "HTTP_TOO_MANY_REQUESTS"),
    "503": Outcome.passes("HTTP_503", "HTTP_SERVICE_UNAVAILABLE"),
    "408": Outcome.passes("HTTP_408_OR_425", "HTTP_REQUEST_TIMEOUT"),
    "502": Outcome.in_flight("HTTP_502_OR_504", "HTTP_GATEWAY"),
    "403-later": Outcome.passes("HTTP_RETRY_AFTER", "SERVICE_RESPONSE_CODE_INDICATED"),
    "500-later": Outcome.in_flight("HTTP_5XX_RETRY_AFTER", "HTTP_GATEWAY"),
    "404": Outcome.stays("HTTP_4XX"),
    "401": Outcome.stays("HTTP_4XX"),
    "500": Outcome.stays("HTTP_5XX"),
}


@pytest.mark.parametrize("path", STATUSES)
def test_an_answer(server: str, raising: Get, path: str) -> None:
    assert outcome(caught(lambda: raising(f"{server}/{path}"))) == STATUSES[path]


@pytest.mark.parametrize(
    ("path", "reason", "codes"),
    [
        ("reset", "SOCKET_CLOSED_WHILE_IN_FLIGHT", {"HTTP_CONNECTION_LOST", "CONNECTION_CLOSED"}),
        ("hangs-up", "SOCKET_CLOSED_WHILE_IN_FLIGHT", {"HTTP_CONNECTION_LOST", "CONNECTION_CLOSED"}),
        ("half", "SOCKET_CLOSED_WHILE_IN_FLIGHT", {"HTTP_CONNECTION_LOST", "CONNECTION_CLOSED"}),
        ("slow", "TIMEOUT_IN_FLIGHT", {"HTTP_TIMED_OUT", "TIMED_OUT"}),
    ],
)
def test_no_answer(server: str, get: Get, path: str, reason: str, codes: set[str]) -> None:
    """Nobody knows whether it was done: only what is idempotent is asked for again."""
    said = outcome(caught(lambda: get(f"{server}/{path}")))
    assert said.code in codes
    assert said == Outcome.in_flight(said.code, reason)


@pytest.mark.parametrize("host", ["127.0.0.1", "no-such-host.invalid"], ids=["refused", "name"])
def test_nobody_is_there(get: Get, host: str) -> None:
    """It was not sent, so whatever it is may be sent again."""
    said = outcome(caught(lambda: get(f"http://{host}:{free_port()}/")))
    assert said.code in {"HTTP_UNREACHABLE", "CONNECTION_REFUSED", "NAME_NOT_RESOLVED"}
    assert said == Outcome.passes(said.code, "NODE_NOT_AVAILABLE")


@pytest.fixture(scope="module")
def untrusted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server whose certificate nobody has signed."""
    with terminated(certificate(tmp_path_factory.mktemp("tls"), "127.0.0.1"), free_port()) as server:
        yield f"https://127.0.0.1:{server.port}/"


def test_a_certificate_that_is_not_trusted(untrusted: str, raising: Get) -> None:
    """A person has to install the certificate of its authority."""
    assert outcome(caught(lambda: raising(untrusted))) == Outcome.stays("CERTIFICATE_NOT_TRUSTED")


def test_what_the_server_asks_to_wait_is_waited(server: str, raising: Get) -> None:
    def ask(**options: Any) -> list[float]:
        waited: list[float] = []
        left = [503, 429]

        def step() -> object:
            return raising(f"{server}/{left.pop()}-later") if left else "done"

        try:
            assert call(step, ServerCall("ask", BestEffort(), **options), wait=waited.append) == "done"
        except Exception:
            assert options and left, "cancelled at its deadline"
        return waited

    assert ask() == [2.0, 2.0]
    assert ask(seconds=0.5, clock=lambda: 7.0) == [0.5]
