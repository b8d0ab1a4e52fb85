"""Applying decisions again, one process at a time."""

from __future__ import annotations

from collections.abc import Sequence

from recovery.engine import Applied, Applier, Ended, Resources, each


class Applying:
    """Applies finished decisions by their ids."""

    def __init__(self, resources: Resources, applier: Applier) -> None:
        self._store = resources.store
        self._applier = applier

    def apply(self, ids: Sequence[str]) -> int:
        """Apply these decisions, as far as they and their tasks are there; how many of them had an effect."""
        tasks, decisions = self._store.tasks.get_many(ids), self._store.decisions.get_many(ids)
        ended = [
            Ended(task, decision)
            for key in ids
            # A Task that is lost may still stand in its decision.
            if (decision := decisions.get(key)) and decision.outcome and (task := tasks.get(key) or decision.task())
        ]
        changed = each(ended, lambda one: self._applier.apply([one]) in (Applied.NOW, Applied.RESTORED))
        self._applier.flush()
        return changed
