"""Finished decisions as they are read to be applied: as a majority has them, never as the primary says. What an apply
begins (children are run, a process ends) is not undone by a failover that takes the decision back.

Their values are not read, nor their tasks' arguments. What else they hold, such as their children's arguments, is read
for so many of them at once as fit into PORTION_BYTES.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from recovery.engine.steps import Ended
from recovery.errors import DamagedRecord
from recovery.store import PORTION_BYTES, Store, portions

TOGETHER = 1000
"""Decisions that are read at once, at most."""


def ended_portions(store: Store, ids: Sequence[str]) -> Iterator[list[str]]:
    """Of these decisions those that are there, as many as may be held at once."""
    decisions, tasks = store.decisions.effect_sizes(ids), store.tasks.link_sizes(ids)
    weights = {key: decisions[key] + tasks.get(key, 0) for key in ids if key in decisions}
    return portions(weights, PORTION_BYTES, TOGETHER)


def read_each(store: Store, ids: Sequence[str], damaged: Callable[[str, DamagedRecord], object]) -> list[Ended]:
    """Those of these that are finished, in their order; without those that are `damaged`, which is told."""
    try:
        return _read(store, ids)
    except DamagedRecord as damage:
        if len(ids) > 1:
            return [ended for key in ids for ended in read_each(store, [key], damaged)]
        damaged(ids[0], damage)
        return []


def _read(store: Store, ids: Sequence[str]) -> list[Ended]:
    tasks, decisions = store.tasks.links(ids), store.decisions.effects(ids)
    return [
        Ended(task, decision)
        for key in ids
        # A Task that is lost may still stand in its decision.
        if (decision := decisions.get(key)) and decision.outcome and (task := tasks.get(key) or decision.task())
    ]
