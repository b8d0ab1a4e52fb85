"""Settings of actors and process types, with their defaults and limits. Times are in seconds.

A starting worker stores the settings of its actors in MongoDB, so that scanners and sweeps know them without the
application's code. Settings that an operator changed are stored separately and take precedence (`Stored`).

Sources of the defaults: the reference note FailMap, 'Настройки актера и значения по умолчанию', and Hive for retries.
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
    """The time limit of a task over all attempts, in seconds. `forced`: the limit ends even a running attempt."""

    seconds: float
    forced: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrySettings(Record):
    """The retry policy of an actor or a process type. An actor inherits settings that are None from the process type,
    and a process type from `retry.policy.Backoff`."""

    retry: bool | None = None
    """Retry errors that may pass by themselves; False: break the process at the first error."""
    retry_initial: float | None = None
    """Delay before the first retry."""
    retry_coefficient: float | None = None
    """Factor by which each delay is longer than the one before."""
    retry_jitter_least: float | None = None
    """Minimum of the random time that is added to each delay, so that retries do not all come at once."""
    retry_jitter_most: float | None = None
    """Maximum of the random time that is added to each delay."""
    retry_maximum: float | None = None
    """Longest delay. Retries continue with this delay once it is reached."""
    retry_total: float | None = None
    """How long the same error is retried, counted from its first occurrence, including all delays and attempts."""

    def retry_options(self) -> RetryOptions:
        """Return these settings in the form in which a task has them."""
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
    """Settings of one actor. `id` is the actor's name, which is also the name of its queue."""

    id: str
    worker_timeout: float = 60.0
    """How long an attempt may take from its claim, or its last heartbeat, to its result."""
    accept_first: bool = True
    """Accept the first value of any attempt; False: only a value of the current pass."""
    idempotent: bool = True
    """Running a task twice has the same effect as running it once. False: a task is retried only if the failed attempt
    certainly did nothing."""
    restart_after_work_timeout: bool | None = None
    """Requeue a task whose attempt timed out or whose worker is gone; False: end the task with a timeout error. Unset:
    as `idempotent`."""
    # One lost attempt is a deployment, three are a bad night; ten in a row are a task that kills its workers. With the
    # default worker_timeout, a task that always hangs breaks its process after about ten minutes.
    max_work_timeouts: int = 10
    """Number of consecutive lost attempts after which the task ends with an error and its process breaks."""
    lost_initial: float = 1.0
    """Delay after the second consecutive lost attempt. After the first one, the next attempt follows at once."""
    lost_coefficient: float = 2.0
    """Factor by which each delay after a lost attempt is longer than the one before."""
    lost_maximum: float = 30.0
    """Longest delay after a lost attempt."""
    auto_heartbeat: bool = False
    """Postpone the deadline while the function runs. A hung function then never times out; a dead process does."""
    # Off by default, because a long queue must not end tasks that only wait in it.
    task_timeout: float = 0.0
    """How long a task may take over all attempts, counted from when it was first queued, before it ends with an error.
    0: no limit."""
    force_finish_after_task_timeout: bool = False
    """End a task at its task_timeout even while an attempt runs; False: wait for that attempt's own deadline."""
    # Off by default, because a queue can hold a message for each task. A service that the actor calls may need a limit.
    requeue_rate: float = 0.0
    """Maximum number of overdue tasks per second that are requeued after an outage. 0: all at once."""

    @property
    def restarts_lost_attempts(self) -> bool:
        """Return whether another attempt follows a lost one, of which nobody knows how far it came."""
        return self.idempotent if self.restart_after_work_timeout is None else self.restart_after_work_timeout

    @property
    def task_limit(self) -> TaskLimit | None:
        """Return the time limit of a task over all attempts; None if there is none."""
        return TaskLimit(self.task_timeout, self.force_finish_after_task_timeout) if self.task_timeout else None


ANY_VERSION, SAME_VERSION = "any", "same"


class FailureAction(StrEnum):
    """What prevents new processes of a type after one has failed for good (Hive's 'Enforcement of Non Recoverable
    Errors')."""

    OFF = "off"
    MARKER = "marker"
    """A marker for the failed process's type and key prevents them (Hive: query level)."""
    DISABLE = "disable"
    """The whole process type is disabled (Hive: application level)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessTypePreferences(RetrySettings):
    """Settings of one process type. `id` is the type's name."""

    id: str
    idle_timeout: float = 60.0
    """Time without changes after which a process is checked for the first time. Stored in each process at its start."""
    # Off by default, because only the application knows how long is too long.
    process_timeout: float = 0.0
    """How long a process may run before it is counted as late. 0: no limit."""
    break_after_process_timeout: bool = False
    """Break a process at its process_timeout; False: only count it as late."""
    versions: str = ANY_VERSION
    """Which workers run the tasks of its processes: `same`, workers of the version that started the process or that
    declare it compatible; `any`, all workers."""
    # Off by default, because a process that a person starts should be tried.
    markers: bool = False
    """Write a marker when a process breaks. While the marker exists, no process of the same type and key is started."""
    on_failure: str | None = None
    """When a process breaks: `off`, do nothing more; `marker`, write a marker; `disable`, disable its type until an
    operator enables it. Unset: as `markers`."""

    @property
    def failure_action(self) -> FailureAction:
        """Return what prevents new processes when a process of this type breaks."""
        # A value that this version does not know, because a later version stored it, counts as unset.
        if self.on_failure not in CHOICES["on_failure"]:
            return FailureAction.MARKER if self.markers else FailureAction.OFF
        return FailureAction(self.on_failure)

    @property
    def keeps_markers(self) -> bool:
        """Return whether a broken process of this type leaves a marker."""
        return self.failure_action is FailureAction.MARKER


