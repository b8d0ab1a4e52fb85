"""MongoDB's errors as pymongo raises them, recognized by class, by the server's code and by its labels.

Retriable codes begin at 22001, and codes that are not retriable at 42001.
"""

from __future__ import annotations

from recovery.retry.catalogue import Catalogue, Entry
from recovery.retry.codes import ErrorCode
from recovery.retry.reasons import (
    NODE_NOT_AVAILABLE,
    NOT_PRIMARY,
    SERVER_OVERLOADED,
    SERVICE_RESPONSE_CODE_INDICATED,
    SOCKET_CLOSED_WHILE_IN_FLIGHT,
    SOCKET_NOT_AVAILABLE,
    STATE_CHANGED_IN_FLIGHT,
    TIMEOUT_IN_FLIGHT,
    UNKNOWN,
    WRITE_CONFLICT,
)
from recovery.retry.signs import WRITE_CONCERN_ERRORS

AWAY = ErrorCode(22001, "MONGODB_AWAY", "No suitable MongoDB server was found in time")
NO_SOCKET = ErrorCode(22002, "MONGODB_NO_CONNECTION", "No connection to MongoDB became free in time")
REFUSED = ErrorCode(22003, "MONGODB_NOT_PRIMARY", "This MongoDB server is not the primary")
CHANGED = ErrorCode(22004, "MONGODB_STEPPED_DOWN", "MongoDB stepped down or shut down during the request")
LOST = ErrorCode(22005, "MONGODB_CONNECTION_LOST", "The connection to MongoDB was lost during the request")
TIMED_OUT = ErrorCode(22006, "MONGODB_TIMED_OUT", "MongoDB did not answer or confirm in time")
NOT_CONFIRMED = ErrorCode(22009, "MONGODB_NOT_CONFIRMED", "The write was done, but a majority has not confirmed it yet")
CONFLICT = ErrorCode(22007, "MONGODB_WRITE_CONFLICT", "Another transaction committed first")
OVERLOADED = ErrorCode(22008, "MONGODB_OVERLOADED", "MongoDB is overloaded, or temporarily out of space")
CURSOR = ErrorCode(22010, "MONGODB_CHANGE_STREAM", "A change stream was interrupted, and can be resumed")
DENIED = ErrorCode(42001, "MONGODB_DENIED", "MongoDB rejects this user, or the user has no permission for this")
INVALID = ErrorCode(42002, "MONGODB_REFUSED", "MongoDB refuses this request every time")

_ANY = frozenset({"pymongo.errors.PyMongoError"})
# Server error codes (MongoDB's error_codes.yml).
_NOT_PRIMARY = frozenset({10058, 10107, 13435, 13436})
_CHANGED = frozenset({91, 189, 11600, 11602})
_LOST = frozenset({6, 7, 89, 9001})
_TIMED_OUT = frozenset({50, 64, 202, 262})
_CONFLICT = frozenset({112, 246, 251})
_OVERLOADED = frozenset({24, 46, 371, 462, 12587, 14031})
"""Codes for locks, an index build, writes that are blocked for users, overload, and a full disk."""
_UNCONFIRMED = frozenset({"pymongo.errors.WriteConcernError", "pymongo.errors.WTimeoutError"})
_DENIED = frozenset({11, 13, 18, 8000})

MONGODB = Catalogue(
    "mongodb",
    (
        Entry(DENIED, UNKNOWN, types=_ANY, numbers=_DENIED),
        Entry(CHANGED, STATE_CHANGED_IN_FLIGHT, types=_ANY, numbers=_CHANGED),
        Entry(LOST, SOCKET_CLOSED_WHILE_IN_FLIGHT, types=_ANY, numbers=_LOST),
        # These come before NOT_PRIMARY: with a write concern error, the member was the primary and did the write.
        Entry(NOT_CONFIRMED, TIMEOUT_IN_FLIGHT, types=_UNCONFIRMED),
        Entry(NOT_CONFIRMED, TIMEOUT_IN_FLIGHT, types=_ANY, labels=frozenset({WRITE_CONCERN_ERRORS})),
        Entry(REFUSED, NOT_PRIMARY, types=_ANY, numbers=_NOT_PRIMARY),
        Entry(TIMED_OUT, TIMEOUT_IN_FLIGHT, types=_ANY, numbers=_TIMED_OUT),
        Entry(CONFLICT, WRITE_CONFLICT, types=_ANY, numbers=_CONFLICT),
        Entry(OVERLOADED, SERVER_OVERLOADED, types=_ANY, numbers=_OVERLOADED),
        Entry(NO_SOCKET, SOCKET_NOT_AVAILABLE, types=frozenset({"pymongo.errors.WaitQueueTimeoutError"})),
        Entry(AWAY, NODE_NOT_AVAILABLE, types=frozenset({"pymongo.errors.ServerSelectionTimeoutError"})),
        Entry(REFUSED, NOT_PRIMARY, types=frozenset({"pymongo.errors.NotPrimaryError"})),
        Entry(
            TIMED_OUT,
            TIMEOUT_IN_FLIGHT,
            types=frozenset({"pymongo.errors.NetworkTimeout", "pymongo.errors.ExecutionTimeout"}),
        ),
        Entry(LOST, SOCKET_CLOSED_WHILE_IN_FLIGHT, types=frozenset({"pymongo.errors.AutoReconnect"})),
        Entry(CONFLICT, WRITE_CONFLICT, types=_ANY, labels=frozenset({"TransientTransactionError"})),
        # For codes that are not listed above, the server's labels decide. They are like an error map.
        Entry(OVERLOADED, SERVER_OVERLOADED, types=_ANY, labels=frozenset({"SystemOverloadedError"})),
        Entry(NOT_CONFIRMED, TIMEOUT_IN_FLIGHT, types=_ANY, labels=frozenset({"UnknownTransactionCommitResult"})),
        Entry(LOST, SOCKET_CLOSED_WHILE_IN_FLIGHT, types=_ANY, labels=frozenset({"RetryableWriteError"})),
        Entry(CURSOR, SERVICE_RESPONSE_CODE_INDICATED, types=_ANY, labels=frozenset({"ResumableChangeStreamError"})),
        Entry(INVALID, UNKNOWN, types=frozenset({"pymongo.errors.OperationFailure"})),
    ),
)
