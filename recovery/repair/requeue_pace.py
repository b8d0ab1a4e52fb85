"""The pace of requeues: an actor's `requeue_rate` spreads what is overdue all at once after an outage.

Without a rate tasks are requeued as fast as the database takes it. A requeue moves at most one message for each task,
and what waits in a queue is not queued twice, so a storm makes no queue longer than its tasks. If that is too fast for
what an actor calls, its rate lets some tasks through now. The rest gets new deadlines, in the order of need, as far off
as the rate asks for, each at random in its place. Such a deadline is marked (`Decision.paced_to`), so that nobody
advances it, and nobody counts it again: what was postponed comes before what was not. The rate is the whole cluster's:
all that scan, and all that work at operations, take from one budget (`store.lifecycle.requeue_rates`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from recovery.rules import Finding, Surroundings
from recovery.store.lifecycle.requeue_rates import RequeueRates


@dataclass(frozen=True, slots=True)
class Later:
    """Records of one actor's tasks to be looked at again between so many seconds from now and so many."""

    actor: str
    ids: list[str]
    least: float
    most: float


class RequeuePace:
    """Splits a page of findings into what is done now and what is postponed."""

    def __init__(self, rates: RequeueRates, interval: float = 1.0) -> None:
        """`interval` is that of the scans, in seconds: what it brings may be used at once."""
        self._rates, self._interval = rates, max(1.0, interval)

    def split(
        self, findings: Sequence[Finding], around: Surroundings, *, counts_left: bool = True
    ) -> tuple[list[Finding], list[Later]]:
        """Return what may be requeued now; and the rest, by actor.

        `counts_left`: whether the rest is to get new deadlines, and so is counted before what comes after it.
        """
        by_actor: dict[str, list[Finding]] = defaultdict(list)
        now: list[Finding] = []
        for finding in findings:
            assert finding.decision is not None
            if around.actor(finding.decision.actor).requeue_rate:
                by_actor[finding.decision.actor].append(finding)
            else:
                now.append(finding)
        later: list[Later] = []
        for actor, wanted in by_actor.items():
            rate = around.actor(actor).requeue_rate
            again = [finding for finding in wanted if not _is_fresh(finding)]
            fresh = [finding for finding in wanted if _is_fresh(finding)]
            granted = self._rates.take(
                actor, rate, self._interval, again=len(again), fresh=len(fresh), counts_left=counts_left
            )
            now += [*again, *fresh][: granted.count]
            left_again = again[granted.count :]
            left_fresh = fresh[max(0, granted.count - len(again)) :]
            for left, before in ((left_again, granted.again), (left_fresh, granted.fresh)):
                if left:
                    ids = [finding.record for finding in left]
                    later.append(Later(actor, ids, before / rate, (before + len(left)) / rate))
        return now, later


def _is_fresh(finding: Finding) -> bool:
    """Whether it was not postponed before: its deadline is none that a pace has set."""
    return finding.decision is None or not finding.decision.is_paced
