"""What a task is told about retry, and how far its retries have come."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from recovery.records.record import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryOptions(Record):
    """A retry policy of a task's own, as far as it says something: what is None its actor says, or its process type.

    Durations are in seconds. See `retry.policy.Backoff`.
    """

    enabled: bool | None = None
    """False: not retried at all."""
    initial: float | None = None
    coefficient: float | None = None
    jitter_least: float | None = None
    jitter_most: float | None = None
    maximum: float | None = None
    total: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryCycle(Record):
    """The retries for an error that a task had before the one that it has now: if that code comes back, it goes on."""

    code: int
    retries: int
    since: datetime
    """The first failure of the cycle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryState(Record):
    """The retries of a task: written with the state `delayed`, so that a crash neither forgets nor repeats one."""

    count: int
    """Retries of the task in all, the next one included."""
    cycle: int
    """The same since the error it has now came first: a code that the task has not had starts a new cycle."""
    since: datetime
    """The first failure of the cycle."""
    until: datetime
    """No retry of this cycle begins after it."""
    failed_at: datetime
    """The last failure."""
    attempt: int
    """The attempt that failed last, by the decision's `attempts`."""
    pass_key: str
    """Its pass: by it that attempt knows its own write again."""
    code: int
    reason: str
    kind: str
    """Name of the error's type."""
    message: str
    """Up to 500 characters."""
    reasons: tuple[str, ...] = ()
    """Names of the reasons of all retries so far."""
    cycles: tuple[RetryCycle, ...] = ()
    """The cycles of other codes that the task has had, the oldest first; at most `retry.attempts.CODES`. Absent in the
    records of older versions, which forgot them."""
