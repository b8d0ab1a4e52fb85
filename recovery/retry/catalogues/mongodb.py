"""Errors of MongoDB, as pymongo raises them: by class, by the server's code and by its labels. Codes from 22000 on."""

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

AWAY = ErrorCode(22001, "MONGODB_AWAY", "No MongoDB that could take it was found in time")
NO_SOCKET = ErrorCode(22002, "MONGODB_NO_CONNECTION", "No connection to MongoDB was free in time")
REFUSED = ErrorCode(22003, "MONGODB_NOT_PRIMARY", "This MongoDB is not the primary")
CHANGED = ErrorCode(22004, "MONGODB_STEPPED_DOWN", "MongoDB stepped down, or shut down, in the middle of it")
LOST = ErrorCode(22005, "MONGODB_CONNECTION_LOST", "The connection to MongoDB was lost while it was used")
TIMED_OUT = ErrorCode(22006, "MONGODB_TIMED_OUT", "MongoDB did not answer, or did not confirm, in time")
NOT_CONFIRMED = ErrorCode(22009, "MONGODB_NOT_CONFIRMED", "Written, and a majority did not confirm it yet")
CONFLICT = ErrorCode(22007, "MONGODB_WRITE_CONFLICT", "Another transaction was first")
OVERLOADED = ErrorCode(22008, "MONGODB_OVERLOADED", "MongoDB has too much to do, or no room for the moment")
CURSOR = ErrorCode(22010, "MONGODB_CHANGE_STREAM", "A change stream ended, and can be resumed")
DENIED = ErrorCode(42001, "MONGODB_DENIED", "MongoDB does not know this user, or does not let it do this")
INVALID = ErrorCode(42002, "MONGODB_REFUSED", "MongoDB refuses this whenever it is asked")

_ANY = frozenset({"pymongo.errors.PyMongoError"})
# Of the server's error codes (MongoDB's error_codes.yml).
_NOT_PRIMARY = frozenset({10058, 10107, 13435, 13436})
_CHANGED = frozenset({91, 189, 11600, 11602})
_LOST = frozenset({6, 7, 89, 9001})
_TIMED_OUT = frozenset({50, 64, 202, 262})
_CONFLICT = frozenset({112, 246, 251})
_OVERLOADED = frozenset({24, 46, 371, 462, 12587, 14031})
"""Locks, an index that is built, writes that are blocked for users, too much to do, no room on the disk."""
_UNCONFIRMED = frozenset({"pymongo.errors.WriteConcernError", "pymongo.errors.WTimeoutError"})
_DENIED = frozenset({11, 13, 18, 8000})

MONGODB = Catalogue(
    "mongodb",
    (
        Entry(DENIED, UNKNOWN, types=_ANY, numbers=_DENIED),
        Entry(CHANGED, STATE_CHANGED_IN_FLIGHT, types=_ANY, numbers=_CHANGED),
        Entry(LOST, SOCKET_CLOSED_WHILE_IN_FLIGHT, types=_ANY, numbers=_LOST),
        # Before a member that is no primary: with a write concern it was one, and did what it does not confirm.
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
        # Of codes that are not known here: what the server's labels indicate, which are its error map.
        Entry(OVERLOADED, SERVER_OVERLOADED, types=_ANY, labels=frozenset({"SystemOverloadedError"})),
        Entry(NOT_CONFIRMED, TIMEOUT_IN_FLIGHT, types=_ANY, labels=frozenset({"UnknownTransactionCommitResult"})),
        Entry(LOST, SOCKET_CLOSED_WHILE_IN_FLIGHT, types=_ANY, labels=frozenset({"RetryableWriteError"})),
        Entry(CURSOR, SERVICE_RESPONSE_CODE_INDICATED, types=_ANY, labels=frozenset({"ResumableChangeStreamError"})),
        Entry(INVALID, UNKNOWN, types=frozenset({"pymongo.errors.OperationFailure"})),
    ),
)
