"""Retry of a task whose attempt failed: whether it is retried, when, and which retry state its record keeps.

    settings of the task, its actor and its process type → policy; error → code and reason; both → verdict

This module combines the two designs. The orchestrator of RFC 49 decides, with Hive's policy as its strategy unless the
actor has its own. The cycle of an error and its total duration are Hive's. Pure: the caller writes and logs what this
module returns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from recovery.records import Decision, ErrorInfo, RetryCycle, RetryOptions, RetryState
from recovery.retry.catalogue import Classified
from recovery.retry.codes import GENERIC_ERROR
from recovery.retry.orchestrator import Verdict, rule
from recovery.retry.policy import Backoff, Cycle
from recovery.retry.reasons import REASONS, Reason
from recovery.retry.strategies import Durable, RetryStrategy, may_be_sent_again
from recovery.wording import show_duration

CODES = 16
"""Maximum number of a task's error codes whose cycles are kept.

A further code continues the oldest cycle. Otherwise a task with a new code at each attempt would never end.
"""


class RetryRefusal(StrEnum):
    """Why a failed attempt is not retried; the label of a metric."""

    NOT_RETRIABLE = "not_retriable"
    NOT_IDEMPOTENT = "not_idempotent"
    OFF = "off"
    EXHAUSTED = "exhausted"
    DEADLINE = "deadline"
    STRATEGY = "strategy"


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms under which a task is retried, from the task, its actor and its process type."""

    idempotent: bool
    options: tuple[RetryOptions, ...]
    """Retry settings, those nearest to the task first."""
    strategy: RetryStrategy | None = None
    """The actor's own strategy; None if the policy decides."""
    context: Mapping[str, Any] = field(default_factory=dict)
    remaining: float | None = None
    """Seconds until the task_timeout ends the task; None if it has none."""

    @property
    def enabled(self) -> bool:
        """Whether retries are enabled at all."""
        return next((options.enabled for options in self.options if options.enabled is not None), True)


@dataclass(frozen=True, slots=True)
class Answer:
    """What happens after a failed attempt: a retry after `delay` seconds with the `state` to store, or a `refusal` and
    why."""

    delay: float = 0.0
    state: RetryState | None = None
    refusal: RetryRefusal | None = None
    why: str = ""


@dataclass(slots=True)
class FailedAttempt:
    """A failed attempt of a task, as a request that may be retried (`strategies.Request`)."""

    name: str
    idempotent: bool
    retry_strategy: RetryStrategy
    retry_attempts: int
    cycle_retries: int
    retry_reasons: frozenset[Reason]
    remaining: float | None
    context: Mapping[str, Any]

    def note_retry(self, reason: Reason) -> None:
        self.retry_attempts += 1
        self.cycle_retries += 1
        self.retry_reasons |= {reason}


async def answer(decision: Decision, error: ErrorInfo, found: Classified, terms: Terms, now: datetime) -> Answer:
    """Return whether and when a failed attempt is retried. Does not raise.

    If the strategy raises, the attempt is not retried.

    Args:
        decision: The decision as it was claimed for the attempt.
        error: The error, as it is stored.
        found: The classified error.
        terms: The terms of the task.
        now: When the attempt failed.
    """
    code, reason = found.code, found.reason
    if not terms.enabled and not reason.always_retry:
        return Answer(refusal=RetryRefusal.OFF, why="retry is off")
    if not found.is_retriable:
        why = "no catalogue knows it" if code is GENERIC_ERROR else f"{code.name} is {code.error_class}"
        return Answer(refusal=RetryRefusal.NOT_RETRIABLE, why=why)
    policy, state = Backoff.of(*terms.options), decision.retry
    previous = _previous_cycle(state, code.number)
    cycle = Cycle(code.number)
    if previous is not None:
        cycle = Cycle(code.number, previous.retries, max(0.0, (now - previous.since).total_seconds()))
    request = FailedAttempt(
        name=f"{decision.actor} {decision.id} attempt {decision.attempts}",
        idempotent=terms.idempotent or found.is_idempotent,
        retry_strategy=terms.strategy or Durable(policy),
        retry_attempts=state.count if state is not None else 0,
        cycle_retries=cycle.retries,
        retry_reasons=frozenset(REASONS[name] for name in (state.reasons if state else ()) if name in REASONS),
        remaining=terms.remaining,
        context=terms.context,
    )
    ruling = await rule(request, reason)
    if ruling.verdict is Verdict.FAIL:
        if not (reason.always_retry or may_be_sent_again(request, reason)):
            return Answer(refusal=RetryRefusal.NOT_IDEMPOTENT, why=f"{reason.meaning}, and it is not idempotent")
        return Answer(refusal=RetryRefusal.STRATEGY, why=ruling.why)
    # If the server says when to ask again, the policy must not ask earlier.
    delay = max(ruling.delay, found.retry_after or 0.0)
    if cycle.seconds + delay > policy.total:
        total = show_duration(policy.total)
        return Answer(
            refusal=RetryRefusal.EXHAUSTED, why=f"its total duration of {total} is over after {_times(cycle)}"
        )
    if ruling.verdict is Verdict.CANCEL or (terms.remaining is not None and delay >= terms.remaining):
        return Answer(refusal=RetryRefusal.DEADLINE, why="its task_timeout comes before the next retry")
    request.note_retry(reason)
    return Answer(delay, _state(decision, error, request, policy, now, found, previous))


def _cycles(state: RetryState | None) -> list[RetryCycle]:
    """Return the cycles of all of a task's error codes, one for each code, the oldest first."""
    if state is None:
        return []
    last = RetryCycle(code=state.code, retries=state.cycle, since=state.since)
    return sorted([*(cycle for cycle in state.cycles if cycle.code != state.code), last], key=lambda cycle: cycle.since)


def _previous_cycle(state: RetryState | None, code: int) -> RetryCycle | None:
    """Return the cycle that a failure with this code continues; None if it begins a new one."""
    cycles = _cycles(state)
    oldest = cycles[0] if len(cycles) >= CODES else None
    return next((cycle for cycle in cycles if cycle.code == code), oldest)


def _state(
    decision: Decision,
    error: ErrorInfo,
    request: FailedAttempt,
    policy: Backoff,
    now: datetime,
    classified: Classified,
    previous: RetryCycle | None,
) -> RetryState:
    # As in `Cycle`, the age is 0 s if a record says that the cycle began after now.
    since = min(previous.since, now) if previous is not None else now
    assert decision.pass_key is not None, "a claimed decision has a pass"
    return RetryState(
        count=request.retry_attempts,
        cycle=request.cycle_retries,
        since=since,
        until=since + timedelta(seconds=policy.total),
        failed_at=now,
        attempt=decision.attempts,
        pass_key=decision.pass_key,
        code=classified.code.number,
        reason=classified.reason.name,
        kind=error.kind,
        message=error.message,
        reasons=tuple(sorted(reason.name for reason in request.retry_reasons)),
        cycles=tuple(cycle for cycle in _cycles(decision.retry) if cycle != previous),
    )


def _times(cycle: Cycle) -> str:
    return "1 retry" if cycle.retries == 1 else f"{cycle.retries:,} retries"
