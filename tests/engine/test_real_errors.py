"""Errors as real libraries and servers raise them, in actors of a running application: which reason and code each gets,
and how its task ends. Nothing here knows how errors are classified."""

from __future__ import annotations

import socket
import threading
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import couchbase.exceptions as couchbase
import pytest

from recovery.records import Decision, DecisionState, ProcessState
from recovery.stack.server_process import free_port
from tests.world import World

HIVE_TASK = "org.apache.hadoop.hive.ql.exec.repl.ReplLoadTask"


class Handler(BaseHTTPRequestHandler):
    """Answers `/503/120` with the status 503 and Retry-After: 120."""

    def do_GET(self) -> None:
        status, _, seconds = self.path.strip("/").partition("/")
        self.send_response(int(status))
        if seconds:
            self.send_header("Retry-After", seconds)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as serving:
        threading.Thread(target=serving.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{serving.server_port}"
        serving.shutdown()


def raising(error: BaseException) -> Callable[[], None]:
    def step() -> None:
        raise error

    return step


def attempted(world: World, step: Callable[[], object], **settings: Any) -> Decision:
    """Run one attempt of a process of one task; its decision."""

    def order() -> Any:
        return step()

    process_id = world.start(world.app.process("order", **settings)(order))
    world.pump()
    decision = world.store.decisions.get(f"{process_id}/start")
    assert decision is not None
    return decision


def waits(decision: Decision) -> float:
    assert decision.state is DecisionState.DELAYED and decision.retry is not None and decision.recovery_time is not None
    return (decision.recovery_time - decision.retry.failed_at).total_seconds()


def of_kv(status: int, **more: Any) -> BaseException:
    context = couchbase.KeyValueErrorContext(status_code=status, key="order-7", **more)
    return couchbase.CouchbaseException(message="told", context=context)


def of_query(code: int) -> BaseException:
    return couchbase.CouchbaseException(message="told", context=couchbase.QueryErrorContext(first_error_code=code))


RETRIED = [
    (of_kv(0x86), 26004, "KV_TEMPORARY_FAILURE"),
    (of_kv(0x09), 26003, "KV_LOCKED"),
    (of_kv(0xA2), 26005, "KV_SYNC_WRITE_IN_PROGRESS"),
    (of_kv(0x55, error_map_info={"attributes": ["retry-later"]}), 26013, "KV_ERROR_MAP_RETRY_INDICATED"),
    (of_query(4050), 26007, "QUERY_PREPARED_STATEMENT_FAILURE"),
    (couchbase.TemporaryFailException(message="told"), 26004, "KV_TEMPORARY_FAILURE"),
    (couchbase.AmbiguousTimeoutException(message="told"), 26014, "TIMEOUT_IN_FLIGHT"),
    (
        RuntimeError(
            f"FAILED: Execution Error, return code 40000 from {HIVE_TASK}. java.net.UnknownHostException: nn1"
        ),
        30101,
        "SERVICE_NOT_AVAILABLE",
    ),
    (RuntimeError("Failed to connect to ranger service. Error code 503."), 30102, "SERVICE_NOT_AVAILABLE"),
    (RuntimeError("Connection refused by Atlas at http://atlas:21000"), 30103, "SERVICE_NOT_AVAILABLE"),
    (RuntimeError("java.net.SocketTimeoutException: Read timed out"), 30104, "TIMEOUT_IN_FLIGHT"),
]


@pytest.mark.parametrize(("error", "code", "reason"), RETRIED, ids=range(len(RETRIED)))
def test_what_passes_by_itself_is_retried_by_the_policy(
    world: World, error: BaseException, code: int, reason: str
) -> None:
    decision = attempted(world, raising(error))
    assert 60 <= waits(decision) <= 90
    assert decision.retry is not None
    assert (decision.retry.code, decision.retry.reason, decision.retry.count) == (code, reason, 1)


MISSING = "File is missing from both source and cm path."
ENDED = [
    (of_kv(0x01), 46002),
    (couchbase.DocumentNotFoundException(message="told"), 46002),
    (couchbase.AuthenticationException(message="told"), 46001),
    (RuntimeError(f"FAILED: Execution Error, return code 20018 from {HIVE_TASK}. {MISSING}"), 40018),
    (RuntimeError("FAILED: SemanticException [Error 10001]: Line 1:14 Table not found 'orders'"), 10001),
    (RuntimeError("Error 20020: Source of replication (repl.source.for) is not set"), 10020),
    (RuntimeError(f"FAILED: Execution Error, return code 20012 from {HIVE_TASK}. File not found: /dump"), 40100),
    (ValueError("a bug"), 40000),
]


@pytest.mark.parametrize(("error", "code"), ENDED, ids=range(len(ENDED)))
def test_what_stays_breaks_the_process_at_once(world: World, error: BaseException, code: int) -> None:
    decision = attempted(world, raising(error))
    process = world.process(decision.process_id)
    assert process.state is ProcessState.BROKEN
    assert process.error is not None
    assert (process.error.code, process.error.reason) == (code, "UNKNOWN")
    assert process.error.no_retry


@pytest.mark.parametrize(
    ("path", "code", "reason", "least"),
    [
        ("429/120", 24001, "HTTP_TOO_MANY_REQUESTS", 120),
        ("503/100", 24002, "HTTP_SERVICE_UNAVAILABLE", 100),
        ("503", 24002, "HTTP_SERVICE_UNAVAILABLE", 60),
        ("403/95", 24009, "SERVICE_RESPONSE_CODE_INDICATED", 95),
    ],
)
def test_a_server_that_says_when_to_come_again_is_obeyed(
    world: World, server: str, path: str, code: int, reason: str, least: float
) -> None:
    decision = attempted(world, lambda: urllib.request.urlopen(f"{server}/{path}", timeout=30), idempotent=False)
    assert least <= waits(decision) <= max(least + 1, 90)
    assert decision.retry is not None
    assert (decision.retry.code, decision.retry.reason) == (code, reason)


def test_an_answer_that_would_be_the_same_again(world: World, server: str) -> None:
    decision = attempted(world, lambda: urllib.request.urlopen(f"{server}/404", timeout=30))
    error = world.process(decision.process_id).error
    assert error is not None and (error.code, error.reason) == (44001, "UNKNOWN")


def test_in_flight_only_what_is_idempotent_is_retried(world: World) -> None:
    """The server takes the request and closes the connection without an answer."""
    listening = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=_hang_up, args=(listening,), daemon=True).start()
    url = f"http://127.0.0.1:{listening.getsockname()[1]}/"

    def ask() -> object:
        return urllib.request.urlopen(url, timeout=30)

    decision = attempted(world, ask)
    assert decision.retry is not None and decision.retry.reason == "SOCKET_CLOSED_WHILE_IN_FLIGHT"
    world.app.actors.clear()
    ended = attempted(world, ask, idempotent=False)
    error = world.process(ended.process_id).error
    assert error is not None and error.no_retry is not None and error.no_retry.endswith("and it is not idempotent")
    listening.close()


def _hang_up(listening: socket.socket) -> None:
    try:
        while True:
            connection, _ = listening.accept()
            connection.recv(1000)
            connection.close()
    except OSError:
        return


def test_nothing_listens_there(world: World) -> None:
    port = free_port()
    decision = attempted(world, lambda: socket.create_connection(("127.0.0.1", port)), idempotent=False)
    assert decision.retry is not None
    assert (decision.retry.code, decision.retry.reason) == (21001, "NODE_NOT_AVAILABLE")


def test_an_answer_that_is_always_retried(world: World) -> None:
    """Not my vbucket: also with retry off, of what is not idempotent, and within milliseconds."""
    errors = [of_kv(0x07), of_kv(0x88)]

    def step() -> str:
        if errors:
            raise errors.pop(0)
        return "done"

    decision = attempted(world, step, retry=None, idempotent=False)
    assert world.process(decision.process_id).state is ProcessState.FINISHED
    assert decision.retry is not None and decision.retry.reasons == ("KV_COLLECTION_OUTDATED", "KV_NOT_MY_VBUCKET")
