"""Retry policies: when a task is retried, after Hive's table ('Retry at Instance Level'), with its defaults.

initial delay         60 s
back-off coefficient  1.2      multiplies the previous delay without its jitter
jitter                0-30 s   is added, so that retries do not all happen at the same time
maximum delay         60 min   includes the jitter; retries continue with it once it is reached
total duration        24 h     of a cycle with all its retries
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING, Any

from recovery.errors import InputError
from recovery.limits import LONGEST
from recovery.records import RetryOptions, given
from recovery.wording import show_duration

LEAST = 0.001
"""The shortest delay in seconds."""
Duration = float | str | timedelta
_VALUES = ("initial", "coefficient", "jitter_least", "jitter_most", "maximum", "total")


@dataclass(frozen=True)
class Backoff:
    """A retry policy. Durations are seconds, timedeltas, or texts such as `90s`, `10m` and `24h`.

    Attributes:
        initial: Delay before the first retry.
        coefficient: Factor by which each delay exceeds the previous one, at least 1.
        jitter: Least and greatest random time that is added to each delay.
        maximum: The longest delay, including the jitter.
        total: Duration of a cycle, after which no retry begins.

    Raises:
        InputError: A value is invalid, or values contradict each other.
    """

    initial: float = 60.0
    coefficient: float = 1.2
    jitter: tuple[float, float] = (0.0, 30.0)
    maximum: float = 3600.0
    total: float = 86_400.0

    if TYPE_CHECKING:  # fields are seconds, but may be given in the forms of Duration

        def __init__(
            self,
            initial: Duration = 60.0,
            coefficient: float = 1.2,
            jitter: tuple[Duration, Duration] = (0.0, 30.0),
            maximum: Duration = 3600.0,
            total: Duration = 86_400.0,
        ) -> None: ...

    def __post_init__(self) -> None:
        for name in ("initial", "maximum", "total"):
            object.__setattr__(self, name, _seconds(name, getattr(self, name)))
        object.__setattr__(self, "jitter", _bounds(self.jitter))
        coefficient = given.number(self.coefficient)
        if coefficient is None or not given.is_finite(coefficient) or coefficient < 1:
            raise InputError(f"Backoff(coefficient={given.shown(self.coefficient)}): must be a number of at least 1")
        object.__setattr__(self, "coefficient", coefficient)
        if 0 < self.initial < LEAST:
            raise InputError(f"Backoff(initial={show_duration(self.initial)}): must be 0 or at least 1ms")
        if self.maximum < self.initial:
            raise _contradicts("maximum", self.maximum, "initial", self.initial)
        if self.total < self.initial:
            raise _contradicts("total", self.total, "initial", self.initial)

    @classmethod
    def of(cls, *options: RetryOptions) -> Backoff:
        """Return the policy of these options. For each value the first option that has it counts, otherwise the
        default.

        If the values contradict each other, such as a maximum below the initial delay, the longer time is used. Invalid
        values, which another program may have stored, are ignored.
        """
        values: dict[str, float] = {}
        for name in _VALUES:
            candidates = (value for option in options if _can_be(name, value := getattr(option, name)))
            if (value_found := next(candidates, None)) is not None:
                values[name] = value_found
        initial = values.get("initial", DEFAULT.initial)
        least = values.get("jitter_least", DEFAULT.jitter[0])
        return cls(
            initial=initial,
            coefficient=values.get("coefficient", DEFAULT.coefficient),
            jitter=(least, max(least, values.get("jitter_most", DEFAULT.jitter[1]))),
            maximum=max(initial, values.get("maximum", DEFAULT.maximum)),
            total=max(initial, values.get("total", DEFAULT.total)),
        )

    def options(self) -> RetryOptions:
        """Return the policy in the form in which it is stored with a task."""
        least, most = self.jitter
        return RetryOptions(
            enabled=True,
            initial=float(self.initial),
            coefficient=float(self.coefficient),
            jitter_least=float(least),
            jitter_most=float(most),
            maximum=float(self.maximum),
            total=float(self.total),
        )

    def base(self, retry: int) -> float:
        """Return the seconds before a retry without jitter; `retry` is 0 for the first retry."""
        if self.initial == 0:
            return 0.0
        # Logarithms are compared, because a power with thousands of retries would overflow.
        growth = retry * math.log(self.coefficient)
        if growth >= math.log(self.maximum / self.initial):
            return self.maximum
        return min(self.maximum, self.initial * self.coefficient**retry)

    def delay(self, retry: int, random: Random) -> float:
        """Return the seconds before a retry, with jitter, but at most `maximum`; `retry` is 0 for the first retry."""
        return min(self.maximum, self.base(retry) + random.uniform(*self.jitter))

    def delays(self, random: Random) -> Iterator[float]:
        """Yield the delays of a cycle whose attempts take no time, until the total duration is over."""
        passed = 0.0
        for retry in range(2**31):
            delay = self.delay(retry, random)
            if delay == 0 or passed + delay > self.total:
                return
            passed += delay
            yield delay


@dataclass(frozen=True, slots=True)
class Cycle:
    """The progress of one error's retries. It is stored in the task's record, so it survives a crash."""

    code: int
    retries: int = 0
    seconds: float = 0.0
    """Seconds since the cycle's first failure."""


