"""What a check says."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How bad it is."""

    OK = "OK"
    WARNING = "WARNING"
    """Works now; not as it should be."""
    PROBLEM = "PROBLEM"
    """Something does not work, or will not when it is needed."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at."""

    name: str
    level: Level
    found: str
    advice: str = ""
    """What to do; empty if there is nothing."""
    asked: bool = True
    """False: it could not be found out, and `found` says why."""


def ok(name: str, found: str) -> Check:
    """All is well."""
    return Check(name, Level.OK, found)


def warning(name: str, found: str, advice: str) -> Check:
    """Something to see to."""
    return Check(name, Level.WARNING, found, advice)


def problem(name: str, found: str, advice: str) -> Check:
    """Something to see to now."""
    return Check(name, Level.PROBLEM, found, advice)


def unasked(name: str, found: str, advice: str) -> Check:
    """What could not be found out: a problem, since it may hide one."""
    return Check(name, Level.PROBLEM, found, advice, asked=False)


def worst(checks: Iterable[Check]) -> Level:
    """The worst level of all; OK of none."""
    order = list(Level)
    return max((check.level for check in checks), key=order.index, default=Level.OK)


def join_names(names: Iterable[str], most: int = 8) -> str:
    """Names with commas, and how many more there are."""
    every = sorted(names)
    more = f" and {len(every) - most} more" if len(every) > most else ""
    return ", ".join(every[:most]) + more
