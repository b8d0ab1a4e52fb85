"""Reasons for a retry, and what each reason allows.

The first twenty reasons and their flags are those of Couchbase's SDK RFC 49 ('RetryReason'). Our own reasons are the
counterparts for MongoDB, Redis, HTTP and Python. The stage in which a request failed determines which retries are safe
(RFC 49, 'Different Stage Retry Semantics'):

    client dispatch     nothing was sent: every request may be sent again
    network time        sent, but not answered: only idempotent requests may be sent again
    response received   the answer shows whether the server's state was changed
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from recovery.errors import InputError
from recovery.records import given


class Stage(StrEnum):
    """The stage in which a request failed."""

    CLIENT_DISPATCH = "client dispatch"
    NETWORK_TIME = "network time"
    RESPONSE_RECEIVED = "response received"
    ANY = "any"


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a request may be retried."""

    name: str
    allows_non_idempotent_retry: bool
    """Whether a request that is not idempotent may be retried, because the failed try changed nothing."""
    always_retry: bool
    """Whether the request is retried whatever the strategy says."""
    stage: Stage
    meaning: str


_DISPATCH, _NETWORK, _RESPONSE = Stage.CLIENT_DISPATCH, Stage.NETWORK_TIME, Stage.RESPONSE_RECEIVED

# RFC 49, the table under 'RetryReason', in its order.
UNKNOWN = Reason("UNKNOWN", False, False, Stage.ANY, "the cause is unknown, so it is not retried")
SOCKET_NOT_AVAILABLE = Reason(
    "SOCKET_NOT_AVAILABLE", True, False, _DISPATCH, "there was no socket to write the request into"
)
SERVICE_NOT_AVAILABLE = Reason("SERVICE_NOT_AVAILABLE", True, False, _DISPATCH, "the service is not available")
NODE_NOT_AVAILABLE = Reason("NODE_NOT_AVAILABLE", True, False, _DISPATCH, "the server can't be reached")
KV_NOT_MY_VBUCKET = Reason("KV_NOT_MY_VBUCKET", True, True, _RESPONSE, "another node has this key now")
KV_COLLECTION_OUTDATED = Reason(
    "KV_COLLECTION_OUTDATED", True, True, _RESPONSE, "the client's map of collections is out of date"
)
KV_ERROR_MAP_RETRY_INDICATED = Reason(
    "KV_ERROR_MAP_RETRY_INDICATED", True, False, _RESPONSE, "the server's error map indicates a retry"
)
KV_LOCKED = Reason("KV_LOCKED", True, False, _RESPONSE, "the document is locked")
KV_TEMPORARY_FAILURE = Reason(
    "KV_TEMPORARY_FAILURE", True, False, _RESPONSE, "the server is temporarily unable to do it"
)
KV_SYNC_WRITE_IN_PROGRESS = Reason(
    "KV_SYNC_WRITE_IN_PROGRESS", True, False, _RESPONSE, "a durable write of this document is under way"
)
KV_SYNC_WRITE_RE_COMMIT_IN_PROGRESS = Reason(
    "KV_SYNC_WRITE_RE_COMMIT_IN_PROGRESS", True, False, _RESPONSE, "a durable write of this document is committed again"
)
SERVICE_RESPONSE_CODE_INDICATED = Reason(
    "SERVICE_RESPONSE_CODE_INDICATED", True, False, _RESPONSE, "the service's error code indicates a transient error"
)
SOCKET_CLOSED_WHILE_IN_FLIGHT = Reason(
    "SOCKET_CLOSED_WHILE_IN_FLIGHT", False, False, _NETWORK, "the connection was closed before the answer came"
)
CIRCUIT_BREAKER_OPEN = Reason(
    "CIRCUIT_BREAKER_OPEN", True, False, _DISPATCH, "the circuit breaker is open, so nothing was sent"
)
QUERY_PREPARED_STATEMENT_FAILURE = Reason(
    "QUERY_PREPARED_STATEMENT_FAILURE", True, False, _RESPONSE, "the prepared statement is no longer known"
)
QUERY_INDEX_NOT_FOUND = Reason("QUERY_INDEX_NOT_FOUND", True, False, _RESPONSE, "the index does not exist yet")
ANALYTICS_TEMPORARY_FAILURE = Reason(
    "ANALYTICS_TEMPORARY_FAILURE", True, False, _RESPONSE, "analytics is temporarily unable to do it"
)
SEARCH_TOO_MANY_REQUESTS = Reason("SEARCH_TOO_MANY_REQUESTS", True, False, _RESPONSE, "search is overloaded")
VIEWS_TEMPORARY_FAILURE = Reason("VIEWS_TEMPORARY_FAILURE", True, False, _RESPONSE, "views are temporarily unavailable")
VIEWS_NO_ACTIVE_PARTITION = Reason(
    "VIEWS_NO_ACTIVE_PARTITION", True, True, _RESPONSE, "the node has no active partition of the view"
)

