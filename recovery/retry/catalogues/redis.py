"""Errors of Redis and Valkey as redis-py raises them, recognized by class, and by the first word of the server's
answer.

Retriable codes begin at 23001, and codes that are not retriable at 43001.
"""

from __future__ import annotations

from recovery.retry.catalogue import Catalogue, Entry
from recovery.retry.catalogues.python import NOT_TRUSTED, NOT_TRUSTED_PATTERN
from recovery.retry.codes import ErrorCode
from recovery.retry.reasons import (
    NODE_NOT_AVAILABLE,
    REDIS_BUSY,
    REDIS_CLUSTER_MOVING,
    REDIS_LOADING,
    REDIS_OUT_OF_MEMORY,
    REDIS_READ_ONLY,
    SERVER_OVERLOADED,
    SOCKET_CLOSED_WHILE_IN_FLIGHT,
    SOCKET_NOT_AVAILABLE,
    TIMEOUT_IN_FLIGHT,
    UNKNOWN,
)

LOADING = ErrorCode(23001, "REDIS_IS_LOADING", "Redis is loading its data from disk")
READ_ONLY = ErrorCode(23002, "REDIS_IS_READ_ONLY", "This Redis is a replica, or can't write to its disk")
NO_MEMORY = ErrorCode(23003, "REDIS_HAS_NO_MEMORY", "Redis has no memory left for a write")
SCRIPT = ErrorCode(23004, "REDIS_RUNS_A_SCRIPT", "Redis runs a script or a function, which blocks all other requests")
MOVING = ErrorCode(23005, "REDIS_CLUSTER_MOVES", "The Redis cluster is moving slots, or has no master for them")
REFUSED = ErrorCode(23006, "REDIS_REFUSED", "Redis can't be reached")
LOST = ErrorCode(23007, "REDIS_CONNECTION_LOST", "The connection to Redis was lost during the request")
TIMED_OUT = ErrorCode(23008, "REDIS_TIMED_OUT", "Redis did not answer in time")
NO_SOCKET = ErrorCode(23009, "REDIS_NO_CONNECTION", "No connection to Redis was free")
TOO_MANY = ErrorCode(23010, "REDIS_HAS_TOO_MANY_CLIENTS", "Redis accepts no more connections")
DENIED = ErrorCode(43001, "REDIS_DENIED", "Redis rejects this user, or the user has no permission for this")
INVALID = ErrorCode(43002, "REDIS_REFUSES_THIS", "Redis refuses this request every time")

_ANY = frozenset({"redis.exceptions.RedisError"})
_DENIED = frozenset({"redis.exceptions.AuthenticationError", "redis.exceptions.NoPermissionError"})

REDIS = Catalogue(
    "redis",
    (
        Entry(LOADING, REDIS_LOADING, types=frozenset({"redis.exceptions.BusyLoadingError"})),
        Entry(LOADING, REDIS_LOADING, types=_ANY, pattern=r"^(-?LOADING\b|Redis is loading)"),
        Entry(READ_ONLY, REDIS_READ_ONLY, types=frozenset({"redis.exceptions.ReadOnlyError"})),
        Entry(
            READ_ONLY, REDIS_READ_ONLY, types=_ANY, pattern=r"^-?(READONLY|MISCONF)\b|can't write against a read only"
        ),
        Entry(NO_MEMORY, REDIS_OUT_OF_MEMORY, types=frozenset({"redis.exceptions.OutOfMemoryError"})),
        Entry(NO_MEMORY, REDIS_OUT_OF_MEMORY, types=_ANY, pattern=r"^-?OOM\b|command not allowed when used memory"),
        Entry(SCRIPT, REDIS_BUSY, types=_ANY, pattern=r"^-?BUSY\b|Redis is busy running a script"),
        Entry(
            MOVING,
            REDIS_CLUSTER_MOVING,
            types=frozenset(
                {
                    "redis.exceptions.TryAgainError",
                    "redis.exceptions.ClusterDownError",
                    "redis.exceptions.MasterDownError",
                    "redis.exceptions.MovedError",
                    "redis.exceptions.AskError",
                }
            ),
        ),
        Entry(MOVING, REDIS_CLUSTER_MOVING, types=_ANY, pattern=r"^-?(TRYAGAIN|CLUSTERDOWN|MASTERDOWN|MOVED|ASK)\b"),
        Entry(DENIED, UNKNOWN, types=_DENIED),
        Entry(DENIED, UNKNOWN, types=_ANY, pattern=r"^-?(NOAUTH|WRONGPASS|NOPERM)\b"),
        Entry(TOO_MANY, SERVER_OVERLOADED, types=_ANY, pattern="max number of clients reached"),
        Entry(
            NO_SOCKET,
            SOCKET_NOT_AVAILABLE,
            types=frozenset({"redis.exceptions.MaxConnectionsError"}),
        ),
        Entry(TIMED_OUT, TIMEOUT_IN_FLIGHT, types=frozenset({"redis.exceptions.TimeoutError"})),
        Entry(NOT_TRUSTED, UNKNOWN, types=frozenset({"redis.exceptions.ConnectionError"}), pattern=NOT_TRUSTED_PATTERN),
        Entry(
            REFUSED,
            NODE_NOT_AVAILABLE,
            types=frozenset({"redis.exceptions.ConnectionError"}),
            pattern=r"(?i)^Error (-?\d+ )?(connecting|while connecting)|Connection refused|Name or service not known",
        ),
        Entry(LOST, SOCKET_CLOSED_WHILE_IN_FLIGHT, types=frozenset({"redis.exceptions.ConnectionError"})),
        Entry(INVALID, UNKNOWN, types=frozenset({"redis.exceptions.ResponseError"})),
    ),
)
