"""What an actor and a process type may be told, with FailMap's defaults. Times are in seconds.

Source: reference note FailMap, 'Настройки актера и значения по умолчанию'. Workers store the settings of
their actors in MongoDB when they start, so that a scanner or a sweep that does not have the application's
code knows them. What an operator set is kept beside them and wins (`Stored`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Generic, NamedTuple, TypeVar

from recovery.errors import InputError
from recovery.limits import LONGEST, MAX_COUNT, SHORTEST
from recovery.records.given import shown
from recovery.records.record import Record


class TaskLimit(NamedTuple):
    """How long a task may take in all, in seconds; `forced`: not even an attempt that runs may go on then."""

    seconds: float
    forced: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorPreferences(Record):
    """Settings of one actor. `id` is its name, which is also its queue's."""

    id: str
    worker_timeout: float = 60.0
    """How long an attempt may take from claim, or from its last heartbeat, to result."""
    accept_first: bool = True
    """Take the first value that comes, from whichever attempt; False: only from the current pass."""
    restart_after_work_timeout: bool = True
    """Requeue an attempt that timed out; False: end the task with a timeout error."""
    # One time-out is a deployment, three a bad night; ten in a row is a task that kills its workers. At the
    # default worker_timeout a task that always hangs breaks its process after some ten minutes.
    max_work_timeouts: int = 10
    """How many attempts may be lost before the task ends with an error and its process is broken."""
    auto_heartbeat: bool = False
    """Move the deadline while the function runs. A hung function then never times out; a dead one does."""
    # Off: a queue that is long for an hour must not end what only waits in it.
    task_timeout: float = 0.0
    """How long a task may take in all, from when it was first queued, before it ends with an error. 0: no limit."""
    force_finish_after_task_timeout: bool = False
    """End a task at its task_timeout even while an attempt runs; False: not before that attempt's own deadline."""
    # Off: a queue bears as many messages as there are tasks. What an actor calls may bear less.
    requeue_rate: float = 0.0
    """How many overdue tasks a second are queued again after an outage; the others follow. 0: all at once."""

    @property
    def task_limit(self) -> TaskLimit | None:
        """The limit of a task as a whole; None without one."""
        return TaskLimit(self.task_timeout, self.force_finish_after_task_timeout) if self.task_timeout else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessTypePreferences(Record):
    """Settings of one process type. `id` is its name."""

    id: str
    idle_timeout: float = 60.0
    """First look at a process in which nothing changes. Kept in each process at its start."""
    # Off: how long is too long only the application knows.
    process_timeout: float = 0.0
    """How long a process may run before it is counted as late. 0: as long as it likes."""
    break_after_process_timeout: bool = False
    """Break a process at its process_timeout; False: only count it, and wait on."""


RATES = frozenset({"requeue_rate"})
"""Settings in tasks a second; all others with a fraction are times, in seconds."""

Preferences = ActorPreferences | ProcessTypePreferences
P = TypeVar("P", ActorPreferences, ProcessTypePreferences)


@dataclass(frozen=True, slots=True)
class Stored(Generic[P]):
    """Settings as they are kept: what the code says, and what an operator set, which wins."""

    code: P
    overrides: Mapping[str, Any] = field(default_factory=dict)
    blocked: bool = False
    """Only of actors: no task of it is begun."""

    @property
    def effective(self) -> P:
        """What holds where the code says what it said when it was stored."""
        return self.over(self.code)

    def over(self, code: P) -> P:
        """What holds where the code says this."""
        return code.evolve(**self.overrides) if self.overrides else code


def setting_names(kind: type[Preferences]) -> list[str]:
    """Names of what can be set."""
    return [one.name for one in fields(kind) if one.name != "id"]


def check(preferences: Preferences) -> None:
    """Raise InputError, naming the setting, for a value that can't be."""
    kind = "actor" if isinstance(preferences, ActorPreferences) else "process type"
    for one in fields(preferences):
        wanted = wanted_value(type(preferences), one.name)
        value = getattr(preferences, one.name)
        if one.name != "id" and not fits(one.name, value, one.default):
            raise InputError(f"{kind} {preferences.id}: {one.name} must be {wanted}, not {_told(value)}")


def wanted_value(kind: type[Preferences], name: str) -> str:
    """What a setting may be, in words."""
    default = default_of(kind, name)
    if isinstance(default, bool):
        return "True or False"
    if isinstance(default, int):
        return f"from 1 to {MAX_COUNT:,}"
    if name in RATES:
        return f"0 (off) or more tasks a second, up to {MAX_COUNT:,}"
    return f"{'' if default else '0 (off) or '}at least {SHORTEST:g} seconds, up to 10 years ({LONGEST:,})"


def default_of(kind: type[Preferences], name: str) -> Any:
    """The default of a setting; its type is the setting's."""
    return next(one.default for one in fields(kind) if one.name == name)


def most_of(name: str, default: Any) -> int:
    """The largest value of a setting that is a number."""
    return MAX_COUNT if isinstance(default, int) or name in RATES else LONGEST


def least_of(name: str) -> float:
    """The smallest value of a setting with a fraction, but for an off: of a rate, one task in a year."""
    return 1 / LONGEST if name in RATES else SHORTEST


def within_limits(preferences: P) -> P:
    """The same, with what an older version took and this one does not at its limits: deadlines are worked out from it
    for many records at once."""
    over: dict[str, Any] = {}
    for one in fields(preferences):
        value = getattr(preferences, one.name)
        # Not by type: what MongoDB has as a long is a whole number of a type of its own.
        if not isinstance(value, int | float):
            continue
        if value > (most := most_of(one.name, one.default)):
            over[one.name] = most if isinstance(one.default, int) else float(most)
        elif isinstance(one.default, float) and 0 < value < (least := least_of(one.name)):
            over[one.name] = least
    return preferences.evolve(**over) if over else preferences


def fits(name: str, value: Any, default: Any) -> bool:
    """Whether a value is one of the setting of this name and default."""
    if isinstance(default, bool):
        return isinstance(value, bool)
    if isinstance(default, int):
        return type(value) is int and 1 <= value <= MAX_COUNT
    # A number of seconds, and not a timedelta, a text or a switch. A default of 0 is a time that may be off.
    if type(value) not in (int, float):
        return False
    return bool(least_of(name) <= value <= most_of(name, default) or value == default == 0)


def _told(value: Any) -> str:
    """A value in a message. Python writes no whole number of thousands of digits, and nobody reads one."""
    if type(value) is int and value.bit_length() > 400:
        return f"a number of over {value.bit_length() * 3 // 10:,} digits"
    return shown(value)
