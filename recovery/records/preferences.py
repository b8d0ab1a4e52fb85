"""What an actor and a process type may be told, with FailMap's defaults and Hive's of retry. Times are in seconds.

Source: reference note FailMap, 'Настройки актера и значения по умолчанию'. Workers store the settings of
their actors in MongoDB when they start, so that a scanner or a sweep that does not have the application's
code knows them. What an operator set is kept beside them and wins (`Stored`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from functools import cache
from typing import Any, Generic, NamedTuple, TypeVar, get_args, get_type_hints

from recovery.errors import InputError
from recovery.limits import LONGEST, MAX_COUNT, SHORTEST
from recovery.records.failure import TypeDisabled
from recovery.records.given import shown
from recovery.records.record import Record
from recovery.records.task import RetryOptions


class TaskLimit(NamedTuple):
    """How long a task may take in all, in seconds; `forced`: not even an attempt that runs may go on then."""

    seconds: float
    forced: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrySettings(Record):
    """When what failed is tried again, as far as it is said here. What is None a process type says for the actors of
    its processes; else it is as in `retry.policy.Backoff`."""

    retry: bool | None = None
    """Try again what may pass by itself; False: break the process at the first error."""
    retry_initial: float | None = None
    """How long the first retry waits."""
    retry_coefficient: float | None = None
    """By how much each retry waits longer than the one before."""
    retry_jitter_least: float | None = None
    """The least that is added to each wait, so that not all retries come together."""
    retry_jitter_most: float | None = None
    """The most that is added to each wait; how much it is, is left to chance."""
    retry_maximum: float | None = None
    """The longest wait. Retries that have come so far go on at it."""
    retry_total: float | None = None
    """How long the same error is tried again, from when it came first, all waits and retries included."""

    def retry_options(self) -> RetryOptions:
        """The same as a task may have them of its own."""
        return RetryOptions(
            enabled=self.retry,
            initial=self.retry_initial,
            coefficient=self.retry_coefficient,
            jitter_least=self.retry_jitter_least,
            jitter_most=self.retry_jitter_most,
            maximum=self.retry_maximum,
            total=self.retry_total,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorPreferences(RetrySettings):
    """Settings of one actor. `id` is its name, which is also its queue's."""

    id: str
    worker_timeout: float = 60.0
    """How long an attempt may take from claim, or from its last heartbeat, to result."""
    accept_first: bool = True
    """Take the first value that comes, from whichever attempt; False: only from the current pass."""
    idempotent: bool = True
    """Doing it twice is the same as doing it once. False: it is tried again only where the first try did nothing."""
    restart_after_work_timeout: bool | None = None
    """Requeue an attempt that timed out, or whose worker is gone; False: end the task with a timeout error. Unset: as
    `idempotent` says."""
    # One time-out is a deployment, three a bad night; ten in a row is a task that kills its workers. At the
    # default worker_timeout a task that always hangs breaks its process after some ten minutes.
    max_work_timeouts: int = 10
    """How many attempts may be lost before the task ends with an error and its process is broken."""
    lost_initial: float = 1.0
    """How long a task waits after its second lost attempt in a row. The first is followed by another at once."""
    lost_coefficient: float = 2.0
    """By how much each wait after a lost attempt is longer than the one before."""
    lost_maximum: float = 30.0
    """The longest wait after a lost attempt."""
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
    def restarts_lost_attempts(self) -> bool:
        """Whether an attempt that brought no answer is followed by another: nobody knows how far it came."""
        return self.idempotent if self.restart_after_work_timeout is None else self.restart_after_work_timeout

    @property
    def task_limit(self) -> TaskLimit | None:
        """The limit of a task as a whole; None without one."""
        return TaskLimit(self.task_timeout, self.force_finish_after_task_timeout) if self.task_timeout else None


ANY_VERSION, SAME_VERSION = "any", "same"


