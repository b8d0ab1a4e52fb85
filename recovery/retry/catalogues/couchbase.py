"""Couchbase's answers (RFC 49, 'Response Code Retry List') and which of its operations are idempotent ('Idempotent
Operation List'). What is not in the list is not tried again, unless the server's error map says that it may be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from recovery.errors import InputError
from recovery.records import given
from recovery.retry.catalogue import UNCLASSIFIED, Classified
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
    QUERY_INDEX_NOT_FOUND,
    QUERY_PREPARED_STATEMENT_FAILURE,
    SEARCH_TOO_MANY_REQUESTS,
    VIEWS_NO_ACTIVE_PARTITION,
    VIEWS_TEMPORARY_FAILURE,
    Reason,
)

NAME = "couchbase"
SERVICES = ("kv", "query", "analytics", "search", "view")

Applies = Callable[[str, str], bool]
"""Whether an answer counts, by the operation and by its text."""


def _always(_operation: str, _text: str) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class CouchbaseAnswer:
    """One line of the RFC's list."""

    service: str
    statuses: frozenset[int]
    reason: Reason
    code: ErrorCode
    applies: Applies = _always


def _not_of(*operations: str) -> Applies:
    """Of all messages but these, and none of DCP's."""
    return lambda operation, _: operation not in operations and not operation.startswith("dcp")


def _missing(_operation: str, text: str) -> bool:
    return '"reason":"missing"' in text


def _passes(_operation: str, text: str) -> bool:
    """Whether a view's 500 may pass: not where there is no such view, or the request is wrong."""
    return not ("error" in text and ("{not_found, missing_named_view}" in text or '"badarg"' in text))


def _answer(
    number: int, service: str, statuses: set[int], reason: Reason, applies: Applies = _always
) -> CouchbaseAnswer:
    code = ErrorCode(number, f"COUCHBASE_{reason.name}", f"Couchbase: {reason.meaning}")
    return CouchbaseAnswer(service, frozenset(statuses), reason, code, applies)


_VIEW_STATUSES = {300, 301, 302, 303, 307, 401, 408, 409, 412, 416, 417, 501, 502, 503, 504}

ANSWERS: tuple[CouchbaseAnswer, ...] = (
    _answer(26001, "kv", {0x07}, KV_NOT_MY_VBUCKET, _not_of()),
    # GetCollectionID gets it where there is no such collection.
    _answer(26002, "kv", {0x88}, KV_COLLECTION_OUTDATED, _not_of("get_collection_id")),
    # Of an unlock it means another CAS, and is for the user.
    _answer(26003, "kv", {0x09}, KV_LOCKED, _not_of("unlock")),
    _answer(26004, "kv", {0x86}, KV_TEMPORARY_FAILURE, _not_of()),
    _answer(26005, "kv", {0xA2}, KV_SYNC_WRITE_IN_PROGRESS, _not_of()),
    _answer(26006, "kv", {0xA4}, KV_SYNC_WRITE_RE_COMMIT_IN_PROGRESS, _not_of()),
    _answer(26007, "query", {4040, 4050, 4070}, QUERY_PREPARED_STATEMENT_FAILURE),
    _answer(26008, "query", {5000}, QUERY_INDEX_NOT_FOUND, lambda _, text: "queryport.indexNotFound" in text),
    _answer(26009, "analytics", {23000, 23003, 23007}, ANALYTICS_TEMPORARY_FAILURE),
    _answer(26010, "search", {429}, SEARCH_TOO_MANY_REQUESTS),
    # 302 stands in the list twice; who always retries comes first.
    _answer(26011, "view", {302}, VIEWS_NO_ACTIVE_PARTITION),
    _answer(26012, "view", _VIEW_STATUSES, VIEWS_TEMPORARY_FAILURE),
    _answer(26012, "view", {404}, VIEWS_TEMPORARY_FAILURE, _missing),
    _answer(26012, "view", {500}, VIEWS_TEMPORARY_FAILURE, _passes),
)

_ERROR_MAP = ErrorCode(26013, "COUCHBASE_KV_ERROR_MAP", "Couchbase: the error map says that it may be tried again")

IDEMPOTENT: dict[str, frozenset[str]] = {
    "kv": frozenset(
        {
            *("carrier_config", "global_config", "get", "get_collection_id", "get_collection_manifest", "noop"),
            *("observe_cas", "observe_seqno", "get_replica", "subdoc_lookup"),
        }
    ),
}
"""Operations of the key-value service that are; not get-and-lock and get-and-touch."""


def response(
    service: str, status: int, *, operation: str = "", text: str = "", error_map_retry: bool | None = None
) -> Classified:
    """What an answer of Couchbase is. `error_map_retry`: what the error map says of a key-value status that is not
    known, if it says something. Raises InputError for a service that there is not."""
    if service not in SERVICES:
        raise InputError(f"Couchbase has no service {given.shown(service)}; there are: {', '.join(SERVICES)}")
    for answer in ANSWERS:
        if answer.service == service and status in answer.statuses:
            if answer.applies(operation, text):
                return Classified(answer.code, answer.reason, NAME)
            if service == "kv":  # known, and not to be tried again
                return UNCLASSIFIED
    if service == "kv" and error_map_retry and not operation.startswith("dcp"):
        return Classified(_ERROR_MAP, KV_ERROR_MAP_RETRY_INDICATED, NAME)
    return UNCLASSIFIED


def is_idempotent(service: str, operation: str = "", *, read_only: bool = False, method: str = "") -> bool:
    """Whether an operation is in the RFC's list; all others are not. `method` is that of a call to the cluster manager
    or a management API (`manager`)."""
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
