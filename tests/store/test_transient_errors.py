"""Which errors are worth another try."""

from __future__ import annotations

import pytest
from pymongo.errors import (
    AutoReconnect,
    BulkWriteError,
    DuplicateKeyError,
    ExecutionTimeout,
    NotPrimaryError,
    OperationFailure,
    ServerSelectionTimeoutError,
    WriteConcernError,
    WriteError,
)

from recovery.store.driver_errors import is_transient


@pytest.mark.parametrize(
    "error",
    [
        AutoReconnect("gone"),
        NotPrimaryError("stepped down"),
        ServerSelectionTimeoutError("nobody there"),
        WriteConcernError("stepped down while waiting for a majority", 189),
        WriteError("User writes blocked", 371),
        ExecutionTimeout("too long", 50),
        BulkWriteError({"writeErrors": [{"code": 371}]}),
        BulkWriteError({"writeErrors": [{"code": 11000}, {"code": 10107}]}),
        BulkWriteError({"writeErrors": [], "writeConcernErrors": [{"code": 64}]}),
    ],
    ids=repr,
)
def test_what_passes(error: Exception) -> None:
    assert is_transient(error)


@pytest.mark.parametrize(
    "error",
    [
        DuplicateKeyError("there already", 11000),
        OperationFailure("not allowed", 13),
        WriteError("Document failed validation", 121),
        BulkWriteError({"writeErrors": [{"code": 11000}]}),
        ValueError("ours"),
    ],
    ids=repr,
)
def test_what_does_not(error: Exception) -> None:
    assert not is_transient(error)
