"""Errors of Couchbase's own SDK: what each means, and what becomes of a call that fails with it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import couchbase.exceptions as sdk
import pytest
from couchbase.auth import PasswordAuthenticator
from couchbase.cluster import Cluster
from couchbase.options import ClusterOptions, ClusterTimeoutOptions

from recovery.retry import SHIPPED, BestEffort, Catalogue, ErrorMap, ServerCall, classify
from recovery.retry.in_place import call
from recovery.retry.signs import signs_of
from recovery.stack.server_process import free_port
from tests.retry.caught import caught
from tests.retry.outcome import Outcome, outcome

LIST = [
    (0x07, "KV_NOT_MY_VBUCKET"),
    (0x88, "KV_COLLECTION_OUTDATED"),
    (0x09, "KV_LOCKED"),
    (0x86, "KV_TEMPORARY_FAILURE"),
    (0xA2, "KV_SYNC_WRITE_IN_PROGRESS"),
    (0xA4, "KV_SYNC_WRITE_RE_COMMIT_IN_PROGRESS"),
]


def of_kv(kind: Any = sdk.CouchbaseException, **context: Any) -> Exception:
    error = kind(message="told", context=sdk.KeyValueErrorContext(key="order-1", **context))
    assert isinstance(error, Exception)
    return error


@pytest.mark.parametrize(("status", "reason"), LIST)
def test_a_status_of_the_key_value_service(status: int, reason: str) -> None:
    if classify(of_kv(status_code=status), SHIPPED).reason.always_retry:
        expected = Outcome(f"COUCHBASE_{reason}", reason, "retriable", "retry", "retry")
        sent: list[int] = []

        def step() -> str:
            sent.append(1)
            if len(sent) < 3:
                raise of_kv(status_code=status)
            return "done"

        waits: list[float] = []
        assert call(step, ServerCall("get", BestEffort(lambda _: 60.0)), wait=waits.append) == "done"
        assert waits == [0.001, 0.01], "the controlled back-off, not the strategy's"
        found = classify(of_kv(status_code=status), SHIPPED)
        assert (found.code.name, found.reason.name) == (expected.code, expected.reason)
    else:
        assert outcome(of_kv(status_code=status)) == Outcome.passes(f"COUCHBASE_{reason}", reason)


def test_a_status_that_is_not_in_the_list_is_not_retried() -> None:
    assert outcome(of_kv(sdk.DocumentNotFoundException, status_code=0x01)) == Outcome.stays("COUCHBASE_REFUSED")


@pytest.mark.parametrize(
    ("kind", "status"),
    [(sdk.CasMismatchException, 0x09), (sdk.CollectionNotFoundException, 0x88)],
    ids=["an unlock with another CAS", "a collection that is not there"],
)
def test_a_status_that_means_something_else_of_its_operation(kind: Any, status: int) -> None:
    assert outcome(of_kv(kind, status_code=status)) == Outcome.stays("COUCHBASE_REFUSED")


CLASSES: dict[str, Outcome] = {
    "TemporaryFailException": Outcome.passes("COUCHBASE_KV_TEMPORARY_FAILURE", "KV_TEMPORARY_FAILURE"),
    "DocumentLockedException": Outcome.passes("COUCHBASE_KV_LOCKED", "KV_LOCKED"),
    "DurabilitySyncWriteInProgressException": Outcome.passes(
        "COUCHBASE_KV_SYNC_WRITE_IN_PROGRESS", "KV_SYNC_WRITE_IN_PROGRESS"
    ),
    "ServiceUnavailableException": Outcome.passes("COUCHBASE_SERVICE_UNAVAILABLE", "SERVICE_NOT_AVAILABLE"),
    "MissingConnectionException": Outcome.passes("COUCHBASE_NO_CONNECTION", "SOCKET_NOT_AVAILABLE"),
    "RateLimitedException": Outcome.passes("COUCHBASE_RATE_LIMITED", "SERVER_OVERLOADED"),
    "UnAmbiguousTimeoutException": Outcome.passes("COUCHBASE_TIMED_OUT", "NODE_NOT_AVAILABLE"),
    "AmbiguousTimeoutException": Outcome.in_flight("COUCHBASE_AMBIGUOUS", "TIMEOUT_IN_FLIGHT"),
    "DurabilitySyncWriteAmbiguousException": Outcome.in_flight("COUCHBASE_AMBIGUOUS", "TIMEOUT_IN_FLIGHT"),
    "RequestCanceledException": Outcome.in_flight("COUCHBASE_CANCELED", "SOCKET_CLOSED_WHILE_IN_FLIGHT"),
    "AuthenticationException": Outcome.stays("COUCHBASE_DENIED"),
    "CasMismatchException": Outcome.stays("COUCHBASE_REFUSED"),
    "DocumentExistsException": Outcome.stays("COUCHBASE_REFUSED"),
}


@pytest.mark.parametrize("name", CLASSES)
def test_a_class_without_a_context(name: str) -> None:
    assert outcome(getattr(sdk, name)(message="told")) == CLASSES[name]


def of_http(kind: str, **context: Any) -> Exception:
    return sdk.CouchbaseException(message="told", context=getattr(sdk, f"{kind}ErrorContext")(**context))


ANSWERS = [
    (of_http("Query", first_error_code=4050), "QUERY_PREPARED_STATEMENT_FAILURE"),
    (of_http("Query", first_error_code=5000, first_error_message="queryport.indexNotFound"), "QUERY_INDEX_NOT_FOUND"),
    (of_http("Query", first_error_code=5000, http_body="another"), "UNKNOWN"),
    (of_http("Query", first_error_code=1080, http_status=503), "UNKNOWN"),  # 503 is of another list
    (of_http("Analytics", first_error_code=23007), "ANALYTICS_TEMPORARY_FAILURE"),
    (of_http("Search", http_status=429), "SEARCH_TOO_MANY_REQUESTS"),
    (of_http("View", http_status=302), "VIEWS_NO_ACTIVE_PARTITION"),
    (of_http("View", http_status=503), "VIEWS_TEMPORARY_FAILURE"),
    (of_http("View", http_status=404, http_body='{"error":"not_found","reason":"missing"}'), "VIEWS_TEMPORARY_FAILURE"),
    (of_http("View", http_status=404, http_body='{"reason":"deleted"}'), "UNKNOWN"),
    (of_http("Management", http_status=429), "UNKNOWN"),
]


@pytest.mark.parametrize(("error", "reason"), ANSWERS, ids=range(len(ANSWERS)))
def test_an_answer_of_another_service(error: Exception, reason: str) -> None:
    found = classify(error, SHIPPED)
    assert (found.catalogue, found.reason.name) == ("couchbase", reason)
    assert found.is_retriable == (reason != "UNKNOWN")


@pytest.mark.parametrize(
    ("attributes", "retried"), [(["retry_later"], True), (["retry-now", "temp"], True), (["item-only"], False)]
)
def test_the_error_map_that_the_sdk_gives_with_an_unknown_status(attributes: list[str], retried: bool) -> None:
    error = of_kv(status_code=0x55, error_map_info={"name": "NEW", "attributes": attributes})
    assert outcome(error) == (
        Outcome.passes("COUCHBASE_KV_ERROR_MAP", "KV_ERROR_MAP_RETRY_INDICATED")
        if retried
        else Outcome.stays("COUCHBASE_REFUSED")
    )


def test_an_error_map_that_the_application_has_read() -> None:
    """Of errors that no shipped entry matches: a class of the application's own SDK wrapper."""

    class Wrapped(Exception):
        code = 0x7E

    name = f"{Wrapped.__module__}.{Wrapped.__qualname__}"
    sent = {"errors": {"7e": {"attrs": ["retry-later"]}}}
    mapped = Catalogue("wrapper", (), ErrorMap.read(sent, frozenset({name})))
    assert classify(Wrapped(), [*SHIPPED, mapped]).reason.name == "KV_ERROR_MAP_RETRY_INDICATED"


