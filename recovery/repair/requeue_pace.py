"""The pace of requeues: an actor's `requeue_rate` spreads what is overdue all at once after an outage.

Without a rate tasks are requeued as fast as the database takes it. A requeue moves at most one message for each task,
and what waits in a queue is not queued twice, so a storm makes no queue longer than its tasks. If that is too fast for
what an actor calls, its rate lets some tasks through now. The rest gets new deadlines, in the order of need, as far off
as the rate asks for, each at random in its place. Such a deadline is marked (`Decision.paced_to`), so that nobody
advances it, and nobody counts it again: what was postponed comes before what was not. Each process that scans keeps the
rate for itself, so several at once may be as many times as fast.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from recovery.rules import Finding, Surroundings


@dataclass(slots=True)
class _Budget:
    """Of one actor: what may be handed over now, what has been postponed, and what of that once more."""

    allowed: float
    at: float
    postponed: float = 0.0
    again: float = 0.0


@dataclass(frozen=True, slots=True)
class Later:
    """Records of one actor's tasks to be looked at again between so many seconds from now and so many."""

    actor: str
    ids: list[str]
    least: float
    most: float


class RequeuePace:
    """Splits a page of findings into what is done now and what is postponed. Not safe for threads."""

    def __init__(self, interval: float = 1.0, clock: Callable[[], float] = time.monotonic) -> None:
        """`interval` is that of the scans, in seconds: what it brings may be used at once."""
        self._interval, self._clock = max(1.0, interval), clock
        self._budgets: dict[str, _Budget] = {}

    def split(self, findings: Sequence[Finding], around: Surroundings) -> tuple[list[Finding], list[Later]]:
        """What may be handed over now; and the rest, by actor."""
        by_actor: dict[str, list[Finding]] = defaultdict(list)
        now: list[Finding] = []
        for finding in findings:
            assert finding.decision is not None
            if around.actor(finding.decision.actor).requeue_rate:
                by_actor[finding.decision.actor].append(finding)
            else:
                now.append(finding)
        later = []
        for actor, wanted in by_actor.items():
            rate = around.actor(actor).requeue_rate
            budget = self._refilled(actor, rate)
            wanted.sort(key=_is_fresh)  # of each kind those first that were
            count = min(len(wanted), int(budget.allowed))
            budget.allowed -= count
            now += wanted[:count]
            again = [f.record for f in wanted[count:] if not _is_fresh(f)]
            rest = [f.record for f in wanted[count:] if _is_fresh(f)]
            if again:
                least, budget.again = budget.again / rate, budget.again + len(again)
                later.append(Later(actor, again, least, budget.again / rate))
            if rest:
                least, budget.postponed = budget.postponed / rate, budget.postponed + len(rest)
                later.append(Later(actor, rest, least, budget.postponed / rate))
        return now, later

    def _refilled(self, actor: str, rate: float) -> _Budget:
        """What an interval brings is for use within it, and is not saved up, but for one. What was postponed is due."""
        now, most = self._clock(), max(rate * self._interval, 1.0)
        budget = self._budgets.setdefault(actor, _Budget(most, now))
        earned = (now - budget.at) * rate
        budget.allowed = min(most, budget.allowed + earned)
        budget.postponed = max(0.0, budget.postponed - earned)
        budget.again = max(0.0, budget.again - earned)
        budget.at = now
        return budget


def _is_fresh(finding: Finding) -> bool:
    """Whether it was not postponed before: its deadline is none that a pace has set."""
    return finding.decision is None or not finding.decision.is_paced
