"""Findings to compare-and-sets: what a rule says is to be done, done in batches.

A repair runs a step of the normal path again, and its update repeats the condition that the finding was made
on; a record that has moved on since is left alone. So a finding may be as old as it likes. Each repair that
changed something is counted under its rule.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

import prometheus_client

from recovery import metrics
from recovery.engine import Outbox, Resources
from recovery.repair.changed import Changed, Repaired, by_actor
from recovery.repair.damage_repairs import DamageRepairs
from recovery.repair.diagnosis import RedisLoss
from recovery.repair.ended_tasks import Applying, EndRepairs
from recovery.repair.graph_repairs import GraphRepairs
from recovery.repair.process_repairs import ProcessRepairs
from recovery.repair.requeue_pace import RequeuePace
from recovery.repair.requeueing import RequeueRepairs
from recovery.rules import Finding, Repair, Rule, Surroundings
from recovery.store import batches

log = logging.getLogger(__name__)

Action = Callable[[Rule, Sequence[Finding], Surroundings], Changed]


class Repairer:
    """Repairs findings with the steps of the engine. `source` says on whose behalf: it is told with each repair. `pace`
    is that of requeues; by default one of its own."""

    def __init__(
        self, resources: Resources, outbox: Outbox, source: str = "auto", pace: RequeuePace | None = None
    ) -> None:
        self._source = source
        self._requeues, self.redis_loss = RequeueRepairs(resources, pace), RedisLoss(resources)
        applying = Applying(resources, outbox)
        self._actions: dict[Repair, Action] = {
            **ProcessRepairs(resources, applying).actions,
            **GraphRepairs(resources).actions,
            **self._requeues.actions,
            **EndRepairs(resources, applying).actions,
            **DamageRepairs(resources, applying).actions,
        }

    def repair(self, findings: Sequence[Finding], around: Surroundings) -> Repaired:
        """Repair all findings. Raises StoreError and BrokerError."""
        groups: dict[tuple[Rule, Repair], list[Finding]] = defaultdict(list)
        for finding in findings:
            groups[finding.rule, finding.repair].append(finding)
        done = dict[Rule, Changed]()
        self._requeues.begin()
        if findings:  # before anything is queued
            self.redis_loss.look()
        for (rule, repair), group in groups.items():
            _count(metrics.FINDINGS, rule, by_actor(group))
            by_process = Changed()
            for some in batches(group):
                by_process += self._actions[repair](rule, some, around)
            if changed := by_process.total():
                done[rule] = done.get(rule, Changed()) + by_process
                _count(metrics.REPAIRS, rule, by_actor(group, by_process))
                log.info(
                    "%s: %s, %d of %d (source %s); first %s: %s",
                    rule, repair, changed, len(group), self._source, group[0].record, group[0].evidence,
                )  # fmt: skip
        return Repaired(done, self._requeues.postponed, self._requeues.is_outrun)


def _count(metric: prometheus_client.Counter, rule: Rule, counts: Mapping[str, int]) -> None:
    for actor, count in counts.items():
        metric.labels(rule.value, actor).inc(count)
