"""Couchbase's errors: which of its answers may be retried, and which of its operations are idempotent.

The lists are RFC 49's 'Response Code Retry List' and 'Idempotent Operation List'.

An error of the SDK (the package `couchbase`) is recognized by its context first: the service, the status, the operation
and the text of the answer. Then come the reasons for which the SDK itself retried before it raised the error, and
finally the error's class. An answer that is not in the list is only retried if the server's error map allows it.

Retriable codes begin at 26001, and codes that are not retriable at 46001.
"""

from __future__ import annotations

from collections.abc import Callable

from recovery.errors import InputError
from recovery.records import given
from recovery.retry.catalogue import UNCLASSIFIED, Catalogue, Classified, Entry
from recovery.retry.codes import ErrorCode
from recovery.retry.reasons import (
    ANALYTICS_TEMPORARY_FAILURE,
    KV_COLLECTION_OUTDATED,
    KV_ERROR_MAP_RETRY_INDICATED,
    KV_LOCKED,
    KV_NOT_MY_VBUCKET,
    KV_SYNC_WRITE_IN_PROGRESS,
    KV_SYNC_WRITE_RE_COMMIT_IN_PROGRESS,
    KV_TEMPORARY_FAILURE,
    NODE_NOT_AVAILABLE,
    QUERY_INDEX_NOT_FOUND,
    QUERY_PREPARED_STATEMENT_FAILURE,
    RFC_49,
    SEARCH_TOO_MANY_REQUESTS,
    SERVER_OVERLOADED,
    SERVICE_NOT_AVAILABLE,
    SOCKET_CLOSED_WHILE_IN_FLIGHT,
    SOCKET_NOT_AVAILABLE,
    TIMEOUT_IN_FLIGHT,
    UNKNOWN,
    VIEWS_NO_ACTIVE_PARTITION,
    VIEWS_TEMPORARY_FAILURE,
    Reason,
)
from recovery.retry.signs import Signs

NAME = "couchbase"
SERVICES = ("kv", "query", "analytics", "search", "view")
"""The services whose answers `response` classifies."""
_BY_HTTP_STATUS = ("search", "view")
"""Services whose answers the list identifies by HTTP status. The other services have their own codes."""


def _classes(*names: str) -> frozenset[str]:
    return frozenset(f"couchbase.exceptions.{name}" for name in names)


_ANY = _classes("CouchbaseException")


def _error_code(number: int, reason: Reason) -> ErrorCode:
    return ErrorCode(number, f"COUCHBASE_{reason.name}", f"Couchbase: {reason.meaning}")


CODES = {
    reason: _error_code(26001 + offset, reason)
    for offset, reason in enumerate(
        (
            KV_NOT_MY_VBUCKET,
            KV_COLLECTION_OUTDATED,
            KV_LOCKED,
            KV_TEMPORARY_FAILURE,
            KV_SYNC_WRITE_IN_PROGRESS,
            KV_SYNC_WRITE_RE_COMMIT_IN_PROGRESS,
            QUERY_PREPARED_STATEMENT_FAILURE,
            QUERY_INDEX_NOT_FOUND,
            ANALYTICS_TEMPORARY_FAILURE,
            SEARCH_TOO_MANY_REQUESTS,
            VIEWS_NO_ACTIVE_PARTITION,
            VIEWS_TEMPORARY_FAILURE,
        )
    )
}
"""{reason in the list of response codes: its code}, from 26001 to 26012."""
ERROR_MAP = ErrorCode(26013, "COUCHBASE_KV_ERROR_MAP", "Couchbase: the error map indicates a retry")
AMBIGUOUS = ErrorCode(
    26014, "COUCHBASE_AMBIGUOUS", "Couchbase did not answer in time, and may have executed the request"
)
NOT_DONE = ErrorCode(26015, "COUCHBASE_TIMED_OUT", "Couchbase did not answer in time, and has not executed the request")
CANCELED = ErrorCode(26016, "COUCHBASE_CANCELED", "The connection to Couchbase was lost during the request")
NO_SERVICE = ErrorCode(26017, "COUCHBASE_SERVICE_UNAVAILABLE", "No Couchbase node offers this service now")
NO_SOCKET = ErrorCode(26018, "COUCHBASE_NO_CONNECTION", "There is no connection to Couchbase")
RATE_LIMITED = ErrorCode(26019, "COUCHBASE_RATE_LIMITED", "Couchbase limits the rate of requests")
RETRIED = ErrorCode(26020, "COUCHBASE_RETRIED_IN_VAIN", "Couchbase's SDK has retried until its own timeout")
DENIED = ErrorCode(46001, "COUCHBASE_DENIED", "Couchbase rejects this user, or the user has no permission for this")
REFUSED = ErrorCode(46002, "COUCHBASE_REFUSED", "Couchbase refuses this request every time")


