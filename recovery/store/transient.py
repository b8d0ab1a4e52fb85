"""Which of MongoDB's errors pass by themselves, so that a step which may run twice is worth another try."""

from __future__ import annotations

from typing import Any

from pymongo.errors import BulkWriteError, ConnectionFailure, OperationFailure, PyMongoError, WriteConcernError

_CODES = frozenset(
    {
        *(6, 7, 89, 9001),  # the network between its members
        *(91, 189, 10107, 11600, 11602, 13435, 13436),  # no primary, or one that is ending
        *(24, 46, 50, 112, 262, 12587),  # too busy, or with an index
        *(371, 14031),  # writes are blocked for users, or the disk is full, until somebody sees to it
    }
)


def is_transient(error: BaseException) -> bool:
    """Whether the same call may well be answered later. False: it is wrong, or not allowed."""
    if isinstance(error, BulkWriteError):
        return _of_bulk(error.details or {})
    if isinstance(error, OperationFailure):
        # Written, but perhaps to be taken back: a majority did not say yet that it has it.
        return isinstance(error, WriteConcernError) or error.timeout or error.code in _CODES
    return isinstance(error, ConnectionFailure) or (isinstance(error, PyMongoError) and error.timeout)


def _of_bulk(details: Any) -> bool:
    errors = details.get("writeErrors", ())
    return bool(details.get("writeConcernErrors")) or any(one.get("code") in _CODES for one in errors)
