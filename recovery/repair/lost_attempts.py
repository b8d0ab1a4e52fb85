"""Decides what follows a lost attempt: another attempt now or later, or the end of its task.

    first loss in a row        requeued at once
    further losses             requeued after 1, 2, 4 … 30 s, by the actor's settings or its retry strategy
    loss of a whole worker     requeued at once and not counted: it says nothing about its tasks
    task must not run again    the task ends, unless the actor's strategy wants a retry

A strategy is code of the application. It is asked in a separate thread with a time limit, so that a strategy that hangs
does not stop the scanner. In that case the settings decide.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from recovery.engine import Resources
from recovery.records import ActorPreferences, Decision, RetryOptions
from recovery.retry import Backoff, Reason, RetryStrategy
from recovery.retry.attempts import FailedAttempt
from recovery.retry.orchestrator import Ruling, Verdict, rule
from recovery.retry.reasons import REASONS, WORK_TIMEOUT, WORKER_LOST
from recovery.rules import Finding, Repair, Rule, Surroundings, counts_as_loss

log = logging.getLogger(__name__)

ASK_TIMEOUT = 5.0
"""Seconds that the strategies for one page of findings may take together. The scanner waits meanwhile."""


@dataclass(frozen=True, slots=True)
class Sequel:
    """The decision about what follows a lost attempt."""

    delay: float | None
    """Seconds until the next attempt; None if the task ends."""
    why: str = ""
    """The reason for the end, if a strategy decided it."""


class LostAttempts:
    """Judge of lost attempts, a page at a time."""

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self._asking: Future[Any] | None = None

    def judge(self, findings: Sequence[Finding], around: Surroundings) -> dict[str, Sequel]:
        """Return what follows each of these lost attempts, by decision id."""
        sequels: dict[str, Sequel] = {}
        to_ask: list[Finding] = []
        for finding in findings:
            assert finding.decision is not None
            preferences = around.actor(finding.decision.actor)
            sequels[finding.record] = _by_settings(finding, preferences)
            if _may_be_asked(finding, preferences):
                to_ask.append(finding)
        return sequels | self._by_strategies(to_ask, around)

    def _by_strategies(self, findings: Sequence[Finding], surroundings: Surroundings) -> dict[str, Sequel]:
        strategy_of = self._resources.strategy_of
        if not findings or strategy_of is None:
            return {}
        terms = self._resources.store.tasks.retry_terms_of([finding.record for finding in findings])
        # Snapshots lack the history of retries, so read these decisions in full.
        full_decisions = self._resources.store.decisions.effects([finding.record for finding in findings])
        requests: dict[str, tuple[FailedAttempt, Reason]] = {}
        for finding in findings:
            assert finding.decision is not None
            options, context = terms.get(finding.record, (None, None))
            strategy = strategy_of(finding.decision.actor, options or RetryOptions())
            if strategy is not None:
                preferences = surroundings.actor(finding.decision.actor)
                decision = full_decisions.get(finding.record, finding.decision)
                request = _request(decision, strategy, _context(context), preferences, surroundings.now)
                requests[finding.record] = request, reason_of_loss(finding)
        if not requests:
            return {}
        rulings = self._ask(list(requests.values()))
        return dict(zip(requests, map(_sequel, rulings), strict=True)) if rulings is not None else {}

    def _ask(self, requests: Sequence[tuple[FailedAttempt, Reason]]) -> list[Ruling] | None:
        """Return the rulings in the order of the requests; None if they did not come in time or a strategy raised."""
        if self._asking is not None and not self._asking.done():
            log.warning("a retry strategy still hangs: %d lost attempts are judged by their settings", len(requests))
            return None
        self._asking = future = Future[Any]()

        def ask() -> None:
            try:
                future.set_result(asyncio.run(_rulings(requests)))
            except BaseException as error:  # raised by the application's code
                future.set_exception(error)

        threading.Thread(target=ask, name="retry strategies", daemon=True).start()
        try:
            rulings: list[Ruling] = future.result(ASK_TIMEOUT)
        except TimeoutError:
            message = "retry strategies did not answer within %g s: %d lost attempts are judged by their settings"
            log.warning(message, ASK_TIMEOUT, len(requests))
            return None
        except BaseException as error:
            log.warning("retry strategies could not be asked (%s): settings decide", type(error).__name__)
            return None
        return rulings


async def _rulings(requests: Sequence[tuple[FailedAttempt, Reason]]) -> list[Ruling]:
    return list(await asyncio.gather(*(rule(request, reason) for request, reason in requests)))


def _sequel(ruling: Ruling) -> Sequel:
    if ruling.verdict is Verdict.RETRY:
        return Sequel(ruling.delay)
    return Sequel(None, ruling.why)


def _by_settings(finding: Finding, preferences: ActorPreferences) -> Sequel:
    decision = finding.decision
    assert decision is not None
    if finding.repair is Repair.FAIL:
        return Sequel(None)
    if not decision.timeouts or not counts_as_loss(finding.rule, decision):
        return Sequel(0.0)
    policy = Backoff(
        initial=preferences.lost_initial,
        coefficient=preferences.lost_coefficient,
        jitter=(0, 0),
        maximum=max(preferences.lost_initial, preferences.lost_maximum),
    )
    return Sequel(policy.base(decision.timeouts - 1))


def _may_be_asked(finding: Finding, preferences: ActorPreferences) -> bool:
    """Return whether a strategy decides: after further losses, and for tasks that must not run again."""
    decision = finding.decision
    assert decision is not None
    if not preferences.restarts_lost_attempts:
        return True
    return finding.repair is Repair.REQUEUE and decision.timeouts > 0 and counts_as_loss(finding.rule, decision)


def reason_of_loss(finding: Finding) -> Reason:
    """Return the reason of a loss: the attempt's process is gone, or the attempt brought no result in time."""
    decision = finding.decision
    is_gone = finding.rule is Rule.WORKER_LOST or (decision is not None and decision.last_loss is not None)
    return WORKER_LOST if is_gone else WORK_TIMEOUT


def _request(
    decision: Decision,
    strategy: RetryStrategy,
    context: Mapping[str, Any],
    preferences: ActorPreferences,
    now: datetime,
) -> FailedAttempt:
    retry, limit = decision.retry, preferences.task_limit
    first_queued = decision.enqueued_at or now
    return FailedAttempt(
        name=f"{decision.actor} {decision.id} attempt {decision.attempts}",
        idempotent=preferences.idempotent,
        retry_strategy=strategy,
        retry_attempts=decision.timeouts + (retry.count if retry is not None else 0),
        cycle_retries=decision.timeouts,
        retry_reasons=frozenset(REASONS[name] for name in (retry.reasons if retry else ()) if name in REASONS),
        remaining=None if limit is None else limit.seconds - (now - first_queued).total_seconds(),
        context=context,
    )


def _context(text: str | None) -> Mapping[str, Any]:
    try:
        context = {} if text is None else json.loads(text)
    except (ValueError, RecursionError):  # another program wrote an invalid context
        return {}
    return context if isinstance(context, dict) else {}
