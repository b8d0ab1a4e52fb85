"""Our own errors of servers: known by the driver's error that each was raised from, else by their kind."""

from __future__ import annotations

import pytest
from pymongo import errors as of_pymongo

from recovery.errors import BrokerError, InputError, ServerUnavailable, StoreTimeout
from recovery.retry import Classified, ErrorCode
from recovery.retry.catalogues.mongodb import AWAY as MONGODB_AWAY
from recovery.retry.in_place import AWAY, BROKER, TIMED_OUT, by_driver
from recovery.retry.reasons import NODE_NOT_AVAILABLE, SERVICE_NOT_AVAILABLE, TIMEOUT_IN_FLIGHT, Reason


def raised_from(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "code", "reason"),
    [
        (StoreTimeout("late"), TIMED_OUT, TIMEOUT_IN_FLIGHT),
        (ServerUnavailable("away"), AWAY, NODE_NOT_AVAILABLE),
        (BrokerError("refused"), BROKER, SERVICE_NOT_AVAILABLE),
    ],
)
def test_an_error_without_a_cause_is_known_by_its_kind(error: Exception, code: ErrorCode, reason: Reason) -> None:
    assert by_driver(error) == Classified(code, reason, "servers")


def test_an_error_is_what_the_drivers_error_says_that_it_was_raised_from() -> None:
    error = raised_from(ServerUnavailable("away"), of_pymongo.ServerSelectionTimeoutError("no primary"))
    assert by_driver(error) == Classified(MONGODB_AWAY, NODE_NOT_AVAILABLE, "mongodb")


def test_a_cause_that_no_driver_raised_leaves_the_error_to_its_kind() -> None:
    assert by_driver(raised_from(StoreTimeout("late"), KeyError("x"))).code == TIMED_OUT


def test_an_error_that_is_of_no_server_is_not_retriable() -> None:
    assert not by_driver(InputError("wrong")).is_retriable