@pytest.mark.parametrize("name", ["kv_locked", "key_value_locked"])
def test_why_the_sdk_has_retried_before_it_gave_up(name: str) -> None:
    error = of_kv(sdk.UnAmbiguousTimeoutException, retry_reasons={name}, retry_attempts=7)
    assert outcome(error) == Outcome.passes("COUCHBASE_KV_LOCKED", "KV_LOCKED")
    ambiguous = of_kv(sdk.AmbiguousTimeoutException, retry_reasons={name})
    assert classify(ambiguous, SHIPPED).reason.name == "TIMEOUT_IN_FLIGHT", "the write may have been done"


@pytest.mark.parametrize(
    ("error", "idempotent"),
    [
        (of_http("Search", http_status=500), True),
        (of_http("View"), True),
        (of_http("Query", parameters='{"statement": "SELECT 1", "readonly": true}'), True),
        (of_http("Analytics", parameters='{"statement": "SELECT 1"}'), False),
        (of_http("Query", parameters="no json"), False),
        (of_http("Management", method="GET"), True),
        (of_http("Management", method="POST"), False),
        (of_kv(status_code=0x86), False),
    ],
    ids=range(8),
)
def test_whether_the_failed_request_was_idempotent(error: Exception, idempotent: bool) -> None:
    assert signs_of(error).is_idempotent is idempotent


def test_a_cluster_that_is_not_there() -> None:
    limits = ClusterTimeoutOptions(bootstrap_timeout=timedelta(seconds=1), connect_timeout=timedelta(milliseconds=300))
    options = ClusterOptions(PasswordAuthenticator("user", "password"), timeout_options=limits)
    error = caught(lambda: Cluster(f"couchbase://127.0.0.1:{free_port()}", options))
    assert outcome(error) == Outcome.passes("COUCHBASE_TIMED_OUT", "NODE_NOT_AVAILABLE")
