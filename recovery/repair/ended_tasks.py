"""Applying decisions again, those of a process together: those that a majority has. One that a majority does not have
yet stays overdue until it has.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence

from recovery import metrics
from recovery.engine import Applied, Applier, Ended, Resources, ended_portions, is_of_servers, read_each
from recovery.errors import DamagedRecord
from recovery.repair.changed import Changed, of_each, of_records

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
            for together in _of_each_process(read_each(self._store, portion, self._on_damage)):
                changed += self._apply(together)
        self._applier.flush()
        return changed

    def _apply(self, together: Sequence[Ended]) -> Changed:
        if len(together) > 1:
            try:
                return of_records(self._applied(together))
            except Exception as error:
                if is_of_servers(error):
                    raise
        return of_each(together, lambda one: bool(self._applied([one])), lambda one: one.decision.id, self._postpone)

    def _applied(self, together: Sequence[Ended]) -> list[str]:
        """Which of these decisions, of one process and epoch, had an effect."""
        came_of = zip(together, self._applier.apply(together), strict=True)
        return [one.decision.id for one, applied in came_of if applied in (Applied.NOW, Applied.RESTORED)]

    def _postpone(self, decision_id: str) -> None:
        """What can't be applied now mostly can't be applied ever: it is tried more and more rarely."""
        self._store.decisions.postpone_apply(decision_id, self._apply_timeout, RARELY)

    def _on_damage(self, decision_id: str, damage: DamagedRecord) -> None:
        log.error("%s: %s; repair or remove it by hand", decision_id, damage)
        metrics.DAMAGED.inc()
        self._postpone(decision_id)


def _of_each_process(ended: Iterable[Ended]) -> list[list[Ended]]:
    """These as they may be applied together; one that failed alone."""
    found: dict[object, list[Ended]] = defaultdict(list)
    for one in ended:
        found[one.decision.id if one.failed else (one.process_id, one.decision.epoch)].append(one)
    return list(found.values())
