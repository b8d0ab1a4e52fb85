"""What a slot has in hand: a claimed decision, and what it knows of its process without asking."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from recovery.engine.children import records_of_children
from recovery.engine.effects import Ended
from recovery.records import Decision, Outcome


@dataclass(frozen=True, slots=True)
class InHand:
    """A claimed decision, and what was learnt from those that ran just before it, in the same place."""

    decision: Decision
    outcomes: Mapping[str, Outcome] = field(default_factory=dict)
    """{task: its outcome}, of the one that ran just before."""
    scheduled: Mapping[str, Decision] = field(default_factory=dict)
    """{id: decision as it was first written}, of tasks that were scheduled here."""

    def followed_by(self, taken: Decision, ended: Ended) -> InHand:
        """What is known beside a task that was claimed because this one ended."""
        scheduled, outcome = self.scheduled, ended.decision.outcome
        known = {ended.decision.task_id: outcome} if outcome is not None and not ended.failed else {}
        if any(child.unlocks for child in ended.decision.children):
            _, decisions = records_of_children(ended.task, ended.decision)
            scheduled = {**scheduled, **{decision.id: decision for decision in decisions}}
        return InHand(taken, known, scheduled)
