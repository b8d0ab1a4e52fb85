"""Decides what follows an attempt that was lost: another one at once, another one later, or the end of its task.

    first loss in a row       at once
    further losses            after 1, 2, 4 … 30 s, by the actor's settings; or as its retry strategy says
    of a whole worker         at once, and not counted: a machine that dies says nothing about its tasks
    not to be run again       the task ends, unless its actor's strategy wants a retry

A strategy is the application's code. It is asked in a thread of its own with a time limit, so that one that hangs does
not stop the scanner; then the settings decide.
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
"""Seconds in which the strategies of one page of findings have to answer. The scanner waits meanwhile."""


@dataclass(frozen=True, slots=True)
class Sequel:
    """What follows a lost attempt."""

    delay: float | None
    """Seconds until the next attempt; None if the task ends."""
    why: str = ""
    """Why it ends, if a strategy wants that."""


class LostAttempts:
    """Judges lost attempts, a page at a time."""

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self._asking: Future[Any] | None = None

    def judge(self, findings: Sequence[Finding], around: Surroundings) -> dict[str, Sequel]:
        """Return what follows each of these lost attempts, by decision."""
        sequels: dict[str, Sequel] = {}
        to_ask: list[Finding] = []
        for finding in findings:
            assert finding.decision is not None
            preferences = around.actor(finding.decision.actor)
            sequels[finding.record] = _by_settings(finding, preferences)
            if _may_be_asked(finding, preferences):
                to_ask.append(finding)
        return sequels | self._by_strategies(to_ask, around)

    def _by_strategies(self, findings: Sequence[Finding], around: Surroundings) -> dict[str, Sequel]:
        strategy_of = self._resources.strategy_of
        if not findings or strategy_of is None:
            return {}
        terms = self._resources.store.tasks.retry_terms_of([finding.record for finding in findings])
        # A page of findings is read without what was retried.
        whole = self._resources.store.decisions.effects([finding.record for finding in findings])
        requests: dict[str, tuple[FailedAttempt, Reason]] = {}
        for finding in findings:
            assert finding.decision is not None
            options, context = terms.get(finding.record, (None, None))
            strategy = strategy_of(finding.decision.actor, options or RetryOptions())
            if strategy is not None:
                preferences = around.actor(finding.decision.actor)
                decision = whole.get(finding.record, finding.decision)
                request = _request(decision, strategy, _context(context), preferences, around.now)
                requests[finding.record] = request, reason_of_loss(finding)
        if not requests:
            return {}
        rulings = self._ask(list(requests.values()))
        return dict(zip(requests, map(_sequel, rulings), strict=True)) if rulings is not None else {}

    def _ask(self, requests: Sequence[tuple[FailedAttempt, Reason]]) -> list[Ruling] | None:
        """Return the rulings of all; None if they did not come in time."""
        if self._asking is not None and not self._asking.done():
            log.warning("a retry strategy still hangs: %d lost attempts are judged by their settings", len(requests))
            return None
        self._asking = answer = Future[Any]()

        def ask() -> None:
            try:
                answer.set_result(asyncio.run(_rulings(requests)))
            except BaseException as error:  # the application's code
                answer.set_exception(error)

        threading.Thread(target=ask, name="retry strategies", daemon=True).start()
        try:
            rulings: list[Ruling] = answer.result(ASK_TIMEOUT)
        except TimeoutError:
            told = "retry strategies did not answer within %g s: %d lost attempts are judged by their settings"
            log.warning(told, ASK_TIMEOUT, len(requests))
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
    """Return whether a strategy decides: of further losses, and of what is not to be run again."""
    decision = finding.decision
    assert decision is not None
    if not preferences.restarts_lost_attempts:
        return True
    return finding.repair is Repair.REQUEUE and decision.timeouts > 0 and counts_as_loss(finding.rule, decision)


def reason_of_loss(finding: Finding) -> Reason:
    """Return why an attempt is lost: its process is gone, or it brought no result in time."""
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
    began = decision.enqueued_at or now
    return FailedAttempt(
        name=f"{decision.actor} {decision.id} attempt {decision.attempts}",
        idempotent=preferences.idempotent,
        retry_strategy=strategy,
        retry_attempts=decision.timeouts + (retry.count if retry is not None else 0),
        cycle_retries=decision.timeouts,
        retry_reasons=frozenset(REASONS[name] for name in (retry.reasons if retry else ()) if name in REASONS),
        remaining=None if limit is None else limit.seconds - (now - began).total_seconds(),
        context=context,
    )


def _context(text: str | None) -> Mapping[str, Any]:
    try:
        context = {} if text is None else json.loads(text)
    except (ValueError, RecursionError):  # another program wrote it
        return {}
    return context if isinstance(context, dict) else {}
