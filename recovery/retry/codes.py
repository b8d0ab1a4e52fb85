"""Error codes, whose range says whether a retry can help (Hive's replication retry, 'Classification of Errors').

    10000 to 19999   semantic: detected before anything was done; not retried
    20000 to 39999   retriable
    40000 to 49999   not retriable: a person must act

`ErrorMap` is a server's own map of its error codes (RFC 49, 'KV Error Map Handling'). Any catalogue may have one, for
errors that none of its entries knows. If the map indicates a retry, the orchestrator asks the strategy whether and when
to retry. If the map does not, or does not have the error, the error is not retried. The map's intervals, ceilings and
durations are not used, because the strategy has its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from recovery.errors import InputError
from recovery.records import given
from recovery.retry.reasons import KV_ERROR_MAP_RETRY_INDICATED, UNKNOWN, Reason


class ErrorClass(StrEnum):
    """Whether an error is retried, by the range of its code."""

    SEMANTIC = "semantic"
    RETRIABLE = "retriable"
    NOT_RETRIABLE = "not retriable"


_RANGES = (
    (10_000, 20_000, ErrorClass.SEMANTIC),
    (20_000, 40_000, ErrorClass.RETRIABLE),
    (40_000, 50_000, ErrorClass.NOT_RETRIABLE),
)


def class_of(number: int) -> ErrorClass:
    """Return the class of a code, by its range. Raise InputError for a number outside all ranges."""
    for first, stop, error_class in _RANGES:
        if first <= number < stop:
            return error_class
    raise InputError(
        f"error code {number}: must be from 10000 to 49999, because its range says whether it is retriable"
    )


@dataclass(frozen=True, slots=True)
class ErrorCode:
    """A number, its name, and its meaning. Raise InputError for a number outside all ranges."""

    number: int
    name: str
    text: str

    def __post_init__(self) -> None:
        class_of(self.number)

    @property
    def error_class(self) -> ErrorClass:
        return class_of(self.number)


GENERIC_ERROR = ErrorCode(40000, "GENERIC_ERROR", "Exception while processing")
"""The code of errors that no catalogue knows."""

# Codes of failures without an exception. None of them is retried any further.
WORK_TIMEOUT = ErrorCode(40001, "WORK_TIMEOUT", "The attempts returned no result, and no further attempt follows")
TASK_TIMEOUT = ErrorCode(40002, "TASK_TIMEOUT", "The task was not done within its task_timeout")
PROCESS_TIMEOUT = ErrorCode(40003, "PROCESS_TIMEOUT", "The process was not done within its process_timeout")
CALL_REFUSED = ErrorCode(40004, "CALL_REFUSED", "No live worker has a version of the code that accepts the task's call")
RETRIES_EXHAUSTED = ErrorCode(40005, "RETRIES_EXHAUSTED", "The total duration of the error's retries is over")
"""The code after a retriable error (Hive: 'after we exhaust the number of retries … these become non-retriable')."""
CIRCUIT_OPEN = ErrorCode(20001, "CIRCUIT_BREAKER_OPEN", "The circuit breaker is open, so nothing was sent")
OUR_OWN = (GENERIC_ERROR, WORK_TIMEOUT, TASK_TIMEOUT, PROCESS_TIMEOUT, CALL_REFUSED, RETRIES_EXHAUSTED)
"""Codes that are in no catalogue."""


RETRY_INDICATED = ErrorCode(20005, "ERROR_MAP_RETRY_INDICATED", "The server's error map indicates a retry")
NOT_INDICATED = ErrorCode(40010, "ERROR_MAP_NO_RETRY", "The server's error map indicates no retry")

_INDICATES = {"retry-now", "retry-later"}


@dataclass(frozen=True, slots=True)
class ErrorMap:
    """A server's classification of its own errors. Raise InputError if it has no types."""

    errors: Mapping[int, frozenset[str]]
    """{a server's error code: its attributes}; `retry-now` and `retry-later` indicate a retry."""
    types: frozenset[str]
    """Full names of the error classes whose numbers are in the map."""

    def __post_init__(self) -> None:
        if not self.types:
            raise InputError("an error map has no types; give the error classes whose numbers it has")

    @classmethod
    def read(cls, document: Any, types: frozenset[str]) -> ErrorMap:
        """Parse a map in Couchbase's format: `{"errors": {"86": {"attrs": ["retry-later"], …}}}`, with hexadecimal
        codes.

        Raises:
            InputError: The document has another form.
        """
        errors = document.get("errors") if isinstance(document, Mapping) else None
        if not isinstance(errors, Mapping):
            raise InputError(f"{given.shown(document)} is not an error map; it must have 'errors', by their codes")
        return cls({_code(code): _attributes(code, entry) for code, entry in errors.items()}, types)

    def says(self, number: int) -> tuple[ErrorCode, Reason]:
        """Return the code and reason of an error with this number."""
        if self.errors.get(number, frozenset()) & _INDICATES:
            return RETRY_INDICATED, KV_ERROR_MAP_RETRY_INDICATED
        return NOT_INDICATED, UNKNOWN


def _code(text: Any) -> int:
    try:
        return int(text, 16)
    except (ValueError, TypeError):
        raise InputError(f"an error map has the code {given.shown(text)}, which is not a hexadecimal number") from None


def _attributes(code: str, entry: Any) -> frozenset[str]:
    attributes = entry.get("attrs") if isinstance(entry, Mapping) else None
    if not isinstance(attributes, list | tuple) or not all(isinstance(attribute, str) for attribute in attributes):
        raise InputError(f"an error map has no 'attrs', a list of texts, for {code}: {given.shown(entry)}")
    return frozenset(attributes)