def _not_of(*operations: str) -> Callable[[Signs], bool]:
    """Return a condition that the operation is none of these and does not belong to DCP."""
    return lambda signs: signs.operation not in operations and not signs.operation.startswith("dcp")


def _is_missing(signs: Signs) -> bool:
    return '"reason":"missing"' in signs.text


def _may_be_transient(signs: Signs) -> bool:
    """Return whether a view's status 500 may be transient. It is not if the view is missing or the request is wrong."""
    text = signs.text
    return not ("error" in text and ("{not_found, missing_named_view}" in text or '"badarg"' in text))


def _answer(service: str, statuses: set[int], reason: Reason, applies: Callable[[Signs], bool] | None = None) -> Entry:
    """Return the entry for a line of RFC 49's list."""
    codes = frozenset(statuses)
    by_status = service in _BY_HTTP_STATUS
    return Entry(
        CODES[reason],
        reason,
        types=_ANY,
        service=service,
        statuses=codes if by_status else frozenset(),
        numbers=frozenset() if by_status else codes,
        applies=applies,
    )


def _retried_for(reason: Reason) -> Entry:
    """Return the entry for a request that changed nothing and that the SDK has retried in vain for this reason."""
    code = CODES.get(reason, ERROR_MAP if reason is KV_ERROR_MAP_RETRY_INDICATED else RETRIED)
    return Entry(code, reason, types=_classes("UnAmbiguousTimeoutException"), labels=frozenset({reason.name}))


_VIEW_STATUSES = {300, 301, 302, 303, 307, 401, 408, 409, 412, 416, 417, 501, 502, 503, 504}

ANSWERS: tuple[Entry, ...] = (
    _answer("kv", {0x07}, KV_NOT_MY_VBUCKET, _not_of()),
    # GetCollectionID gets this status if the collection does not exist.
    _answer("kv", {0x88}, KV_COLLECTION_OUTDATED, _not_of("get_collection_id")),
    # An unlock gets this status if its CAS is wrong, which the user must handle.
    _answer("kv", {0x09}, KV_LOCKED, _not_of("unlock")),
    _answer("kv", {0x86}, KV_TEMPORARY_FAILURE, _not_of()),
    _answer("kv", {0xA2}, KV_SYNC_WRITE_IN_PROGRESS, _not_of()),
    _answer("kv", {0xA4}, KV_SYNC_WRITE_RE_COMMIT_IN_PROGRESS, _not_of()),
    _answer("query", {4040, 4050, 4070}, QUERY_PREPARED_STATEMENT_FAILURE),
    _answer("query", {5000}, QUERY_INDEX_NOT_FOUND, lambda signs: "queryport.indexNotFound" in signs.text),
    _answer("analytics", {23000, 23003, 23007}, ANALYTICS_TEMPORARY_FAILURE),
    _answer("search", {429}, SEARCH_TOO_MANY_REQUESTS),
    # The list has 302 twice. The reason that is always retried comes first.
    _answer("view", {302}, VIEWS_NO_ACTIVE_PARTITION),
    _answer("view", _VIEW_STATUSES, VIEWS_TEMPORARY_FAILURE),
    _answer("view", {404}, VIEWS_TEMPORARY_FAILURE, _is_missing),
    _answer("view", {500}, VIEWS_TEMPORARY_FAILURE, _may_be_transient),
)
"""RFC 49's list of response codes."""

_KNOWN_STATUSES = frozenset(number for answer in ANSWERS if answer.service == "kv" for number in answer.numbers)