@dataclass(frozen=True, slots=True)
class Next:
    """A policy's answer to a failure: its cycle, and the seconds until the next attempt, or None if the cycle is
    exhausted."""

    cycle: Cycle
    delay: float | None


def follow(policy: Backoff, cycle: Cycle | None, code: int, seconds: float, random: Random) -> Next:
    """Return what follows a failure with this code.

    The same code continues the cycle. Another code begins a new cycle, because the previous problem is then resolved
    (Hive, 'Retry Policy', 3).

    Args:
        policy: The policy of the task.
        cycle: The cycle of the previous failure, if any.
        code: The error code of the failure.
        seconds: Seconds since the first failure of `cycle`.
        random: The source of the jitter.
    """
    cycle = continued(cycle, code, seconds)
    delay = policy.delay(cycle.retries, random)
    if cycle.seconds + delay > policy.total:
        return Next(cycle, None)
    return Next(replace(cycle, retries=cycle.retries + 1), delay)


def continued(cycle: Cycle | None, code: int, seconds: float) -> Cycle:
    """Return the cycle of a failure with this code, `seconds` after the first failure of the previous cycle."""
    return Cycle(code) if cycle is None or cycle.code != code else replace(cycle, seconds=seconds)


def check_policy(options: RetryOptions, of: str) -> None:
    """Raise InputError if the options contradict each other, or the defaults of options that are not set.

    Args:
        options: The options.
        of: What they are set for, for the error message.
    """
    check_values(options, of)
    policy = Backoff.of(options)
    jitter = DEFAULT.jitter
    pairs = (
        ("retry_maximum", options.maximum, DEFAULT.maximum, "retry_initial", policy.initial),
        ("retry_total", options.total, DEFAULT.total, "retry_initial", policy.initial),
        ("retry_jitter_most", options.jitter_most, jitter[1], "retry_jitter_least", policy.jitter[0]),
    )
    for name, value, default, other, least in pairs:
        if (default if value is None else value) < least:
            is_default = f" ({show_duration(default)} by default)" if value is None else ""
            raise InputError(f"{of}: {name}{is_default} must be at least {other}, which is {show_duration(least)}")


def check_values(options: RetryOptions, of: str) -> None:
    """Raise InputError for a value that no policy can have. `of` is what the options are set for."""
    for name in _VALUES:
        value = getattr(options, name)
        if value is not None and not _can_be(name, value):
            wanted = "a number of at least 1" if name == "coefficient" else "a duration from 0 seconds to 10 years"
            least = ", 0 or at least 1ms" if name == "initial" else ""
            raise InputError(f"{of}: retry_{name}={value:g}: must be {wanted}{least}")


def _can_be(name: str, value: float | None) -> bool:
    if value is None or not given.is_finite(value):
        return False
    if name == "coefficient":
        return value >= 1
    least = LEAST if name == "initial" and value else 0.0
    return least <= value <= LONGEST


def _seconds(name: str, value: Any) -> float:
    try:
        seconds = given.duration(value)
    except ValueError as error:
        raise InputError(f"Backoff({name}={given.shown(value)}): {error}") from None
    if seconds is None or not 0 <= seconds <= LONGEST:
        raise InputError(f"Backoff({name}={given.shown(value)}): must be a duration from 0 seconds to 10 years")
    return seconds


def _bounds(value: Any) -> tuple[float, float]:
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise InputError(f"Backoff(jitter={given.shown(value)}): must be two durations, for example (0, 30)")
    least, most = (_seconds("jitter", bound) for bound in value)
    if most < least:
        raise InputError(
            f"Backoff(jitter=({show_duration(least)}, {show_duration(most)})): the first must not be over the second"
        )
    return least, most


def _contradicts(name: str, value: float, other: str, least: float) -> InputError:
    return InputError(
        f"Backoff({name}={show_duration(value)}): must be at least {other}, which is {show_duration(least)}"
    )


DEFAULT = Backoff()
