"""If and when a request is tried again (RFC 49, 'Retry Strategies').

A strategy is asked with the request and the reason, and may do I/O before it answers. `BestEffort` is the default;
`Durable` goes by a policy. They are put together from parts, as users of tenacity know it: when to stop, how long to
wait, and whether at all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from random import Random, SystemRandom
from typing import Protocol

from recovery.errors import InputError
from recovery.records import given
from recovery.retry.policy import DEFAULT, Backoff
from recovery.retry.reasons import Reason
from recovery.retry.request import Request

LEAST, MOST = 0.001, 0.5
"""Seconds: the bounds of the best effort's delay (RFC 49, 'Best Effort')."""

Calculator = Callable[[int], float]
"""Seconds of delay, by how many retries there were."""


@dataclass(frozen=True, slots=True)
class RetryAction:
    """What a strategy wants: a retry after a `duration` (seconds, a timedelta, or a text such as `5s`), or none (None).

    A class of its own, and open for subclasses, so that more kinds of action can be added.
    """

    duration: float | str | timedelta | None = None

    @classmethod
    def no_retry(cls) -> RetryAction:
        return cls(None)


class RetryStrategy(Protocol):
    """What decides. May be written by users."""

    async def retry_after(self, request: Request, reason: Reason) -> RetryAction:
        """What to do about a request that failed for this reason."""


def exponential(retries: int) -> float:
    """1, 2, 4 … milliseconds, up to 500."""
    return min(MOST, LEAST * 2.0 ** min(retries, 32))


def may_be_sent_again(request: Request, reason: Reason) -> bool:
    """Whether a retry can do no harm."""
    return request.idempotent or reason.allows_non_idempotent_retry


@dataclass(frozen=True, slots=True)
class BestEffort:
    """Retry whatever may be, at first quickly, then every half second, until the request's deadline."""

    calculator: Calculator = exponential

    async def retry_after(self, request: Request, reason: Reason) -> RetryAction:
        if not may_be_sent_again(request, reason):
            return RetryAction.no_retry()
        return RetryAction(self.calculator(request.retry_attempts))


@dataclass(frozen=True, slots=True)
class Durable:
    """Retry whatever may be by a policy: seconds to hours apart. Its total duration is the cycle's to watch, as in
    `attempts`."""

    policy: Backoff = DEFAULT
    # Not one with a state of its own: processes that were forked from one would all wait alike.
    random: Random = SystemRandom()  # noqa: RUF009 - one for all, as the module `random` has

    async def retry_after(self, request: Request, reason: Reason) -> RetryAction:
        if not may_be_sent_again(request, reason):
            return RetryAction.no_retry()
        return RetryAction(self.policy.delay(request.cycle_retries, self.random))


@dataclass(frozen=True, slots=True)
class _FailFast:
    """Never retry. For our own use: whoever wants it extends `BestEffort` for the cases that are theirs (RFC 49, 'Fail
    Fast')."""

    async def retry_after(self, request: Request, reason: Reason) -> RetryAction:
        del request, reason
        return RetryAction.no_retry()


Condition = Callable[[Request, Reason], bool]


@dataclass(frozen=True, slots=True)
class Stop:
    """When to stop. `|` is either of two, `&` both."""

    condition: Condition

    def __or__(self, other: Stop) -> Stop:
        return Stop(lambda request, reason: self.condition(request, reason) or other.condition(request, reason))

    def __and__(self, other: Stop) -> Stop:
        return Stop(lambda request, reason: self.condition(request, reason) and other.condition(request, reason))


def stop_after_attempts(retries: int) -> Stop:
    """Stop once there were so many retries."""
    if not isinstance(retries, int) or isinstance(retries, bool) or retries < 0:
        raise InputError(f"stop_after_attempts({given.shown(retries)}): must be a whole number from 0 on")
    return Stop(lambda request, _: request.retry_attempts >= retries)


def stop_for(*reasons: Reason) -> Stop:
    """Stop for these reasons."""
    return Stop(lambda _, reason: reason in reasons)


@dataclass(frozen=True, slots=True)
class Until:
    """A strategy that is asked until it is time to stop."""

    stop: Stop
    strategy: RetryStrategy

    async def retry_after(self, request: Request, reason: Reason) -> RetryAction:
        if self.stop.condition(request, reason):
            return RetryAction.no_retry()
        return await self.strategy.retry_after(request, reason)
