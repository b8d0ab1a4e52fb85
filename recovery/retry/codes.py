"""Error codes: a number whose range says whether waiting can help (Hive's replication retry, 'Classification of
Errors').

    10000 to 19999   semantic: found before anything was done. Not tried again
    20000 to 39999   retriable
    40000 to 49999   not retriable: a person has to see to it
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from recovery.errors import InputError


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
OUR_OWN = (GENERIC_ERROR, WORK_TIMEOUT, TASK_TIMEOUT, PROCESS_TIMEOUT, CALL_REFUSED)
"""Codes that stand in no catalogue."""
