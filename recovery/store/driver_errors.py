"""What an error of pymongo's means: whether it may pass by itself, so that another try is worth it, and
which of our errors it is above the store.

No text of ours has a document in it, as pymongo's texts do for what was refused: it has what the server says, and its
code.
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
"""Codes of a server that is no primary, or is ending."""
DUPLICATE_KEY = 11000
"""Code of a record whose key another one has."""
_UNAUTHORIZED = 13
_INVALID = 121  # DocumentValidationFailure
_TOO_LARGE = (10334, 17419, 17420)
_INDEX_CONFLICTS = (85, 86)  # IndexOptionsConflict, IndexKeySpecsConflict
_DENIED = re.compile(r"not authorized on (\S+) to execute command \{ (\w+): \"?([\w.]+)")
_DESCRIBED = re.compile(r",? Timeout: [\d.]+s, Topology Description: .*|,? \(configured timeouts: [^()]*\)", re.DOTALL)
"""What pymongo adds to an error: all that it knows of the servers, and its own options."""


def is_transient(error: BaseException) -> bool:
    """Return whether the same call may be answered later, by the catalogue of MongoDB's errors.

    Otherwise the call is wrong, or not allowed.
    """
    # Imported here: most commands meet no error, and end sooner.
    from recovery.retry.catalogue import find
    from recovery.retry.catalogues.mongodb import MONGODB
    from recovery.retry.signs import signs_of

    signs = [signs_of(error)]
    if isinstance(error, BulkWriteError):  # a server that steps down in the middle refuses the rest
        failed = (error.details or {}).get("writeErrors", ())
        signs += [replace(signs[0], number=one.get("code"), labels=frozenset()) for one in failed]
    return any(found is not None and found.is_retriable for found in (find(one, (MONGODB,)) for one in signs))


def ours(error: Exception) -> StoreError:
    """Return the error of ours that a driver's error becomes above the store."""
    if is_denied(error):
        return StoreDenied(denied(error))
    return _kind(error)(f"{type(error).__name__.removeprefix('_')}: {said(error)}")


translated = boundary((PyMongoError, BSONError), ours)
"""Decorates each class of the store that asks MongoDB."""


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
    """What an error says: of what MongoDB refused its own words, without the documents that the error's text holds."""
    if isinstance(error, _OperationCancelled):
        return "its connection was closed, as the server is away or no longer the primary"
    if isinstance(error, OperationFailure) and _first(error).get("code", error.code) in _NO_PRIMARY:
        return f"the primary was lost, or steps down (code {_first(error).get('code', error.code)})"
    if isinstance(error, InvalidDocument) and not isinstance(error, DocumentTooLarge):
        return "a value is of a type that MongoDB has not"
    if not isinstance(error, OperationFailure) or not error.details:
        return _DESCRIBED.sub("", str(error))
    code = _first(error).get("code", error.code)
    return refusal(error) if code is None or "errmsg" not in _first(error) else f"{refusal(error)} (code {code})"


def refusal(error: OperationFailure) -> str:
    """Why MongoDB refused a write, or its first that it refused, without the documents that the error's text holds."""
    first = _first(error)
    return str(first.get("errmsg") or f"code {first.get('code', error.code)}")


def _first(error: OperationFailure) -> dict[str, Any]:
    details = dict(error.details or {})
    first: dict[str, Any] = next(iter(details.get("writeErrors") or details.get("writeConcernErrors") or ()), details)
    return first


def is_denied(error: BaseException) -> bool:
    """Return whether the user may not do what was asked for."""
    return isinstance(error, OperationFailure) and error.code == _UNAUTHORIZED


def denied(error: Exception) -> str:
    """What the user may not do, in words; the server shows the whole command."""
    details = error.details if isinstance(error, OperationFailure) else None
    text = str((details or {}).get("errmsg", error))
    if (found := _DENIED.search(text)) is None:
        return f"this user of MongoDB may not do that: {text[:200]}"
    database, command, collection = found.groups()
    return f"this user of MongoDB may not do {command} on {database}.{collection}"


def is_too_large(error: Exception) -> bool:
    """Whether a write was refused because the document would be over MongoDB's limit."""
    return isinstance(error, DocumentTooLarge) or (isinstance(error, OperationFailure) and error.code in _TOO_LARGE)


def is_index_missing(error: Exception) -> bool:
    """Whether a query was refused since an index is not there: somebody dropped it, or its whole collection, which
    the next insert made again without."""
    return isinstance(error, OperationFailure) and error.code == 2 and "hint provided" in str(error)


def is_index_different(error: Exception) -> bool:
    """Whether an index could not be made since it is there in another form, or under another name."""
    return isinstance(error, OperationFailure) and error.code in _INDEX_CONFLICTS
