"""Findings to compare-and-sets: what a rule says is to be done, done in batches.

A repair runs a step of the normal path again, and its update repeats the condition that the finding was made
on; a record that has moved on since is left alone. So a finding may be as old as it likes. Each repair that
changed something is counted under its rule.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import prometheus_client

from recovery import metrics
from recovery.engine import Outbox, Resources
from recovery.repair.changed import Changed
from recovery.repair.damage_repairs import DamageRepairs
from recovery.repair.diagnosis import RedisLoss
from recovery.repair.ended_tasks import Applying, EndRepairs
from recovery.repair.graph_repairs import GraphRepairs
from recovery.repair.process_repairs import ProcessRepairs
from recovery.repair.requeue_pace import Later, RequeuePace
from recovery.repair.requeueing import RequeueRepairs
from recovery.rules import Finding, Repair, Rule, Surroundings
from recovery.store import batches

log = logging.getLogger(__name__)

Done = Counter[Rule]
Action = Callable[[Rule, Sequence[Finding], Surroundings], Changed]


@dataclass(frozen=True, slots=True)
class Repaired:
    """What came of a repair."""

    changed: Mapping[Rule, Changed]
    """{rule: what its repairs changed, by process}."""
    postponed: Sequence[Later] = ()
    """Tasks that are to be requeued, and are not yet, for the `requeue_rate` of their actors: scanners do it then."""
    is_outrun: bool = False
    """Whether tasks were to be requeued, and others were first at most of them."""

    @property
    def done(self) -> Done:
        """{rule: repairs that changed something}."""
        return Counter({rule: changed.total() for rule, changed in self.changed.items()})


class Repairer:
    """Repairs findings with the steps of the engine. `source` says on whose behalf: it is told with each repair. `pace`
    is that of requeues; by default one of its own."""

    def __init__(
        self, resources: Resources, outbox: Outbox, source: str = "auto", pace: RequeuePace | None = None
    ) -> None:
        self._source = source
        self.requeues, self.redis_loss = RequeueRepairs(resources, pace), RedisLoss(resources)
        applying = Applying(resources, outbox)
        self._actions: dict[Repair, Action] = {
            **ProcessRepairs(resources, applying).actions,
            **GraphRepairs(resources).actions,
            **self.requeues.actions,
            **EndRepairs(resources, applying).actions,
            **DamageRepairs(resources, applying).actions,
        }

    def repair(self, findings: Sequence[Finding], around: Surroundings) -> Repaired:
        """Repair all findings. Raises StoreError and BrokerError."""
        groups: dict[tuple[Rule, Repair], list[Finding]] = defaultdict(list)
        for finding in findings:
            groups[finding.rule, finding.repair].append(finding)
        done = dict[Rule, Changed]()
        self.requeues.begin()
        if findings:  # before anything is queued
            self.redis_loss.look()
        for (rule, repair), group in groups.items():
            of_actors = Counter(map(_actor, group))
            _count(metrics.FINDINGS, rule, of_actors)
            by_process = Changed()
            for some in batches(group):
                by_process += self._actions[repair](rule, some, around)
            if changed := by_process.total():
                done[rule] = done.get(rule, Changed()) + by_process
                all_changed = changed == len(group)
                _count(metrics.REPAIRS, rule, of_actors if all_changed else _by_actor(group, by_process))
                log.info(
                    "%s: %s, %d of %d (source %s); first %s: %s",
                    rule, repair, changed, len(group), self._source, group[0].record, group[0].evidence,
                )  # fmt: skip
        return Repaired(done, self.requeues.postponed, self.requeues.is_outrun)


def _actor(finding: Finding) -> str:
    """Whose task it was found on; of what is no single task's, none."""
    return finding.decision.actor if finding.decision is not None else ""


def _by_actor(findings: Sequence[Finding], changed: Changed) -> Counter[str]:
    """{actor: what was changed of its tasks}. A repair tells how much it changed of a process: where that is less than
    was found, which is hardly ever, the first ones have it."""
    left, by_actor = Counter(changed), Counter[str]()
    for finding in findings:
        if left[finding.process_id] > 0:
            left[finding.process_id] -= 1
            by_actor[_actor(finding)] += 1
    # One finding may take several steps, as lost records of a process do.
    return by_actor + Counter({_actor(findings[0]): left.total()})


def _count(metric: prometheus_client.Counter, rule: Rule, by_actor: Mapping[str, int]) -> None:
    for actor, count in by_actor.items():
        metric.labels(rule.value, actor).inc(count)
