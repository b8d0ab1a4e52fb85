"""When a task is tried again: Hive's table of a retry policy ('Retry at Instance Level'), with its defaults.

initial delay         60 s
back-off coefficient  1.2      of the previous delay, without its jitter
jitter                0-30 s   added, so that not all retries happen at the same time
maximum delay         60 min   with the jitter; once it is reached, retries go on at that
total duration        24 h     of a cycle, inclusive of all retries
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
"""Seconds. Nothing waits for less."""
Duration = float | str | timedelta
_VALUES = ("initial", "coefficient", "jitter_least", "jitter_most", "maximum", "total")


@dataclass(frozen=True)
class Backoff:
    """A retry policy. Durations are seconds, timedeltas, or texts such as `90s`, `10m` and `24h`.

    Raises InputError for values that contradict each other.
    """

    initial: float = 60.0
    coefficient: float = 1.2
    jitter: tuple[float, float] = (0.0, 30.0)
    maximum: float = 3600.0
    total: float = 86_400.0

    if TYPE_CHECKING:  # fields are seconds, and may be given as texts

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
        """The policy of these options, of which the first that says something of a value counts; the defaults, where
        none does. Where what several say contradicts, as a maximum below an initial delay, the longer time holds. What
        can be no value of a policy, as another program may have stored it, says nothing."""
        said: dict[str, float] = {}
        for name in _VALUES:
            found = (value for one in options if _can_be(name, value := getattr(one, name)))
            if (first := next(found, None)) is not None:
                said[name] = first
        initial = said.get("initial", DEFAULT.initial)
        least = said.get("jitter_least", DEFAULT.jitter[0])
        return cls(
            initial=initial,
            coefficient=said.get("coefficient", DEFAULT.coefficient),
            jitter=(least, max(least, said.get("jitter_most", DEFAULT.jitter[1]))),
            maximum=max(initial, said.get("maximum", DEFAULT.maximum)),
            total=max(initial, said.get("total", DEFAULT.total)),
        )

    def options(self) -> RetryOptions:
        """The same as it is kept with a task."""
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
        """Seconds before the retry of this number, 0 the first, without jitter."""
        if self.initial == 0:
            return 0.0
        # Compared as logarithms: a power of a thousand retries is no number any more.
        growth = retry * math.log(self.coefficient)
        if growth >= math.log(self.maximum / self.initial):
            return self.maximum
        return min(self.maximum, self.initial * self.coefficient**retry)

    def delay(self, retry: int, random: Random) -> float:
        """Seconds before the retry of this number: never more than `maximum`, jitter included."""
        return min(self.maximum, self.base(retry) + random.uniform(*self.jitter))

    def delays(self, random: Random) -> Iterator[float]:
        """The delays of a whole cycle whose attempts take no time, until the total duration is over."""
        passed = 0.0
        for retry in range(2**31):
            delay = self.delay(retry, random)
            if delay == 0 or passed + delay > self.total:
                return
            passed += delay
            yield delay


@dataclass(frozen=True, slots=True)
class Cycle:
    """How far the retries of one error have come. It stands in the task's record, so that no crash forgets it."""

    code: int
    retries: int = 0
    seconds: float = 0.0
    """Since the cycle's first failure."""


@dataclass(frozen=True, slots=True)
class Next:
    """What a policy says of a failure: the cycle it belongs to, and the seconds until the next attempt; None if it is
    exhausted."""

    cycle: Cycle
    delay: float | None


def follow(policy: Backoff, cycle: Cycle | None, code: int, seconds: float, random: Random) -> Next:
    """What comes after a failure with this code, `seconds` after the first one of its cycle.

    The same code goes on with the cycle. Another one starts from the beginning: what was before it is resolved (Hive,
    'Retry Policy', 3).
    """
    cycle = continued(cycle, code, seconds)
    delay = policy.delay(cycle.retries, random)
    if cycle.seconds + delay > policy.total:
        return Next(cycle, None)
    return Next(replace(cycle, retries=cycle.retries + 1), delay)


def continued(cycle: Cycle | None, code: int, seconds: float) -> Cycle:
    """The cycle that a failure with this code belongs to, `seconds` after the first one of the cycle before."""
    return Cycle(code) if cycle is None or cycle.code != code else replace(cycle, seconds=seconds)


def check_policy(options: RetryOptions, of: str) -> None:
    """Raise InputError where what is set for `of` contradicts itself, or the default of what is not set."""
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
    """Raise InputError for a value that no policy can have."""
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
    least, most = (_seconds("jitter", one) for one in value)
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
