"""Applying decisions again, one process at a time.

As a majority has them, never as the primary says: what an apply begins (children are run, a process ends) is not undone
by a failover that takes the decision back. One that a majority does not have yet stays overdue until it has.

Their values are not read, nor their tasks' arguments. What else they hold, such as their children's arguments, is read
for so many of them at once as fit into PORTION_BYTES.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

from recovery import metrics
from recovery.engine import Applied, Applier, Ended, Resources
from recovery.errors import DamagedRecord
from recovery.repair.changed import Changed, of_each
from recovery.store import PORTION_BYTES, portions

log = logging.getLogger(__name__)

TOGETHER = 1000
"""Decisions that are read at once, at most."""
RARELY = 300.0
"""Seconds between two tries, at most, to apply what can't be applied: somebody may have repaired its process."""


class Applying:
    """Applies finished decisions by their ids."""

    def __init__(self, resources: Resources, applier: Applier) -> None:
        self._store = resources.store
        self._applier, self._apply_timeout = applier, resources.settings.apply_timeout

    def apply(self, ids: Sequence[str]) -> Changed:
        """Apply these decisions, as far as they and their tasks are there; which of them had an effect."""
        changed = Changed()
        for portion in self._portions(ids):
            changed += of_each(self._ended(portion), self._apply, lambda one: one.decision.id, self._postpone)
        self._applier.flush()
        return changed

    def _apply(self, ended: Ended) -> bool:
        return self._applier.apply([ended]) in (Applied.NOW, Applied.RESTORED)

    def _postpone(self, decision_id: str) -> None:
        """What can't be applied now mostly can't be applied ever: it is tried more and more rarely."""
        self._store.decisions.postpone_apply(decision_id, self._apply_timeout, RARELY)

    def _portions(self, ids: Sequence[str]) -> Iterator[list[str]]:
        """These, as far as they are there, as many as may be held at once."""
        decisions, tasks = self._store.decisions.effect_sizes(ids), self._store.tasks.link_sizes(ids)
        weights = {key: decisions[key] + tasks.get(key, 0) for key in ids if key in decisions}
        return portions(weights, PORTION_BYTES, TOGETHER)

    def _ended(self, ids: Sequence[str]) -> list[Ended]:
        """These as they are read; one by one where one of them can't be."""
        try:
            return self._read(ids)
        except DamagedRecord as damage:
            if len(ids) > 1:
                return [ended for key in ids for ended in self._ended([key])]
            log.error("%s: %s; repair or remove it by hand", ids[0], damage)
            metrics.DAMAGED.inc()
            self._postpone(ids[0])
            return []

    def _read(self, ids: Sequence[str]) -> list[Ended]:
        tasks, decisions = self._store.tasks.links(ids), self._store.decisions.effects(ids)
        return [
            Ended(task, decision)
            for key in ids
            # A Task that is lost may still stand in its decision.
            if (decision := decisions.get(key)) and decision.outcome and (task := tasks.get(key) or decision.task())
        ]
