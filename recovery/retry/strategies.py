"""What may be tried again, and if and when it is (RFC 49, 'Request Annotation' and 'Retry Strategies').

A request is an attempt of a task, or one of our own calls to a server (`ServerCall`). A strategy is asked with the
request and the reason, and may do I/O before it answers. `BestEffort` is the default; `Durable` goes by a policy. They
are put together from parts, as users of tenacity know it: when to stop, how long to wait, and whether at all.
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
"""Seconds: the bounds of the best effort's delay (RFC 49, 'Best Effort')."""

Calculator = Callable[[int], float]
"""Seconds of delay, by how many retries there were."""


class Request(Protocol):
    """What strategies and the orchestrator know of a request."""

    @property
    def name(self) -> str:
        """What the log calls it."""

    @property
    def idempotent(self) -> bool:
        """Whether doing it twice is the same as doing it once."""

    @property
    def retry_strategy(self) -> RetryStrategy:
        """The default one, or its own."""

    @property
    def retry_attempts(self) -> int:
        """Retries that already happened."""

    @property
    def cycle_retries(self) -> int:
        """The same since the error that it has now came first: what a policy's delays grow with."""

    @property
    def retry_reasons(self) -> frozenset[Reason]:
        """Their reasons."""

    @property
    def remaining(self) -> float | None:
        """Seconds until its deadline; None if it has none."""

    @property
    def context(self) -> Mapping[str, Any]:
        """What its user gave for strategies to read (the RFC's clientContext)."""

    def note_retry(self, reason: Reason) -> None:
        """Count a retry."""


@dataclass(slots=True)
class ServerCall:
    """A request that lives in memory alone: a call of ours to a server. `seconds` after it was made is its deadline."""

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
    """Return whether a retry can do no harm.

    Never for UNKNOWN, not even of an idempotent request: so says the text of RFC 49 ('RetryReason'). Its reference code
    of best effort differs.
    """
    return reason is not UNKNOWN and (request.idempotent or reason.allows_non_idempotent_retry)


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
