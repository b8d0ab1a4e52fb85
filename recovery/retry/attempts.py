"""A task whose attempt failed, as a request: whether it is tried again, when, and what of that stands in its record.

    settings of the task, its actor and its process type → policy; error → code and reason; both → verdict

Here the two documents meet: the orchestrator of RFC 49 decides, by a strategy that is Hive's policy unless the actor
has one of its own; the cycle of one error is Hive's, and so is its total duration. Pure: what is to be written is
returned, and whoever writes it logs it.
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
"""Error codes of a task whose cycles are kept, at most. A further code goes on with the oldest cycle, so that a task
with a new code at each attempt ends as well."""


class RetryRefusal(StrEnum):
    """Why what failed is not tried again; label of a metric."""

    NOT_RETRIABLE = "not_retriable"
    NOT_IDEMPOTENT = "not_idempotent"
    OFF = "off"
    EXHAUSTED = "exhausted"
    DEADLINE = "deadline"
    STRATEGY = "strategy"


@dataclass(frozen=True, slots=True)
class Terms:
    """Under which a task is tried again: what it says itself, what its actor says, and what its process type says."""

    idempotent: bool
    options: tuple[RetryOptions, ...]
    """The nearest to the task first."""
    strategy: RetryStrategy | None = None
    """The actor's own; without one it is the policy."""
    context: Mapping[str, Any] = field(default_factory=dict)
    remaining: float | None = None
    """Seconds until the task's time as a whole is over."""

    @property
    def enabled(self) -> bool:
        """Whether anything is tried again at all."""
        return next((one.enabled for one in self.options if one.enabled is not None), True)


@dataclass(frozen=True, slots=True)
class Answer:
    """What becomes of a failed attempt: a retry after `delay` seconds, with what is to be kept of it; or none, and
    why."""

    delay: float = 0.0
    state: RetryState | None = None
    refusal: RetryRefusal | None = None
    why: str = ""


@dataclass(slots=True)
class FailedAttempt:
    """An attempt of a task that failed: a request that may be tried again (`request.Request`)."""

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
    """What becomes of an attempt of this decision, as it was claimed, that failed at `now` with `error`, which is what
    was `found`. Does not raise: a strategy that does refuses."""
    code, reason = found.code, found.reason
    if not terms.enabled and not reason.always_retry:
        return Answer(refusal=RetryRefusal.OFF, why="retry is off")
    if not found.is_retriable:
        why = "no catalogue knows it" if code is GENERIC_ERROR else f"{code.name} is {code.error_class}"
        return Answer(refusal=RetryRefusal.NOT_RETRIABLE, why=why)
    policy, held = Backoff.of(*terms.options), decision.retry
    before = _before(held, code.number)
    cycle = Cycle(code.number)
    if before is not None:
        cycle = Cycle(code.number, before.retries, max(0.0, (now - before.since).total_seconds()))
    request = FailedAttempt(
        name=f"{decision.actor} {decision.id} attempt {decision.attempts}",
        idempotent=terms.idempotent or found.is_idempotent,
        retry_strategy=terms.strategy or Durable(policy),
        retry_attempts=held.count if held is not None else 0,
        cycle_retries=cycle.retries,
        retry_reasons=frozenset(REASONS[name] for name in (held.reasons if held else ()) if name in REASONS),
        remaining=terms.remaining,
        context=terms.context,
    )
    ruling = await rule(request, reason)
    if ruling.verdict is Verdict.FAIL:
        if not (reason.always_retry or may_be_sent_again(request, reason)):
            return Answer(refusal=RetryRefusal.NOT_IDEMPOTENT, why=f"{reason.meaning}, and it is not idempotent")
        return Answer(refusal=RetryRefusal.STRATEGY, why=ruling.why)
    # A server that says when it is to be asked again knows better than any policy.
    delay = max(ruling.delay, found.retry_after or 0.0)
    if cycle.seconds + delay > policy.total:
        total = show_duration(policy.total)
        return Answer(
            refusal=RetryRefusal.EXHAUSTED, why=f"its total duration of {total} is over after {_times(cycle)}"
        )
    if ruling.verdict is Verdict.CANCEL or (terms.remaining is not None and delay >= terms.remaining):
        return Answer(refusal=RetryRefusal.DEADLINE, why="its task_timeout comes before the next retry")
    request.note_retry(reason)
    return Answer(delay, _state(decision, error, request, policy, now, found, before))


def _cycles(held: RetryState | None) -> list[RetryCycle]:
    """The cycles of all codes that a task has had, one for each, the oldest first."""
    if held is None:
        return []
    last = RetryCycle(code=held.code, retries=held.cycle, since=held.since)
    return sorted([*(one for one in held.cycles if one.code != held.code), last], key=lambda one: one.since)


def _before(held: RetryState | None, code: int) -> RetryCycle | None:
    """The cycle that a failure with this code goes on with; None: it begins one."""
    cycles = _cycles(held)
    oldest = cycles[0] if len(cycles) >= CODES else None
    return next((one for one in cycles if one.code == code), oldest)


def _state(
    decision: Decision,
    error: ErrorInfo,
    request: FailedAttempt,
    policy: Backoff,
    now: datetime,
    found: Classified,
    before: RetryCycle | None,
) -> RetryState:
    # A cycle is as old as its `Cycle`: 0 s where a record says that it began later than now.
    since = min(before.since, now) if before is not None else now
    assert decision.pass_key is not None, "a claimed decision has a pass"
    return RetryState(
        count=request.retry_attempts,
        cycle=request.cycle_retries,
        since=since,
        until=since + timedelta(seconds=policy.total),
        failed_at=now,
        attempt=decision.attempts,
        pass_key=decision.pass_key,
        code=found.code.number,
        reason=found.reason.name,
        kind=error.kind,
        message=error.message,
        reasons=tuple(sorted(reason.name for reason in request.retry_reasons)),
        cycles=tuple(one for one in _cycles(decision.retry) if one != before),
    )


def _times(cycle: Cycle) -> str:
    return "1 retry" if cycle.retries == 1 else f"{cycle.retries:,} retries"
