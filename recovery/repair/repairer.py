"""Findings to compare-and-sets: what a rule says is to be done, done in batches.

A repair runs a step of the normal path again, and its update repeats the condition that the finding was made
on; a record that has moved on since is left alone. So a finding may be as old as it likes. Each repair that
changed something is counted under its rule.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

from recovery import metrics
from recovery.engine import Applier, Resources
from recovery.repair.applying import Applying
from recovery.repair.damage import DamageRepairs
from recovery.repair.graphs import GraphRepairs
from recovery.repair.handover import HandOver
from recovery.repair.interruptions import InterruptionRepairs
from recovery.repair.markers import MarkerRepairs
from recovery.repair.processes import ProcessRepairs
from recovery.repair.tasks import TaskRepairs
from recovery.repair.timeouts import TimeoutRepairs
from recovery.rules import Finding, Repair, Rule, Surroundings
from recovery.store import batches

log = logging.getLogger(__name__)

Done = Counter[Rule]
Action = Callable[[Rule, Sequence[Finding], Surroundings], int]


class Repairer:
    """Repairs findings with the steps of the engine. `source` says on whose behalf: it is told with each repair."""

    def __init__(self, resources: Resources, applier: Applier, source: str = "auto") -> None:
        self._source = source
        self.hand_over = HandOver(resources)
        applying = Applying(resources, applier)
        self._actions: dict[Repair, Action] = {
            **ProcessRepairs(resources, applying).actions,
            **GraphRepairs(resources).actions,
            **TaskRepairs(resources, applying, self.hand_over).actions,
            **TimeoutRepairs(resources, applying).actions,
            **DamageRepairs(resources, applying).actions,
            **InterruptionRepairs(resources).actions,
            **MarkerRepairs(resources).actions,
        }

    def repair(self, findings: Sequence[Finding], around: Surroundings) -> Done:
        """Repair all findings; {rule: repairs that changed something}."""
        groups: dict[tuple[Rule, Repair], list[Finding]] = defaultdict(list)
        for finding in findings:
            groups[finding.rule, finding.repair].append(finding)
        done: Done = Counter()
        for (rule, repair), group in groups.items():
            metrics.FINDINGS.labels(rule.value).inc(len(group))
            changed = sum(self._actions[repair](rule, some, around) for some in batches(group))
            if changed:
                done[rule] += changed
                metrics.REPAIRS.labels(rule.value).inc(changed)
                log.info(
                    "%s: %s, %d of %d (source %s); first %s: %s",
                    rule, repair, changed, len(group), self._source, group[0].record, group[0].evidence,
                )  # fmt: skip
        return done
