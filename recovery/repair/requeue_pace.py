"""The pace of requeues: an actor's `requeue_rate` spreads requeues after an outage over time.

Without a rate, tasks are requeued as fast as the database can. A requeue pushes at most one message per task, and
queued tasks are not queued twice, so queues stay no longer than their tasks. If that is too fast for a service that the
actor calls, its rate lets some tasks through now. The others get new deadlines in the order of need, spread at random
within the time that the rate requires. These deadlines are marked (`Decision.paced_to`), so that they are neither
advanced nor counted again: postponed tasks come before tasks that were not postponed. The rate applies to the whole
cluster. All scanners and operations share one budget (`store.lifecycle.requeue_rates`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from recovery.rules import Finding, Surroundings
from recovery.store.lifecycle.requeue_rates import RequeueRates


@dataclass(frozen=True, slots=True)
class Later:
    """Tasks of one actor to requeue between `least` and `most` seconds from now."""

    actor: str
    ids: list[str]
    least: float
    most: float


class RequeuePace:
    """Splits findings into those to repair now and those to postpone."""

    def __init__(self, rates: RequeueRates, interval: float = 1.0) -> None:
        """Create a pace. `interval`: seconds between scans; the budget of one interval may be used at once."""
        self._rates, self._interval = rates, max(1.0, interval)

    def split(
        self, findings: Sequence[Finding], around: Surroundings, *, counts_left: bool = True
    ) -> tuple[list[Finding], list[Later]]:
        """Return the findings to repair now, and the tasks to postpone by actor.

        Args:
            findings: Findings that ask for a requeue, with decisions.
            around: The surroundings, with the rates of actors.
            counts_left: Whether the postponed tasks get new deadlines, and therefore count before later tasks.
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
        for actor, actor_findings in by_actor.items():
            rate = around.actor(actor).requeue_rate
            repeated = [finding for finding in actor_findings if not _is_fresh(finding)]
            fresh = [finding for finding in actor_findings if _is_fresh(finding)]
            granted = self._rates.take(
                actor, rate, self._interval, again=len(repeated), fresh=len(fresh), counts_left=counts_left
            )
            now += [*repeated, *fresh][: granted.count]
            remaining_repeated = repeated[granted.count :]
            remaining_fresh = fresh[max(0, granted.count - len(repeated)) :]
            for remaining, position in ((remaining_repeated, granted.again), (remaining_fresh, granted.fresh)):
                if remaining:
                    ids = [finding.record for finding in remaining]
                    later.append(Later(actor, ids, position / rate, (position + len(remaining)) / rate))
        return now, later


def _is_fresh(finding: Finding) -> bool:
    """Return whether the task's current deadline was not set by its actor's `requeue_rate`.

    Postponed tasks are requeued before fresh ones.
    """
    return finding.decision is None or not finding.decision.is_paced
