"""Codes of errors that actors of a running application raise, and whether an error with that code is retried.

docs/retry-sources.md names these tests in its rows about codes, answers and catalogues. Nothing here knows how errors
are classified.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import couchbase.exceptions as couchbase
import pytest

from recovery import Backoff, Catalogue, Entry, ErrorCode, ErrorMap, reason_of
from recovery.records import Decision, DecisionState
from tests.retry.hive_errors import MESSAGES, PERMANENT, TRANSIENT, failed
from tests.retry.rfc_49 import RESPONSE_CODES
from tests.world import World

STEADY = Backoff(initial=20, coefficient=1, jitter=(0, 0))
SERVICES = {"kv": "KeyValue", "query": "Query", "analytics": "Analytics", "search": "Search", "view": "View"}


@dataclass(frozen=True)
class Fate:
    """What became of a task whose first attempt raised an error."""

    code: int | None
    reason: str | None
    delay: int | None
    """Seconds until the retry. None: the task has ended."""
    why: str | None = None
    """Why there is no retry."""


def fates(world: World, errors: Sequence[BaseException], **settings: Any) -> list[Fate]:
    """Raise each error in an actor: one process has a task for each of them. Return the fates in the same order."""
    tasks: list[str] = []

    @world.app.actor(**{"retry": STEADY, **settings})
    def part(number: int) -> None:
        raise errors[number]

    @world.app.process()
    def order() -> None:
        tasks.extend(part.options(fallible=True).schedule(number).task_id for number in range(len(errors)))

    process_id = world.start(order)
    world.pump()
    decisions = world.decisions(process_id)
    return [fate(decisions[task]) for task in tasks]


def fate(decision: Decision) -> Fate:
    if decision.state is DecisionState.DELAYED:
        retry = decision.retry
        assert retry is not None and decision.recovery_time is not None
        return Fate(retry.code, retry.reason, round((decision.recovery_time - retry.failed_at).total_seconds()))
    assert decision.outcome is not None and decision.outcome.error is not None
    error = decision.outcome.error
    return Fate(error.code, error.reason, None, error.no_retry)


def test_the_range_of_a_code_decides_whether_an_error_is_retried(world: World) -> None:
    numbers = [10003, 19999, 20006, 39999, 40006, 49999]
    kinds = [type(f"Error{number}", (Exception,), {}) for number in numbers]
    for kind, number in zip(kinds, numbers, strict=True):
        world.app.classifies(number, "RESOURCE_BUSY")(kind)
    found = fates(world, [kind() for kind in kinds])
    assert [one.code for one in found] == numbers
    assert [one.delay for one in found] == [None, None, 20, 20, None, None]
    assert [one.why for one in found if one.why] == [
        *("ERROR10003 is semantic", "ERROR19999 is semantic"),
        *("ERROR40006 is not retriable", "ERROR49999 is not retriable"),
    ]


def test_the_codes_of_hives_replication_are_classified_by_what_waiting_can_do(world: World) -> None:
    """Hive's numbers are understood; those of errors that waiting does not cure become another code."""
    codes = {
        20016: 40016, 20017: 40017, 20018: 40018, 20019: 40019, 20020: 10020, 20021: 10021, 30045: 30045, 40000: 40000,
    }  # fmt: skip
    found = fates(world, [RuntimeError(failed(number)) for number in codes])
    assert [one.code for one in found] == list(codes.values())
    assert [code for code, one in zip(codes, found, strict=True) if one.delay is not None] == [30045]


def test_every_error_in_hives_own_words_gets_its_code(world: World) -> None:
    found = fates(world, [RuntimeError(text) for text, _ in MESSAGES])
    assert [one.code for one in found] == [code for _, code in MESSAGES]
    assert [one.delay is not None for one in found] == [20_000 <= code < 40_000 for _, code in MESSAGES]


@pytest.mark.thorough
def test_every_number_of_hive_is_retried_or_not_by_what_it_means(world: World) -> None:
    numbers = [*PERMANENT, *TRANSIENT, 10_500, 19_999, 40_001, 49_999]
    found = fates(world, [RuntimeError(failed(number)) for number in numbers])
    retried = {number for number, one in zip(numbers, found, strict=True) if one.delay is not None}
    assert retried == set(TRANSIENT)


def test_how_far_a_request_came_decides_what_is_retried_without_being_idempotent(world: World) -> None:
    """Nothing was sent; sent and no answer; an answer that says that it will pass; one that says that it will not."""
    locked = couchbase.CouchbaseException(message="told", context=couchbase.KeyValueErrorContext(status_code=0x09))
    missing = couchbase.CouchbaseException(message="told", context=couchbase.KeyValueErrorContext(status_code=0x01))
    errors = [ConnectionRefusedError(111, "away"), ConnectionResetError(104, "reset"), locked, missing]
    once = fates(world, errors, idempotent=False)
    assert [one.delay for one in once] == [20, None, 20, None]
    assert once[1].why == "the connection was closed before the answer came, and it is not idempotent"
    world.app.actors.clear()
    assert [one.delay for one in fates(world, errors)] == [20, 20, 20, None]


