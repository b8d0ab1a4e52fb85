"""What an error of the MongoDB driver means: whether it is transient, and which error of this project replaces it.

pymongo's texts contain the document that the server refused. Our texts never do: they contain only the server's message
and its code.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from bson.errors import BSONError, InvalidDocument
from pymongo.errors import (
    BulkWriteError,
    DocumentTooLarge,
    OperationFailure,
    PyMongoError,
    _OperationCancelled,
)

from recovery.errors import (
    IndexConflict,
    IndexMissing,
    RecordInvalid,
    RecordTooLarge,
    StoreDenied,
    StoreError,
    StoreRefused,
    StoreTimeout,
    StoreUnavailable,
    boundary,
)

_NO_PRIMARY = frozenset({91, 189, 10107, 11600, 11602, 13435, 13436})
"""Codes of a server that is not the primary, or is shutting down."""
DUPLICATE_KEY = 11000
"""Code for a record whose key exists already."""
_UNAUTHORIZED = 13
_INVALID = 121  # DocumentValidationFailure
_TOO_LARGE = (10334, 17419, 17420)
_INDEX_CONFLICTS = (85, 86)  # IndexOptionsConflict, IndexKeySpecsConflict
_DENIED = re.compile(r"not authorized on (\S+) to execute command \{ (\w+): \"?([\w.]+)")
_DESCRIBED = re.compile(r",? Timeout: [\d.]+s, Topology Description: .*|,? \(configured timeouts: [^()]*\)", re.DOTALL)
"""What pymongo appends to an error: the state of all servers, and its own options."""


def is_transient(error: BaseException) -> bool:
    """Return whether the same call may succeed later, according to the catalogue of MongoDB's errors.

    Otherwise the call itself is wrong, or is not allowed.
    """
    # Imported here, because most commands meet no error and start faster without it.
    from recovery.retry.catalogue import find
    from recovery.retry.catalogues.mongodb import MONGODB
    from recovery.retry.signs import signs_of

    signs = [signs_of(error)]
    if isinstance(error, BulkWriteError):  # a server that steps down half-way refuses the remaining writes
        failed = (error.details or {}).get("writeErrors", ())
        signs += [replace(signs[0], number=write_error.get("code"), labels=frozenset()) for write_error in failed]
    return any(cause is not None and cause.is_retriable for cause in (find(sign, (MONGODB,)) for sign in signs))


def ours(error: Exception) -> StoreError:
    """Return the error of this project that replaces a driver's error outside the store."""
    if is_denied(error):
        return StoreDenied(denied(error))
    return _kind(error)(f"{type(error).__name__.removeprefix('_')}: {said(error)}")


translated = boundary((PyMongoError, BSONError), ours)
"""Decorator for each class of the store that calls MongoDB: replaces the driver's errors by `ours`."""


def _kind(error: Exception) -> type[StoreError]:
    if is_transient(error):
        return StoreTimeout if isinstance(error, PyMongoError) and error.timeout else StoreUnavailable
    if is_too_large(error):
        return RecordTooLarge
    if is_index_missing(error):
        return IndexMissing
    if isinstance(error, OperationFailure) and _first(error).get("code", error.code) == _INVALID:
        return RecordInvalid
    return IndexConflict if is_index_different(error) else StoreRefused


def said(error: Exception) -> str:
    """Return the text of an error, without the documents that the driver's text contains."""
    if isinstance(error, _OperationCancelled):
        return "its connection was closed, because the server is away or no longer the primary"
    if isinstance(error, OperationFailure) and _first(error).get("code", error.code) in _NO_PRIMARY:
        return f"the primary was lost, or steps down (code {_first(error).get('code', error.code)})"
    if isinstance(error, InvalidDocument) and not isinstance(error, DocumentTooLarge):
        return "a value has a type that MongoDB can't store"
    if not isinstance(error, OperationFailure) or not error.details:
        return _DESCRIBED.sub("", str(error))
    code = _first(error).get("code", error.code)
    return refusal(error) if code is None or "errmsg" not in _first(error) else f"{refusal(error)} (code {code})"


def refusal(error: OperationFailure) -> str:
    """Return why MongoDB refused a write, or the first refused write of several, without the refused document."""
    first = _first(error)
    return str(first.get("errmsg") or f"code {first.get('code', error.code)}")


def _first(error: OperationFailure) -> dict[str, Any]:
    """Return the details of the first failed write, or those of the whole command."""
    details = dict(error.details or {})
    first: dict[str, Any] = next(iter(details.get("writeErrors") or details.get("writeConcernErrors") or ()), details)
    return first


def is_denied(error: BaseException) -> bool:
    """Return whether the user lacks the right to do this."""
    return isinstance(error, OperationFailure) and error.code == _UNAUTHORIZED


def denied(error: Exception) -> str:
    """Return in words what the user may not do. The server's own text contains the whole command."""
    details = error.details if isinstance(error, OperationFailure) else None
    text = str((details or {}).get("errmsg", error))
    if (match := _DENIED.search(text)) is None:
        return f"this user of MongoDB may not do that: {text[:200]}"
    database, command, collection = match.groups()
    return f"this user of MongoDB may not do {command} on {database}.{collection}"


def is_too_large(error: Exception) -> bool:
    """Return whether a write was refused because the document would exceed MongoDB's limit of 16 MB."""
    return isinstance(error, DocumentTooLarge) or (isinstance(error, OperationFailure) and error.code in _TOO_LARGE)


def is_index_missing(error: Exception) -> bool:
    """Return whether a query was refused because the index in its hint does not exist.

    Somebody dropped the index, or the whole collection, which the next insert then created again without indexes.
    """
    return isinstance(error, OperationFailure) and error.code == 2 and "hint provided" in str(error)


def is_index_different(error: Exception) -> bool:
    """Return whether an index could not be created because it exists with other options or under another name."""
    return isinstance(error, OperationFailure) and error.code in _INDEX_CONFLICTS
