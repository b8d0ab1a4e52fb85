"""Applying decisions again, one process at a time: those that a majority has. One that a majority does not have yet
stays overdue until it has.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from recovery import metrics
from recovery.engine import Applied, Applier, Ended, Resources, ended_portions, read_each
from recovery.errors import DamagedRecord
from recovery.repair.changed import Changed, of_each

log = logging.getLogger(__name__)

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
        for portion in ended_portions(self._store, ids):
            changed += of_each(
                read_each(self._store, portion, self._on_damage),
                self._apply,
                lambda one: one.decision.id,
                self._postpone,
            )
        self._applier.flush()
        return changed

    def _apply(self, ended: Ended) -> bool:
        return self._applier.apply([ended]) in (Applied.NOW, Applied.RESTORED)

    def _postpone(self, decision_id: str) -> None:
        """What can't be applied now mostly can't be applied ever: it is tried more and more rarely."""
        self._store.decisions.postpone_apply(decision_id, self._apply_timeout, RARELY)

    def _on_damage(self, decision_id: str, damage: DamagedRecord) -> None:
        log.error("%s: %s; repair or remove it by hand", decision_id, damage)
        metrics.DAMAGED.inc()
        self._postpone(decision_id)