CHOICES: Mapping[str, tuple[str, ...]] = {
    "versions": (ANY_VERSION, SAME_VERSION),
    "on_failure": tuple(action.value for action in FailureAction),
}
"""{setting: its allowed words}."""
RATES = frozenset({"requeue_rate"})
"""Settings in tasks per second."""
FACTORS = frozenset({"retry_coefficient", "lost_coefficient"})
"""Settings that are factors of at least 1. All other float settings that are not rates are times in seconds."""
LARGEST_FACTOR = 1000
MAY_BE_NONE = frozenset(f"retry_{name}" for name in ("initial", "jitter_least", "jitter_most", "maximum", "total"))
"""Times that may be 0, which means no delay."""

Preferences = ActorPreferences | ProcessTypePreferences
P = TypeVar("P", ActorPreferences, ProcessTypePreferences)


@dataclass(frozen=True, slots=True)
class Stored(Generic[P]):
    """Stored settings: those of the code, and an operator's overrides, which take precedence."""

    code: P
    overrides: Mapping[str, Any] = field(default_factory=dict)
    blocked: bool = False
    """For actors only: whether the actor is blocked, so that none of its tasks begins."""
    disabled: TypeDisabled | None = None
    """For process types only: who disabled the type; None: processes of the type may be started."""

    @property
    def effective(self) -> P:
        """Return the effective settings, with the code's settings as they were stored."""
        return self.over(self.code)

    def over(self, code: P) -> P:
        """Return these settings of the code with the operator's overrides applied."""
        return code.evolve(**self.overrides) if self.overrides else code


def setting_names(kind: type[Preferences]) -> list[str]:
    """Return the names of all settings. Those that actors and process types share come last."""
    shared = {shared_field.name for shared_field in fields(RetrySettings)}
    names = [kind_field.name for kind_field in fields(kind) if kind_field.name != "id"]
    return sorted(names, key=lambda name: name in shared)


def check(preferences: Preferences) -> None:
    """Raise InputError, which names the setting, if a setting has an invalid value."""
    kind = type(preferences)
    noun = "actor" if isinstance(preferences, ActorPreferences) else "process type"
    for name in setting_names(kind):
        value = getattr(preferences, name)
        if not fits(kind, name, value):
            wanted = wanted_value(kind, name)
            raise InputError(f"{noun} {preferences.id}: {name} must be {wanted}, not {_short(value)}")


def wanted_value(kind: type[Preferences], name: str) -> str:
    """Return the allowed values of a setting, in words."""
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
    """Return the default of a setting; None if an unset value is inherited."""
    return next(kind_field.default for kind_field in fields(kind) if kind_field.name == name)


def type_of(kind: type[Preferences], name: str) -> type:
    """Return the type of a setting: bool, int, float or str."""
    settings: Any = kind
    return _types(settings)[name]


@cache
def _types(kind: Any) -> dict[str, type]:
    hints = {name: hint for name, hint in get_type_hints(kind).items() if name != "id"}
    # The type of an optional setting is its type besides None.
    alternatives = {name: get_args(hint) or (hint,) for name, hint in hints.items()}
    return {name: next(kind for kind in kinds if kind is not type(None)) for name, kinds in alternatives.items()}


def most_of(kind: type[Preferences], name: str) -> int:
    """Return the largest value of a setting that is a number."""
    if name in FACTORS:
        return LARGEST_FACTOR
    return MAX_COUNT if type_of(kind, name) is int or name in RATES else LONGEST


def least_of(name: str) -> float:
    """Return the smallest value of a float setting, apart from a 0 that turns it off."""
    if name in FACTORS:
        return 1.0
    return 1 / LONGEST if name in RATES else SHORTEST


def within_limits(preferences: P) -> P:
    """Return the settings with values beyond the limits replaced by the limits.

    An older version may have accepted such values. One update computes the deadlines of many records from them, so a
    value out of range would fail for all of these records.
    """
    corrected: dict[str, Any] = {}
    kind = type(preferences)
    for name in setting_names(kind):
        value = getattr(preferences, name)
        # Not by exact type, because pymongo reads a long as Int64, a subclass of int.
        if not isinstance(value, int | float) or isinstance(value, bool):
            continue
        of_type = type_of(kind, name)
        if value > (most := most_of(kind, name)):
            corrected[name] = of_type(most)
        elif of_type is float and 0 < value < (least := least_of(name)):
            corrected[name] = least
    return preferences.evolve(**corrected) if corrected else preferences


def fits(kind: type[Preferences], name: str, value: Any) -> bool:
    """Return whether a setting may have this value."""
    of_type, default = type_of(kind, name), default_of(kind, name)
    if value is None:
        return default is None
    if name in CHOICES:
        return value in CHOICES[name] if isinstance(value, str) else False
    if of_type is bool:
        return isinstance(value, bool)
    if of_type is int:
        return type(value) is int and 1 <= value <= MAX_COUNT
    # Only numbers: no timedelta, text or bool. A setting whose default is 0 may be turned off.
    if type(value) not in (int, float):
        return False
    may_be_zero = default == 0 or name in MAY_BE_NONE
    return bool(least_of(name) <= value <= most_of(kind, name) or (value == 0 and may_be_zero))


def _short(value: Any) -> str:
    """Return a value for a message. Python refuses to write an int with thousands of digits."""
    if type(value) is int and value.bit_length() > 400:
        return f"a number of over {value.bit_length() * 3 // 10:,} digits"
    return shown(value)
