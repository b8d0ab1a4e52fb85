"""The twenty reasons of RFC 49: an error that yields each in an actor, what becomes of its task, and after how long.

The table in docs/retry.md is made of what happened here: `python -m pytest tests/engine/test_twenty_reasons.py
--write-table`.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import couchbase.exceptions as couchbase
import pytest
import redis

from recovery import BestEffort
from recovery.engine.outages import breaker
from recovery.records import DecisionState, ProcessState
from recovery.stack.server_process import free_port
from tests.docs.blocks import DOCS
from tests.retry.rfc_49 import REASONS
from tests.world import World

PAGE = DOCS / "retry.md"
BEGIN, END = "<!-- the twenty reasons -->", "<!-- end of the twenty reasons -->"


@dataclass(frozen=True)
class Case:
    """How a reason comes about."""

    error: str
    """In words, for the table."""
    step: Callable[[World], object]
    """What the actor does."""


def of_couchbase(kind: str, **context: Any) -> Callable[[World], object]:
    def step(_: World) -> None:
        raise couchbase.CouchbaseException(message="told", context=getattr(couchbase, f"{kind}ErrorContext")(**context))

    return step


def of_kv(status: int, **more: Any) -> Callable[[World], object]:
    return of_couchbase("KeyValue", status_code=status, **more)


def fails(error: BaseException) -> Callable[[World], object]:
    def step(_: World) -> None:
        raise error

    return step


def no_connection_left(world: World) -> object:
    pool: Any = redis.ConnectionPool.from_url(world.settings.broker_url, max_connections=1)
    held = pool.get_connection()
    try:
        return pool.get_connection()
    finally:
        pool.release(held)
        pool.disconnect()


def nothing_listens(_: World) -> object:
    return socket.create_connection(("127.0.0.1", free_port()))


def hangs_up(_: World) -> object:
    """Ask a server that takes the request and closes the connection."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            connection.recv(1000)
            connection.close()

        serving = threading.Thread(target=serve)
        serving.start()
        client = http.client.HTTPConnection("127.0.0.1", listening.getsockname()[1], timeout=30)
        try:
            client.request("GET", "/")
            return client.getresponse()
        finally:
            serving.join()
            client.close()


def breaker_open(world: World) -> object:
    """Ask a server of which the first call has just found out that nothing listens there."""
    server = breaker(f"mongodb://127.0.0.1:{free_port()}")
    with contextlib.suppress(ConnectionRefusedError):
        server.call(lambda: nothing_listens(world))
    return server.call(lambda: nothing_listens(world))


CASES: dict[str, Case] = {
    "UNKNOWN": Case("a `ValueError` of the actor's own", fails(ValueError("a bug"))),
    "SOCKET_NOT_AVAILABLE": Case("redis-py's pool has no connection left", no_connection_left),
    "SERVICE_NOT_AVAILABLE": Case(
        "Hive: `Failed to connect to ranger service`",
        fails(RuntimeError("Failed to connect to ranger service. Error code 503.")),
    ),
    "NODE_NOT_AVAILABLE": Case("a port at which nothing listens", nothing_listens),
    "KV_NOT_MY_VBUCKET": Case("Couchbase's status 0x07", of_kv(0x07)),
    "KV_COLLECTION_OUTDATED": Case("Couchbase's status 0x88", of_kv(0x88)),
    "KV_ERROR_MAP_RETRY_INDICATED": Case(
        "Couchbase's status 0x55, with `retry-later` in the error map",
        of_kv(0x55, error_map_info={"attributes": ["retry-later"]}),
    ),
    "KV_LOCKED": Case("Couchbase's status 0x09", of_kv(0x09)),
    "KV_TEMPORARY_FAILURE": Case("Couchbase's status 0x86", of_kv(0x86)),
    "KV_SYNC_WRITE_IN_PROGRESS": Case("Couchbase's status 0xa2", of_kv(0xA2)),
    "KV_SYNC_WRITE_RE_COMMIT_IN_PROGRESS": Case("Couchbase's status 0xa4", of_kv(0xA4)),
    "SERVICE_RESPONSE_CODE_INDICATED": Case(
        "Hive: `return code 30038`", fails(RuntimeError("Execution Error, return code 30038 from x.SparkTask. told"))
    ),
    "SOCKET_CLOSED_WHILE_IN_FLIGHT": Case("a server that closes the connection instead of answering", hangs_up),
    "CIRCUIT_BREAKER_OPEN": Case("a `CircuitBreaker` that is open", breaker_open),
    "QUERY_PREPARED_STATEMENT_FAILURE": Case(
        "Couchbase's query error 4050", of_couchbase("Query", first_error_code=4050)
    ),
    "QUERY_INDEX_NOT_FOUND": Case(
        "Couchbase's query error 5000, `queryport.indexNotFound`",
        of_couchbase("Query", first_error_code=5000, first_error_message="queryport.indexNotFound"),
    ),
    "ANALYTICS_TEMPORARY_FAILURE": Case(
        "Couchbase's analytics error 23000", of_couchbase("Analytics", first_error_code=23000)
    ),
    "SEARCH_TOO_MANY_REQUESTS": Case("Couchbase's search, 429", of_couchbase("Search", http_status=429)),
    "VIEWS_TEMPORARY_FAILURE": Case("Couchbase's views, 503", of_couchbase("View", http_status=503)),
    "VIEWS_NO_ACTIVE_PARTITION": Case("Couchbase's views, 302", of_couchbase("View", http_status=302)),
}