class FailureAction(StrEnum):
    """What keeps further processes of a type from being started once one has failed for good (Hive's 'Enforcement of
    Non Recoverable Errors')."""

    OFF = "off"
    MARKER = "marker"
    """A marker of the failed process's type and key (Hive: query level)."""
    DISABLE = "disable"
    """The whole type is disabled (Hive: application level)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessTypePreferences(RetrySettings):
    """Settings of one process type. `id` is its name."""

    id: str
    idle_timeout: float = 60.0
    """First look at a process in which nothing changes. Kept in each process at its start."""
    # Off: how long is too long only the application knows.
    process_timeout: float = 0.0
    """How long a process may run before it is counted as late. 0: as long as it likes."""
    break_after_process_timeout: bool = False
    """Break a process at its process_timeout; False: only count it, and wait on."""
    # Off: what is started by a person, or for one, is to be tried.
    versions: str = ANY_VERSION
    """Which workers run its processes' tasks: `same`, those of the version that started the process or that declare it
    compatible; `any`, all."""
    markers: bool = False
    """Write a marker when a process breaks; while it is there none of the same type and key is started."""
    on_failure: str | None = None
    """When a process breaks: `off`, do nothing more; `marker`, write a marker; `disable`, disable its type, until an
    operator enables it. Unset: as `markers` says."""

    @property
    def failure_action(self) -> FailureAction:
        """What is done when a process of the type breaks."""
        # What is none of them, as a later version may have stored it, says nothing.
        if self.on_failure not in CHOICES["on_failure"]:
            return FailureAction.MARKER if self.markers else FailureAction.OFF
        return FailureAction(self.on_failure)

    @property
    def keeps_markers(self) -> bool:
        """Whether a marker keeps processes of the type from being started."""
        return self.failure_action is FailureAction.MARKER


CHOICES: Mapping[str, tuple[str, ...]] = {
    "versions": (ANY_VERSION, SAME_VERSION),
    "on_failure": tuple(action.value for action in FailureAction),
}
"""Settings that are one of these words."""
RATES = frozenset({"requeue_rate"})
"""Settings in tasks a second."""
FACTORS = frozenset({"retry_coefficient", "lost_coefficient"})
"""Settings that are plain numbers, from 1 on. All others with a fraction are times, in seconds."""
LARGEST_FACTOR = 1000
MAY_BE_NONE = frozenset(f"retry_{name}" for name in ("initial", "jitter_least", "jitter_most", "maximum", "total"))
"""Times that may be 0, which is no wait."""

Preferences = ActorPreferences | ProcessTypePreferences
P = TypeVar("P", ActorPreferences, ProcessTypePreferences)


@dataclass(frozen=True, slots=True)
class Stored(Generic[P]):
    """Settings as they are kept: what the code says, and what an operator set, which wins."""

    code: P
    overrides: Mapping[str, Any] = field(default_factory=dict)
    blocked: bool = False
    """Only of actors: no task of it is begun."""
    disabled: TypeDisabled | None = None
    """Only of process types: none is started."""

    @property
    def effective(self) -> P:
        """What holds where the code says what it said when it was stored."""
        return self.over(self.code)

    def over(self, code: P) -> P:
        """What holds where the code says this."""
        return code.evolve(**self.overrides) if self.overrides else code


def setting_names(kind: type[Preferences]) -> list[str]:
    """Names of what can be set; those that both kinds have come last."""
    shared = {one.name for one in fields(RetrySettings)}
    names = [one.name for one in fields(kind) if one.name != "id"]
    return sorted(names, key=lambda name: name in shared)


def check(preferences: Preferences) -> None:
    """Raise InputError, naming the setting, for a value that can't be."""
    kind = type(preferences)
    told = "actor" if isinstance(preferences, ActorPreferences) else "process type"
    for name in setting_names(kind):
        value = getattr(preferences, name)
        if not fits(kind, name, value):
            wanted = wanted_value(kind, name)
            raise InputError(f"{told} {preferences.id}: {name} must be {wanted}, not {_told(value)}")


def wanted_value(kind: type[Preferences], name: str) -> str:
    """What a setting may be, in words."""
    of_type = type_of(kind, name)
    if name in CHOICES:
        return " or ".join(map(repr, CHOICES[name]))
    if of_type is bool:
        return "True or False"
    if of_type is int:
        return f"from 1 to {MAX_COUNT:,}"
    if name in RATES:
        return f"0 (off) or more tasks a second, up to {MAX_COUNT:,}"
    if name in FACTORS:
        return f"a number from 1 to {LARGEST_FACTOR:,}"
    zero = "0 or " if name in MAY_BE_NONE else "" if default_of(kind, name) else "0 (off) or "
    return f"{zero}at least {SHORTEST:g} seconds, up to 10 years ({LONGEST:,})"


def default_of(kind: type[Preferences], name: str) -> Any:
    """The default of a setting; None for one that is inherited while it is not set."""
    return next(one.default for one in fields(kind) if one.name == name)


def type_of(kind: type[Preferences], name: str) -> type:
    """The type of a setting: bool, int, float or str."""
    settings: Any = kind
    return _types(settings)[name]


@cache
def _types(kind: Any) -> dict[str, type]:
    hints = {name: hint for name, hint in get_type_hints(kind).items() if name != "id"}
    # Of an optional one what it may be beside None.
    kinds = {name: get_args(hint) or (hint,) for name, hint in hints.items()}
    return {name: next(one for one in some if one is not type(None)) for name, some in kinds.items()}


def most_of(kind: type[Preferences], name: str) -> int:
    """The largest value of a setting that is a number."""
    if name in FACTORS:
        return LARGEST_FACTOR
    return MAX_COUNT if type_of(kind, name) is int or name in RATES else LONGEST


def least_of(name: str) -> float:
    """The smallest value of a setting with a fraction, but for an off: of a rate, one task in a year."""
    if name in FACTORS:
        return 1.0
    return 1 / LONGEST if name in RATES else SHORTEST


def within_limits(preferences: P) -> P:
    """The same, with what an older version took and this one does not at its limits: deadlines are worked out from it
    for many records at once."""
    over: dict[str, Any] = {}
    kind = type(preferences)
    for name in setting_names(kind):
        value = getattr(preferences, name)
        # Not by type: what MongoDB has as a long is a whole number of a type of its own.
        if not isinstance(value, int | float) or isinstance(value, bool):
            continue
        of_type = type_of(kind, name)
        if value > (most := most_of(kind, name)):
            over[name] = of_type(most)
        elif of_type is float and 0 < value < (least := least_of(name)):
            over[name] = least
    return preferences.evolve(**over) if over else preferences


def fits(kind: type[Preferences], name: str, value: Any) -> bool:
    """Whether a value is one of the setting of this name."""
    of_type, default = type_of(kind, name), default_of(kind, name)
    if value is None:
        return default is None
    if name in CHOICES:
        return value in CHOICES[name] if isinstance(value, str) else False
    if of_type is bool:
        return isinstance(value, bool)
    if of_type is int:
        return type(value) is int and 1 <= value <= MAX_COUNT
    # A number of seconds, and not a timedelta, a text or a switch. A default of 0 is a time that may be off.
    if type(value) not in (int, float):
        return False
    may_be_zero = default == 0 or name in MAY_BE_NONE
    return bool(least_of(name) <= value <= most_of(kind, name) or (value == 0 and may_be_zero))


def _told(value: Any) -> str:
    """A value in a message. Python writes no whole number of thousands of digits, and nobody reads one."""
    if type(value) is int and value.bit_length() > 400:
        return f"a number of over {value.bit_length() * 3 // 10:,} digits"
    return shown(value)
