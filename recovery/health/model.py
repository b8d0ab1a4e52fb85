"""What a check of the doctor found: its level, its cause, and what to do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum, auto

from recovery.errors import ServerError, ServerTooOld, SettingsError


class Level(StrEnum):
    """How bad it is."""

    OK = "OK"
    WARNING = "WARNING"
    """Works now; not as it should be."""
    UNKNOWN = "UNKNOWN"
    """Could not be found out: it may hide a problem."""
    PROBLEM = "PROBLEM"
    """Something does not work, or will not when it is needed."""


class _Code(StrEnum):
    @staticmethod
    def _generate_next_value_(name: str, *_: object) -> str:
        return name


class Cause(_Code):
    """What a check found, as a code that stays the same whatever its words are. docs/causes.md explains each."""

    HEALTHY = auto()
    NOT_ASKED = auto()
    ASK_FAILED = auto()
    INDEX_MISSING = auto()
    MONGODB_UNREACHABLE = auto()
    MONGODB_REFUSES = auto()
    MONGODB_UNFIT = auto()
    MONGODB_SHOWS_MEMORY = auto()
    REDIS_UNREACHABLE = auto()
    REDIS_REFUSES = auto()
    REDIS_IS_REPLICA = auto()
    REDIS_UNFIT = auto()
    REDIS_CAN_NOT_SAVE = auto()
    REDIS_FULL = auto()
    REDIS_DROPS_MESSAGES = auto()
    REDIS_POLICY = auto()
    NO_PRIMARY = auto()
    PRIMARY_UNREACHABLE = auto()
    NO_MAJORITY = auto()
    MEMBERS_DOWN = auto()
    MEMBERS_CUT_OFF = auto()
    MEMBERS_UNREACHABLE = auto()
    MEMBERS_RECOVERING = auto()
    MEMBERS_NOT_SEEN = auto()
    WRITES_NOT_ACKNOWLEDGED = auto()
    WRITES_SLOW = auto()
    WRITES_NOT_TRIED = auto()
    RIGHTS_MISSING = auto()
    SECRETS_READABLE = auto()
    CLOCKS_APART = auto()
    PACKAGES_UNFIT = auto()
    SPARK_MISSING = auto()
    SPARK_WORKER_GONE = auto()
    COLLECTIONS_MISSING = auto()
    COLLECTIONS_DIFFERENT = auto()
    NO_WORKERS = auto()
    WORKERS_SILENT = auto()
    WORKERS_LOST = auto()
    WORKER_WITHOUT_MONGODB = auto()
    SLOTS_HANG = auto()
    SLOTS_FAIL = auto()
    ACTORS_UNSERVED = auto()
    ACTORS_BLOCKED = auto()
    WAITS_FOR_NEWER_WORKER = auto()
    PINNED_UNSERVED = auto()
    PINS_IGNORED = auto()
    QUEUES_UNSERVED = auto()
    MESSAGES_LEFT = auto()
    KEYS_IN_THE_WAY = auto()
    POLLS_UNANSWERED = auto()
    NO_BEAT = auto()
    SCANS_WITHOUT_BEAT = auto()
    NUDGES_NOT_TAKEN = auto()
    NUDGES_LOST = auto()
    NO_SCANS = auto()
    SCANNERS_FAIL = auto()
    SCANNERS_BEHIND = auto()
    RECORDS_OVERDUE = auto()
    SCHEDULES_DISABLED = auto()
    SCHEDULES_REFUSED = auto()
    SELECTIONS_AMBIGUOUS = auto()
    DEADLINES_MISSING = auto()
    RECORDS_DAMAGED = auto()
    PROCESSES_BROKEN = auto()
    BROKEN_NOT_LISTED = auto()
    STARTS_REFUSED = auto()


@dataclass(frozen=True, slots=True)
class Check:
    """What was found on one subject."""

    name: str
    level: Level
    cause: Cause
    found: str
    advice: str = ""
    """What to do; empty if there is nothing."""
    asked: bool = True
    """False: it could not be found out, and `found` says why."""


def ok(name: str, found: str, advice: str = "") -> Check:
    """Return a check that found nothing wrong."""
    return Check(name, Level.OK, Cause.HEALTHY, found, advice)


def warning(name: str, cause: Cause, found: str, advice: str) -> Check:
    """Return a check that found something to look at."""
    return Check(name, Level.WARNING, cause, found, advice)


def problem(name: str, cause: Cause, found: str, advice: str) -> Check:
    """Return a check that found something to look at now."""
    return Check(name, Level.PROBLEM, cause, found, advice)


def unasked(name: str, found: str, advice: str, cause: Cause = Cause.NOT_ASKED) -> Check:
    """Return a check that could not be made, for a reason that another check reports."""
    return Check(name, Level.UNKNOWN, cause, found, advice, asked=False)


def unreached(name: str, cause: Cause, error: ServerError | SettingsError) -> Check:
    """Return the check of a server that does not answer, or refuses us, in the error's words, which say what to do.

    Nothing else is asked of such a server: each question would wait for long. One that is too old does answer."""
    return Check(name, Level.PROBLEM, cause, str(error), asked=isinstance(error, ServerTooOld))


def unread(name: str, lacking: str) -> Check:
    """Return a check that was not made, because without an index it would read all records. `collections` reports that
    the index is missing."""
    found = f"not asked without {lacking}: all records would be read"
    return Check(name, Level.WARNING, Cause.INDEX_MISSING, found, "see `collections`", asked=False)


OF_PROCESSES = frozenset({Cause.PROCESSES_BROKEN, Cause.BROKEN_NOT_LISTED})
"""Causes of warnings about processes: the cluster works, and an operator has to do something about its processes."""


def is_bad(checks: Iterable[Check]) -> bool:
    """Whether `recovery doctor` ends with 1: a problem, something that could not be found out, or a broken process."""
    return any(check.level in (Level.PROBLEM, Level.UNKNOWN) or check.cause in OF_PROCESSES for check in checks)


def worst(checks: Iterable[Check]) -> Level:
    """Return the worst level of these checks; OK if there are none."""
    order = list(Level)
    return max((check.level for check in checks), key=order.index, default=Level.OK)


def join_names(names: Iterable[str], most: int = 8) -> str:
    """Return the names, sorted and with commas; after `most` of them only how many more there are."""
    every = sorted(names)
    more = f" and {len(every) - most} more" if len(every) > most else ""
    return ", ".join(every[:most]) + more