@dataclass(frozen=True)
class Outcome:
    """What became of a task whose first attempt failed, and which would have succeeded the second time."""

    reason: str
    retried: bool
    seconds: float = 0.0
    """From the failure to the next call."""


def outcome(world: World, name: str, case: Case, *, idempotent: bool) -> Outcome:
    failed_at: list[float] = []
    called_at: list[float] = []

    def order() -> object:
        called_at.append(time.monotonic())
        if len(called_at) > 1:
            return "done"
        try:
            return case.step(world)
        finally:
            failed_at.append(time.monotonic())

    world.app.actors.clear()
    process_id = world.start(world.app.process("order", retry=BestEffort(), idempotent=idempotent)(order))
    world.pump()
    process, decision = world.process(process_id), world.store.decisions.get(f"{process_id}/start")
    assert decision is not None, name
    if process.state is ProcessState.BROKEN:
        assert process.error is not None and process.error.reason is not None and len(called_at) == 1
        return Outcome(process.error.reason, retried=False)
    assert (process.state, decision.state) == (ProcessState.FINISHED, DecisionState.FINISHED), name
    assert decision.retry is not None and decision.retry.count == 1
    return Outcome(decision.retry.reason, retried=True, seconds=called_at[1] - failed_at[0])


def row(name: str, case: Case, once: Outcome, twice: Outcome) -> str:
    def told(one: Outcome) -> str:
        return "retried after 1 ms" if one.retried else "the process breaks"

    always = ", always" if REASONS[name][ALWAYS] else ""
    return f"| `{name}` | {case.error} | {told(once)}{always} | {told(twice)}{always} |"


ALWAYS = 1
"""The place of the flag that a reason is always retried."""
ROUNDS = 5
"""Measurements at most, of which one must be in time: while other tests keep the machine busy any wait is late."""


def test_each_reason_comes_about_and_its_flags_hold(world: World, pytestconfig: pytest.Config) -> None:
    """Never early; late by at most 5 ms in the median. The delay is the first of both curves, 1 ms."""
    assert CASES.keys() == REASONS.keys()
    medians: list[float] = []
    while not medians or (min(medians) > 0.005 and len(medians) < ROUNDS):
        rows, late = _measured(world)
        medians.append(sorted(late)[len(late) // 2])
    assert min(medians) <= 0.005, medians
    head = ["| Reason | An error that has it | An idempotent task | Another task |", "| --- | --- | --- | --- |"]
    table = "\n".join([BEGIN, "", *head, *rows, "", END])
    page = PAGE.read_text()
    before, after = page[: page.index(BEGIN)], page[page.index(END) + len(END) :]
    if pytestconfig.getoption("--write-table"):
        PAGE.write_text(before + table + after)
    assert PAGE.read_text() == before + table + after, "run this test with --write-table"


def _measured(world: World) -> tuple[list[str], list[float]]:
    """The rows of the table, and by how much the second attempts were late."""
    rows, late = [], []
    for name, case in CASES.items():
        once = outcome(world, name, case, idempotent=True)
        twice = outcome(world, name, case, idempotent=False)
        assert (once.reason, twice.reason) == (name, name)
        assert once.retried == (name != "UNKNOWN")
        assert twice.retried == any(REASONS[name])
        seconds = [one.seconds for one in (once, twice) if one.retried]
        assert all(one >= 0.001 for one in seconds), "early"
        late += [one - 0.001 for one in seconds]
        rows.append(row(name, case, once, twice))
    return rows, late
