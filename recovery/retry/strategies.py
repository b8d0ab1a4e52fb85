"""Requests and retry strategies: what may be retried, whether, and when (RFC 49, 'Request Annotation', 'Retry
Strategies').

A request is an attempt of a task, or one of our own calls to a server (`ServerCall`). A strategy gets the request and
the reason, and may do I/O before it answers. `BestEffort` is the default; `Durable` follows a policy. As in tenacity, a
strategy can be combined with a condition that stops it (`Until`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random, SystemRandom
from typing import Any, Protocol

from recovery.errors import InputError
from recovery.records import given
from recovery.retry.policy import DEFAULT, Backoff
from recovery.retry.reasons import UNKNOWN, Reason

LEAST, MOST = 0.001, 0.5
"""Bounds of the best effort's delay in seconds (RFC 49, 'Best Effort')."""

Calculator = Callable[[int], float]
"""Returns the seconds of delay for the number of earlier retries."""


class Request(Protocol):
    """A request as strategies and the orchestrator see it."""

    @property
    def name(self) -> str:
        """Its name in the log."""

    @property
    def idempotent(self) -> bool:
        """Whether sending it twice has the same effect as sending it once."""

    @property
    def retry_strategy(self) -> RetryStrategy:
        """The strategy that decides about its retries."""

    @property
    def retry_attempts(self) -> int:
        """Number of retries so far."""

    @property
    def cycle_retries(self) -> int:
        """Number of retries since the present error first occurred. A policy's delays grow with it."""

    @property
    def retry_reasons(self) -> frozenset[Reason]:
        """Reasons of the retries so far."""

    @property
    def remaining(self) -> float | None:
        """Seconds until its deadline; None if it has none."""

    @property
    def context(self) -> Mapping[str, Any]:
        """Values from its user for strategies to read (the RFC's clientContext)."""

    def note_retry(self, reason: Reason) -> None:
        """Count a retry."""


@dataclass(slots=True)
class ServerCall:
    """A request that exists in memory only: one of our own calls to a server. Its deadline is `seconds` after its
    creation."""

    name: str
    retry_strategy: RetryStrategy
    idempotent: bool = False
    seconds: float | None = None
    context: Mapping[str, Any] = field(default_factory=dict)
    clock: Callable[[], float] = time.monotonic
    retry_attempts: int = 0
    retry_reasons: frozenset[Reason] = frozenset()
    _made_at: float = field(init=False)

    def __post_init__(self) -> None:
        self._made_at = self.clock()

    @property
    def remaining(self) -> float | None:
        return None if self.seconds is None else self.seconds - (self.clock() - self._made_at)

    @property
    def cycle_retries(self) -> int:
        return self.retry_attempts

    def note_retry(self, reason: Reason) -> None:
        self.retry_attempts += 1
        self.retry_reasons |= {reason}


@dataclass(frozen=True, slots=True)
class RetryAction:
    """A strategy's answer: a retry after `duration` (seconds, a timedelta, or a text such as `5s`), or no retry (None).

    It is a class that can be subclassed, so that more kinds of actions can be added.
    """

    duration: float | str | timedelta | None = None

    @classmethod
    def no_retry(cls) -> RetryAction:
        return cls(None)


class RetryStrategy(Protocol):
    """A strategy that decides whether a failed request is retried. Users may write their own."""

    async def retry_after(self, request: Request, reason: Reason) -> RetryAction:
        """Return the action for a request that failed for this reason."""


def exponential(retries: int) -> float:
    """Return 0.001, 0.002, 0.004 … seconds, at most 0.5, for the number of earlier retries."""
    return min(MOST, LEAST * 2.0 ** min(retries, 32))


def may_be_sent_again(request: Request, reason: Reason) -> bool:
    """Return whether a retry is harmless.

    It never is for UNKNOWN, not even for an idempotent request. So says RFC 49's text ('RetryReason'), although its
    reference code of best effort differs.
    """
    return reason is not UNKNOWN and (request.idempotent or reason.allows_non_idempotent_retry)


@dataclass(frozen=True, slots=True)
class BestEffort:
    """A strategy that retries every harmless request, quickly at first, then every half second, until its deadline."""

    calculator: Calculator = exponential

    async def retry_after(self, request: Request, reason: Reason) -> RetryAction:
        if not may_be_sent_again(request, reason):
            return RetryAction.no_retry()
        return RetryAction(self.calculator(request.retry_attempts))


@dataclass(frozen=True, slots=True)
class Durable:
    """A strategy that retries every harmless request by a policy, seconds to hours apart.

    The policy's total duration is not checked here, but with the cycle, in `attempts`.
    """

    policy: Backoff = DEFAULT
    # A generator with a state would give the same delays in all processes that are forked from one.
    random: Random = SystemRandom()  # noqa: RUF009 - all share one generator, as in the module `random`

    async def retry_after(self, request: Request, reason: Reason) -> RetryAction:
        if not may_be_sent_again(request, reason):
            return RetryAction.no_retry()
        return RetryAction(self.policy.delay(request.cycle_retries, self.random))


@dataclass(frozen=True, slots=True)
class _FailFast:
    """A strategy that never retries.

    For our own use only. Users extend `BestEffort` for the cases that must fail fast (RFC 49, 'Fail Fast').
    """

    async def retry_after(self, request: Request, reason: Reason) -> RetryAction:
        del request, reason
        return RetryAction.no_retry()


Condition = Callable[[Request, Reason], bool]


@dataclass(frozen=True, slots=True)
class Stop:
    """A condition for stopping. `|` means either of two conditions, `&` both."""

    condition: Condition

    def __or__(self, other: Stop) -> Stop:
        return Stop(lambda request, reason: self.condition(request, reason) or other.condition(request, reason))

    def __and__(self, other: Stop) -> Stop:
        return Stop(lambda request, reason: self.condition(request, reason) and other.condition(request, reason))


def stop_after_attempts(retries: int) -> Stop:
    """Return a condition that stops after this many retries."""
    if not isinstance(retries, int) or isinstance(retries, bool) or retries < 0:
        raise InputError(f"stop_after_attempts({given.shown(retries)}): must be a whole number from 0 on")
    return Stop(lambda request, _: request.retry_attempts >= retries)


def stop_for(*reasons: Reason) -> Stop:
    """Return a condition that stops for these reasons."""
    return Stop(lambda _, reason: reason in reasons)


@dataclass(frozen=True, slots=True)
class Until:
    """A strategy that asks another strategy until a condition stops it."""

    stop: Stop
    strategy: RetryStrategy

    async def retry_after(self, request: Request, reason: Reason) -> RetryAction:
        if self.stop.condition(request, reason):
            return RetryAction.no_retry()
        return await self.strategy.retry_after(request, reason)