def of_couchbase(service: str, **context: Any) -> BaseException:
    return couchbase.CouchbaseException(message="told", context=getattr(couchbase, f"{service}ErrorContext")(**context))


def answer(service: str, code: int, text: str) -> BaseException:
    """An error of the SDK for an answer of the list."""
    match service:
        case "kv":
            return of_couchbase("KeyValue", status_code=code)
        case "query" | "analytics":
            return of_couchbase(SERVICES[service], first_error_code=code, first_error_message=text)
    return of_couchbase(SERVICES[service], http_status=code, http_body=text)


@pytest.mark.thorough
def test_every_answer_in_the_list_of_response_codes_is_retried_as_the_list_says(world: World) -> None:
    """Except lines about an operation by name: the SDK's errors do not name it."""
    listed = [(*line[:2], line[3], line[4]) for line in RESPONSE_CODES if not line[2] or line[4] != "UNKNOWN"]
    assert len(listed) == len(RESPONSE_CODES) - 4
    found = fates(world, [answer(*line[:3]) for line in listed], idempotent=False)
    assert [one.reason for one in found] == [line[3] for line in listed]
    always = {"KV_NOT_MY_VBUCKET", "KV_COLLECTION_OUTDATED", "VIEWS_NO_ACTIVE_PARTITION"}
    for one in found:
        assert (one.delay is not None) == (one.reason != "UNKNOWN")
        if one.reason in always:
            assert one.delay == 1, "by the controlled back-off"


@pytest.mark.parametrize(
    ("service", "context", "retried"),
    [
        ("Search", {}, True),
        ("View", {}, True),
        ("Query", {"parameters": '{"readonly": true}'}, True),
        ("Query", {"parameters": "{}"}, False),
        ("Analytics", {"parameters": '{"readonly": true}'}, True),
        ("Management", {"method": "GET"}, True),
        ("Management", {"method": "POST"}, False),
        ("KeyValue", {}, False),
    ],
)
def test_an_operation_of_the_list_of_idempotent_ones_is_retried_in_any_actor(
    world: World, service: str, context: dict[str, Any], retried: bool
) -> None:
    error = couchbase.RequestCanceledException(
        message="told", context=getattr(couchbase, f"{service}ErrorContext")(**context)
    )
    (found,) = fates(world, [error], idempotent=False)
    assert found.reason == "SOCKET_CLOSED_WHILE_IN_FLIGHT"
    assert (found.delay is not None) == retried


class ServerError(Exception):
    """An error of a server that sends an error map."""

    def __init__(self, code: int) -> None:
        super().__init__(f"status {code:#x}")
        self.code = code


SENT = {
    "errors": {
        "86": {"attrs": ["retry-later"], "retry": {"strategy": "constant", "interval": 60_000, "after": 60_000}},
        "8a": {"attrs": ["retry-now"]},
        "25": {"attrs": ["special-handling"]},
    }
}


def test_an_error_map_says_whether_there_is_a_retry_and_the_policy_says_when(world: World) -> None:
    name = f"{ServerError.__module__}.{ServerError.__qualname__}"
    world.app.catalogues.add(Catalogue("server", (), ErrorMap.read(SENT, frozenset({name}))))
    of_the_sdk = {"name": "NEW", "attributes": ["retry-later"]}
    errors = [
        *map(ServerError, (0x86, 0x8A, 0x25, 0x01)),
        of_couchbase("KeyValue", status_code=0x55, error_map_info=of_the_sdk),
        of_couchbase("KeyValue", status_code=0x55, error_map_info={**of_the_sdk, "attributes": ["item-only"]}),
    ]
    found = fates(world, errors, idempotent=False)
    assert [one.delay for one in found] == [20, 20, None, None, 20, None]
    assert {one.reason for one in found if one.delay} == {"KV_ERROR_MAP_RETRY_INDICATED"}


class LedgerClosed(Exception):
    """The ledger is being closed"""


def test_an_application_says_what_its_own_errors_and_those_of_others_mean(world: World) -> None:
    world.app.classifies(27001, "RESOURCE_BUSY")(LedgerClosed)
    locked = ErrorCode(27002, "LEDGER_LOCKED", "Somebody has locked the ledger")
    entry = Entry(locked, reason_of("KV_LOCKED"), pattern="ledger is locked")
    world.app.catalogues.add(Catalogue("ledger", (entry,)))
    errors = [LedgerClosed("until 6:00"), RuntimeError("the ledger is locked"), RuntimeError("the ledger is lost")]
    found = fates(world, errors)
    assert [(one.code, one.reason, one.delay) for one in found] == [
        (27001, "RESOURCE_BUSY", 20),
        (27002, "KV_LOCKED", 20),
        (40000, "UNKNOWN", None),
    ]
