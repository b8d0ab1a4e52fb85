"""Errors are carried from one process to another, whatever their constructors take."""

from __future__ import annotations

import copy
import inspect
import pickle
from collections.abc import Iterator

import pytest

from recovery import errors
from recovery.errors import CustomIdTaken, DamagedRecord, ProcessBroken, RecoveryError, StartRefused

MADE: dict[type[RecoveryError], RecoveryError] = {
    CustomIdTaken: CustomIdTaken("taken", "p1"),
    DamagedRecord: DamagedRecord("p/t", "spoilt", ("state",), "Decision"),
    StartRefused: StartRefused("no", "order", "FAILED_ADMIN", "order/7", 40000),
    ProcessBroken: ProcessBroken("p1", "t1", "ValueError", "no", "aborted"),
}
"""Those whose constructor takes more than a text."""


def kinds() -> Iterator[type[RecoveryError]]:
    for found in vars(errors).values():
        if inspect.isclass(found) and issubclass(found, RecoveryError):
            yield found


@pytest.mark.parametrize("kind", list(kinds()))
def test_an_error_is_the_same_in_another_process(kind: type[RecoveryError]) -> None:
    error = MADE.get(kind) or kind("told")
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert (type(again), str(again), again.args, vars(again)) == (kind, str(error), error.args, vars(error))