COUCHBASE = Catalogue(
    NAME,
    (
        # The SDK has already considered the operation: an unlock with a wrong CAS, or a missing collection. The status
        # of these errors is in the list, but has another meaning for other operations.
        Entry(REFUSED, UNKNOWN, types=_classes("CasMismatchException")),
        Entry(REFUSED, UNKNOWN, types=_classes("CollectionNotFoundException")),
        *ANSWERS,
        # The error map only counts for statuses that are not in the list.
        Entry(REFUSED, UNKNOWN, types=_ANY, service="kv", numbers=_KNOWN_STATUSES),
        Entry(
            ERROR_MAP,
            KV_ERROR_MAP_RETRY_INDICATED,
            types=_ANY,
            service="kv",
            labels=frozenset({"retry-now", "retry-later"}),
            applies=_not_of(),
        ),
        *map(_retried_for, (reason for reason in RFC_49 if reason is not UNKNOWN)),
        Entry(AMBIGUOUS, TIMEOUT_IN_FLIGHT, types=_classes("AmbiguousTimeoutException")),
        Entry(AMBIGUOUS, TIMEOUT_IN_FLIGHT, types=_classes("DurabilitySyncWriteAmbiguousException")),
        Entry(AMBIGUOUS, TIMEOUT_IN_FLIGHT, types=_classes("TransactionCommitAmbiguous")),
        Entry(NOT_DONE, NODE_NOT_AVAILABLE, types=_classes("UnAmbiguousTimeoutException")),
        Entry(CODES[KV_TEMPORARY_FAILURE], KV_TEMPORARY_FAILURE, types=_classes("TemporaryFailException")),
        Entry(CODES[KV_LOCKED], KV_LOCKED, types=_classes("DocumentLockedException")),
        Entry(
            CODES[KV_SYNC_WRITE_IN_PROGRESS],
            KV_SYNC_WRITE_IN_PROGRESS,
            types=_classes("DurabilitySyncWriteInProgressException"),
        ),
        Entry(CANCELED, SOCKET_CLOSED_WHILE_IN_FLIGHT, types=_classes("RequestCanceledException")),
        Entry(NO_SERVICE, SERVICE_NOT_AVAILABLE, types=_classes("ServiceUnavailableException")),
        Entry(NO_SOCKET, SOCKET_NOT_AVAILABLE, types=_classes("MissingConnectionException")),
        Entry(RATE_LIMITED, SERVER_OVERLOADED, types=_classes("RateLimitedException")),
        Entry(DENIED, UNKNOWN, types=_classes("AuthenticationException")),
        Entry(REFUSED, UNKNOWN, types=_ANY),
    ),
)

IDEMPOTENT: dict[str, frozenset[str]] = {
    "kv": frozenset(
        {
            *("carrier_config", "global_config", "get", "get_collection_id", "get_collection_manifest", "noop"),
            *("observe_cas", "observe_seqno", "get_replica", "subdoc_lookup"),
        }
    ),
}
"""Idempotent operations of the key-value service. Get-and-lock and get-and-touch are not idempotent."""


def response(
    service: str, status: int, *, operation: str = "", text: str = "", error_map_retry: bool | None = None
) -> Classified:
    """Classify an answer of Couchbase without an error of the SDK.

    Args:
        service: One of SERVICES.
        status: The key-value status, the error code of a query, or the HTTP status.
        operation: The operation that was answered, as in IDEMPOTENT.
        text: The answer's text.
        error_map_retry: Whether the server's error map indicates a retry, for a key-value status that is not in the
            list;
            None if the map has no entry.

    Raises:
        InputError: There is no such service.
    """
    if service not in SERVICES:
        raise InputError(f"Couchbase has no service {given.shown(service)}; there are: {', '.join(SERVICES)}")
    by_status = service in _BY_HTTP_STATUS
    signs = Signs(
        types=tuple(_ANY),
        text=text,
        number=None if by_status else status,
        labels=frozenset({"retry-later"} if error_map_retry else ()),
        status=status if by_status else None,
        service=service,
        operation=operation,
    )
    match = COUCHBASE.find(signs)
    return UNCLASSIFIED if match is None or match[0].code is REFUSED else match[0]


def is_idempotent(service: str, operation: str = "", *, read_only: bool = False, method: str = "") -> bool:
    """Return whether an operation is in RFC 49's list of idempotent operations.

    Args:
        service: One of SERVICES, or `manager` for the cluster manager and the management APIs.
        operation: An operation of the key-value service.
        read_only: Whether a query, or an analytics query, is declared as read-only.
        method: The HTTP method of a call to the manager.

    Raises:
        InputError: There is no such service.
    """
    match service:
        case "kv":
            return operation in IDEMPOTENT["kv"]
        case "query" | "analytics":
            return read_only
        case "search" | "view":
            return True
        case "manager":
            return method.upper() == "GET"
    raise InputError(f"Couchbase has no service {given.shown(service)}; there are: {', '.join((*SERVICES, 'manager'))}")