RFC_49 = (
    UNKNOWN, SOCKET_NOT_AVAILABLE, SERVICE_NOT_AVAILABLE, NODE_NOT_AVAILABLE, KV_NOT_MY_VBUCKET,
    KV_COLLECTION_OUTDATED, KV_ERROR_MAP_RETRY_INDICATED, KV_LOCKED, KV_TEMPORARY_FAILURE, KV_SYNC_WRITE_IN_PROGRESS,
    KV_SYNC_WRITE_RE_COMMIT_IN_PROGRESS, SERVICE_RESPONSE_CODE_INDICATED, SOCKET_CLOSED_WHILE_IN_FLIGHT,
    CIRCUIT_BREAKER_OPEN, QUERY_PREPARED_STATEMENT_FAILURE, QUERY_INDEX_NOT_FOUND, ANALYTICS_TEMPORARY_FAILURE,
    SEARCH_TOO_MANY_REQUESTS, VIEWS_TEMPORARY_FAILURE, VIEWS_NO_ACTIVE_PARTITION,
)  # fmt: skip

# Our own reasons.
TIMEOUT_IN_FLIGHT = Reason(
    "TIMEOUT_IN_FLIGHT", False, False, _NETWORK, "no answer arrived in time: nobody knows whether it was done"
)
RESOURCE_BUSY = Reason(
    "RESOURCE_BUSY", True, False, _DISPATCH, "this machine lacked a resource: files, memory or a lock"
)
WORKER_LOST = Reason(
    "WORKER_LOST", False, False, _NETWORK, "the worker ended before the attempt did: nobody knows how far it came"
)
WORK_TIMEOUT = Reason(
    "WORK_TIMEOUT", False, False, _NETWORK, "the attempt returned no result in time: nobody knows how far it came"
)
NOT_PRIMARY = Reason("NOT_PRIMARY", True, False, _RESPONSE, "this MongoDB is not the primary, and refused the request")
STATE_CHANGED_IN_FLIGHT = Reason(
    "STATE_CHANGED_IN_FLIGHT", False, False, _NETWORK, "MongoDB stepped down or shut down during the request"
)
WRITE_CONFLICT = Reason(
    "WRITE_CONFLICT", True, False, _RESPONSE, "another transaction committed first; nothing was written"
)
SERVER_OVERLOADED = Reason(
    "SERVER_OVERLOADED", True, False, _RESPONSE, "the server is overloaded, and refused the request"
)
REDIS_LOADING = Reason("REDIS_LOADING", True, False, _RESPONSE, "Redis is loading its data from disk")
REDIS_READ_ONLY = Reason("REDIS_READ_ONLY", True, False, _RESPONSE, "this Redis is a replica, and refused a write")
REDIS_OUT_OF_MEMORY = Reason("REDIS_OUT_OF_MEMORY", True, False, _RESPONSE, "Redis has no memory left for a write")
REDIS_BUSY = Reason("REDIS_BUSY", True, False, _RESPONSE, "Redis runs a script, and refused the request")
REDIS_CLUSTER_MOVING = Reason(
    "REDIS_CLUSTER_MOVING", True, False, _RESPONSE, "the slots of a Redis cluster are being moved, or have no master"
)
HTTP_TOO_MANY_REQUESTS = Reason("HTTP_TOO_MANY_REQUESTS", True, False, _RESPONSE, "429: too many requests")
HTTP_SERVICE_UNAVAILABLE = Reason(
    "HTTP_SERVICE_UNAVAILABLE", True, False, _RESPONSE, "503: the server did not take the request"
)
HTTP_REQUEST_TIMEOUT = Reason(
    "HTTP_REQUEST_TIMEOUT", True, False, _RESPONSE, "408 or 425: the server did not start the request"
)
HTTP_GATEWAY = Reason("HTTP_GATEWAY", False, False, _NETWORK, "a 5xx: nobody knows how far the server came")

OURS = (
    TIMEOUT_IN_FLIGHT, RESOURCE_BUSY, WORKER_LOST, WORK_TIMEOUT, NOT_PRIMARY, STATE_CHANGED_IN_FLIGHT, WRITE_CONFLICT,
    SERVER_OVERLOADED, REDIS_LOADING, REDIS_READ_ONLY, REDIS_OUT_OF_MEMORY, REDIS_BUSY, REDIS_CLUSTER_MOVING,
    HTTP_TOO_MANY_REQUESTS, HTTP_SERVICE_UNAVAILABLE, HTTP_REQUEST_TIMEOUT, HTTP_GATEWAY,
)  # fmt: skip

REASONS: dict[str, Reason] = {reason.name: reason for reason in (*RFC_49, *OURS)}

# RFC 49 uses this name in its list of response codes.
ALIASES = {"KV_SYNC_RE_COMMIT_IN_PROGRESS": KV_SYNC_WRITE_RE_COMMIT_IN_PROGRESS}


def reason_of(name: str) -> Reason:
    """Return the reason with this name. Raise InputError if there is none."""
    reason = REASONS.get(name) or ALIASES.get(name)
    if reason is None:
        raise InputError(f"no reason is named {given.shown(name)}; there are: {', '.join(REASONS)}")
    return reason
