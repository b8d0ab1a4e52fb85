"""Error codes: a number whose range says whether waiting can help (Hive's replication retry, 'Classification of
Errors').

    10000 to 19999   semantic: found before anything was done. Not tried again
    20000 to 39999   retriable
    40000 to 49999   not retriable: a person has to see to it

`ErrorMap` is a server's own map of its codes (RFC 49, 'KV Error Map Handling'), which any catalogue may declare. It is
asked for errors that no entry of the catalogue knows. If it indicates a retry, the error goes to the orchestrator,
whose strategy decides if and when. If it does not, or does not have the error, the orchestrator is not asked. Its
intervals, ceilings and durations are not used, since the strategy has its own.
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
    """What becomes of an error."""

    SEMANTIC = "semantic"
    RETRIABLE = "retriable"
    NOT_RETRIABLE = "not retriable"


_RANGES = (
    (10_000, 20_000, ErrorClass.SEMANTIC),
    (20_000, 40_000, ErrorClass.RETRIABLE),
    (40_000, 50_000, ErrorClass.NOT_RETRIABLE),
)


def class_of(number: int) -> ErrorClass:
    """The class of a code, by its range. Raises InputError for one in none."""
    for first, end, found in _RANGES:
        if first <= number < end:
            return found
    raise InputError(f"error code {number}: must be from 10000 to 49999, since its range says whether it is retriable")


@dataclass(frozen=True, slots=True)
class ErrorCode:
    """A number, its name, and what it says. Raises InputError for a number that is in no range."""

    number: int
    name: str
    text: str

    def __post_init__(self) -> None:
        class_of(self.number)

    @property
    def error_class(self) -> ErrorClass:
        return class_of(self.number)


GENERIC_ERROR = ErrorCode(40000, "GENERIC_ERROR", "Exception while processing")
"""Of what no catalogue knows."""

# Of what no exception was raised for. Each is the end of what could be done about it.
WORK_TIMEOUT = ErrorCode(40001, "WORK_TIMEOUT", "Attempts brought no result, and no other one follows")
TASK_TIMEOUT = ErrorCode(40002, "TASK_TIMEOUT", "The task was not done within its task_timeout")
PROCESS_TIMEOUT = ErrorCode(40003, "PROCESS_TIMEOUT", "The process was not done within its process_timeout")
CALL_REFUSED = ErrorCode(40004, "CALL_REFUSED", "No version of the code that live workers have accepts the task's call")
RETRIES_EXHAUSTED = ErrorCode(40005, "RETRIES_EXHAUSTED", "The total duration of the error's retries is over")
"""Of an error that was retriable (Hive: 'after we exhaust the number of retries … these become non-retriable')."""
CIRCUIT_OPEN = ErrorCode(20001, "CIRCUIT_BREAKER_OPEN", "The circuit breaker is open, so nothing was sent")
OUR_OWN = (GENERIC_ERROR, WORK_TIMEOUT, TASK_TIMEOUT, PROCESS_TIMEOUT, CALL_REFUSED, RETRIES_EXHAUSTED)
"""Codes that stand in no catalogue."""


RETRY_INDICATED = ErrorCode(20005, "ERROR_MAP_RETRY_INDICATED", "The server's error map indicates a retry")
NOT_INDICATED = ErrorCode(40010, "ERROR_MAP_NO_RETRY", "The server's error map indicates no retry")

_INDICATES = {"retry-now", "retry-later"}


@dataclass(frozen=True, slots=True)
class ErrorMap:
    """What a server says of its errors. Raises InputError for what is no map."""

    errors: Mapping[int, frozenset[str]]
    """{a server's code: its attributes}; `retry-now` and `retry-later` indicate a retry."""
    types: frozenset[str]
    """Full names of the classes of errors whose numbers are these."""

    def __post_init__(self) -> None:
        if not self.types:
            raise InputError("an error map says by no type whose numbers it has; give it one")

    @classmethod
    def read(cls, document: Any, types: frozenset[str]) -> ErrorMap:
        """A map in the form in which Couchbase sends it: `{"errors": {"86": {"attrs": ["retry-later"], …}}}`, with
        hexadecimal codes."""
        found = document.get("errors") if isinstance(document, Mapping) else None
        if not isinstance(found, Mapping):
            raise InputError(f"{given.shown(document)} is no error map; it has to have 'errors', by their codes")
        return cls({_code(code): _attributes(code, said) for code, said in found.items()}, types)

    def says(self, number: int) -> tuple[ErrorCode, Reason]:
        """The code and reason of an error with this number."""
        if self.errors.get(number, frozenset()) & _INDICATES:
            return RETRY_INDICATED, KV_ERROR_MAP_RETRY_INDICATED
        return NOT_INDICATED, UNKNOWN


def _code(text: Any) -> int:
    try:
        return int(text, 16)
    except (ValueError, TypeError):
        raise InputError(f"an error map has the code {given.shown(text)}, which is no hexadecimal number") from None


def _attributes(code: str, said: Any) -> frozenset[str]:
    attributes = said.get("attrs") if isinstance(said, Mapping) else None
    if not isinstance(attributes, list | tuple) or not all(isinstance(one, str) for one in attributes):
        raise InputError(f"an error map has no 'attrs', a list of texts, for {code}: {given.shown(said)}")
    return frozenset(attributes)
